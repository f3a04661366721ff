"""What other codes and trunks change in the default start: each variant beside it, and beside nn.Linear's start."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hyperfan.experiments.conditions import JOBS, KINDS, LINEAR, RATES, VARIANTS, trunk_setting
from hyperfan.experiments.conditions.claims import END, MEASURES, OURS, UNSEEN, compare_starts
from hyperfan.experiments.results.claims import Claim
from hyperfan.experiments.results.pairs import is_no_larger
from hyperfan.experiments.results.statistics import Estimate, ratios
from hyperfan.text import markdown_table, two_digits

if TYPE_CHECKING:
    from hyperfan.experiments.conditions.results import ConditionsResults, ConditionsRun

OTHERS = (*VARIANTS, LINEAR)
"""Starts beside the default."""


def trunk_tables(results: "ConditionsResults") -> dict[str, str]:
    """Fields of the page: losses over the default's, and what S1 says of every variant."""
    found = list(_runs(results))
    return {
        "trunk_seeds": str(trunk_setting(results.base, JOBS[0], "SGD").seeds),
        "trunk_ratios": _ratios(found),
        "trunk_means": _means(found),
        "trunk_facts": _facts(found),
    }


def _runs(results: "ConditionsResults") -> "Iterator[ConditionsRun]":
    """The runs that are there, at rates that were chosen on other seeds."""
    for job in JOBS:
        for optimiser in RATES:
            config = trunk_setting(results.base, job, optimiser)
            if results.runs.has_chooser(config):
                yield results.runs.with_chooser(config)


def _measures(run: "ConditionsRun") -> list[str]:
    return [measure for measure in (END, UNSEEN) if measure in run.measures]


def _ratio(run: "ConditionsRun", measure: str, start: str) -> Estimate:
    """A start's loss over the default's, each at the rate that suits these seeds best."""
    default = run.config.starts[0]
    return Estimate.median(ratios(*(run.scores(measure, s, run.lowest(s)) for s in (start, default))))


def _ratios(runs: "list[ConditionsRun]") -> str:
    rows = [
        [run.config.job, run.config.optimiser, MEASURES[m], *(_ratio(run, m, s).format(".2f") for s in OTHERS)]
        for run in runs
        for m in _measures(run)
    ]
    return markdown_table(["job", "optimiser", "", *OTHERS], rows)


def _means(runs: "list[ConditionsRun]") -> str:
    """The geometric means of these ratios over jobs."""
    rows = []
    for kind, jobs in KINDS.items():
        for optimiser in RATES:
            of = [r for r in runs if r.config.job in jobs and r.config.optimiser == optimiser]
            values = {s: [_ratio(run, m, s).value for run in of for m in _measures(run)] for s in OTHERS}
            if of:
                rows.append([kind, optimiser, *(mean_cell(values[start]) for start in OTHERS)])
    return markdown_table(["conditions", "optimiser", *OTHERS], rows)


def mean_cell(values: Sequence[float]) -> str:
    """The geometric mean of ratios as a cell of a table.

    >>> mean_cell([0.5, 8.0]), mean_cell([0.5, math.inf])
    ('2', '∞')
    """
    return two_digits(math.prod(values) ** (1 / len(values)))


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
