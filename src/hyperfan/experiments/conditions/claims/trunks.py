"""What other codes and trunks change in the default start: each variant beside it, and beside nn.Linear's start."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hyperfan.experiments.conditions import (
    JOBS,
    KINDS,
    LINEAR,
    RATES,
    SMALL_OUTPUTS,
    VARIANTS,
    WEIGHTS_ALONE,
    trunk_setting,
)
from hyperfan.experiments.conditions.claims import END, MEASURES, OURS, UNSEEN, compare_starts
from hyperfan.experiments.results.claims import Claim
from hyperfan.experiments.results.pairs import is_no_larger, median_ratio
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.text import markdown_table, two_digits

if TYPE_CHECKING:
    from hyperfan.experiments.conditions.results import ConditionsResults, ConditionsRun

OTHERS = (*VARIANTS, LINEAR)
"""Starts beside the default."""
MEANS_IN_TEXT = {"weights_alone": WEIGHTS_ALONE, "small_outputs_loss": SMALL_OUTPUTS}
"""Starts whose means the page's text has, by their fields."""


def trunk_tables(results: "ConditionsResults") -> dict[str, str]:
    """Fields of the page: losses over the default's, and what S1 says of every variant."""
    pairs = itertools.product(JOBS, RATES)
    configs = {(job, optimiser): trunk_setting(results.base, job, optimiser) for job, optimiser in pairs}
    found = list(results.runs.with_choosers(configs).values())
    return {
        "trunk_seeds": str(trunk_setting(results.base, JOBS[0], "SGD").seeds),
        "trunk_ratios": _ratios(found),
        "trunk_means": _means(found),
        "trunk_facts": _facts(found),
        **{field: _given_means(found, start) for field, start in MEANS_IN_TEXT.items()},
    }


def _measures(run: "ConditionsRun") -> list[str]:
    return [measure for measure in (END, UNSEEN) if measure in run.measures]


def _ratio(run: "ConditionsRun", measure: str, start: str) -> Estimate:
    """A start's loss over the default's, each at the rate that other seeds chose."""
    default = run.config.starts[0]
    return median_ratio(*(run.scores(measure, s, run.best(s)) for s in (start, default)))


def _ratios(runs: "list[ConditionsRun]") -> str:
    rows = [
        [run.config.job, run.config.optimiser, MEASURES[m], *(_ratio(run, m, s).format(".2f") for s in OTHERS)]
        for run in runs
        for m in _measures(run)
    ]
    return markdown_table(["job", "optimiser", "", *OTHERS], rows)


def _means(runs: "list[ConditionsRun]") -> str:
    """A table of the geometric means over jobs of each start's loss over the default's."""
    rows = []
    for kind, optimiser in itertools.product(KINDS, RATES):
        if of := _of_kind(runs, kind, optimiser):
            rows.append([kind, optimiser, *(_mean(of, start) for start in OTHERS)])
    return markdown_table(["conditions", "optimiser", *OTHERS], rows)


def _of_kind(runs: "list[ConditionsRun]", kind: str, optimiser: str) -> "list[ConditionsRun]":
    return [r for r in runs if r.config.job in KINDS[kind] and r.config.optimiser == optimiser]


def _mean(runs: "list[ConditionsRun]", start: str) -> str:
    return two_digits(geometric_mean([_ratio(run, measure, start).value for run in runs for measure in _measures(run)]))


def _given_means(runs: "list[ConditionsRun]", start: str) -> str:
    """The mean of a start's loss over the default's, with each optimiser, where conditions are given."""
    of = {optimiser: _of_kind(runs, "given", optimiser) for optimiser in RATES}
    return with_each_optimiser({optimiser: _mean(found, start) for optimiser, found in of.items() if found})


def with_each_optimiser(values: Mapping[str, str]) -> str:
    """A value with each optimiser, in words.

    >>> with_each_optimiser({"SGD": "0.5", "AdamW": "0.4"})
    '0.5 with SGD and 0.4 with AdamW'
    """
    return " and ".join(f"{value} with {optimiser}" for optimiser, value in values.items())


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of ratios, which may be zero or infinite.

    >>> geometric_mean([0.5, 8.0]), geometric_mean([0.5, math.inf])
    (2.0, inf)
    """
    return math.prod(values) ** (1 / len(values))


def _facts(runs: "list[ConditionsRun]") -> str:
    """In how many comparisons each start is at least as good as nn.Linear's, by the rule of S1."""
    rows = []
    for kind, jobs in KINDS.items():
        for i, name in enumerate((OURS, *VARIANTS)):
            c = Claim(name, name, f"at least as good as {LINEAR}")
            for run in (run for run in runs if run.config.job in jobs):
                for measure in _measures(run):
                    compare_starts(c, run, measure, (run.config.starts[i], LINEAR), is_no_larger)
            facts = list(c.facts.values())
            if facts:
                rows.append([kind, name, *(str(facts.count(fact)) for fact in (True, False, None))])
    return markdown_table(["conditions", "start", "at least as good", "not", "not decided"], rows)
