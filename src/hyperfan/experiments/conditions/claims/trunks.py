"""What other codes and trunks change in the default start: each variant beside it, and beside nn.Linear's start."""

import math
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hyperfan.experiments.conditions import LINEAR, RATES, TABLED, TRUNK_JOBS, VARIANTS, trunk_setting
from hyperfan.experiments.conditions.claims import END, MEASURES, OURS, UNSEEN
from hyperfan.experiments.results.claims import Claim, Fact, all_of, markdown_table
from hyperfan.experiments.results.pairs import is_no_larger
from hyperfan.experiments.results.statistics import Estimate, ratios

if TYPE_CHECKING:
    from hyperfan.experiments.conditions.results import ConditionsResults, ConditionsRun


def trunk_tables(results: "ConditionsResults") -> dict[str, str]:
    """Fields of the page: losses over the default's, and what S1 says of every variant."""
    found = list(_runs(results))
    return {
        "trunk_seeds": str(trunk_setting(results.base, TRUNK_JOBS[0], "SGD").seeds),
        "trunk_ratios": _ratios(found),
        "trunk_means": _means(found),
        "trunk_facts": _facts(found),
    }


def _runs(results: "ConditionsResults") -> "Iterator[ConditionsRun]":
    """The runs that are there, at rates that were chosen on other seeds."""
    for job in TRUNK_JOBS:
        for optimiser in RATES:
            config = trunk_setting(results.base, job, optimiser)
            if results.runs.has_chooser(config):
                yield results.at_chosen_rates(config)


def _measures(run: "ConditionsRun") -> list[str]:
    return [measure for measure in (END, UNSEEN) if measure in run.measures]


def _ratio(run: "ConditionsRun", measure: str, start: str) -> Estimate:
    """A start's loss over the default's, each at the rate that suits these seeds best."""
    default = run.config.starts[0]
    return Estimate.median(ratios(*(run.scores(measure, s, run.lowest(s)) for s in (start, default))))


def _ratios(runs: "list[ConditionsRun]") -> str:
    rows = [
        [run.config.job, run.config.optimiser, MEASURES[m], *(_ratio(run, m, s).format(".2f") for s in _others())]
        for run in runs
        for m in _measures(run)
    ]
    return markdown_table(["job", "optimiser", "", *_others()], rows)


def _means(runs: "list[ConditionsRun]") -> str:
    """The geometric means of these ratios over jobs."""
    rows = []
    for kind, tabled in (("given", False), ("tasks", True)):
        for optimiser in RATES:
            of = [r for r in runs if (r.config.job in TABLED) == tabled and r.config.optimiser == optimiser]
            values = {s: [_ratio(run, m, s).value for run in of for m in _measures(run)] for s in _others()}
            if of:
                rows.append([kind, optimiser, *(_mean(values[start]) for start in _others())])
    return markdown_table(["conditions", "optimiser", *_others()], rows)


def _mean(values: list[float]) -> str:
    finite = [value for value in values if 0 < value < math.inf]
    return f"{statistics.geometric_mean(finite):.2g}" if len(finite) == len(values) else "∞"


def _facts(runs: "list[ConditionsRun]") -> str:
    """In how many comparisons each start is at least as good as nn.Linear's, by the rule of S1."""
    rows = []
    for kind, tabled in (("given", False), ("tasks", True)):
        of = [run for run in runs if (run.config.job in TABLED) == tabled]
        for name, at in zip((OURS, *VARIANTS), range(len(VARIANTS) + 1), strict=True):
            facts = [_as_good(run, m, run.config.starts[at]) for run in of for m in _measures(run)]
            if facts:
                rows.append([kind, name, *(str(facts.count(fact)) for fact in (True, False, None))])
    return markdown_table(["conditions", "start", "at least as good", "not", "not decided"], rows)


def _as_good(run: "ConditionsRun", measure: str, start: str) -> Fact:
    facts = []
    for rate in (run.best, run.lowest):
        scores = [run.scores(measure, s, rate(s)) for s in (start, LINEAR)]
        facts.append(is_no_larger(Claim("", ""), "", *scores))
    return all_of(facts)


def _others() -> tuple[str, ...]:
    return *VARIANTS, LINEAR
