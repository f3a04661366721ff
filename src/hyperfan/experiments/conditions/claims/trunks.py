"""What other codes and trunks change in the default start: each variant beside it, and beside nn.Linear's start."""

import itertools
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
from hyperfan.experiments.conditions.claims import LOSSES, MEASURES, OURS, compare_starts
from hyperfan.experiments.conditions.claims.ratios import loss_ratio, mean_of_given, mean_ratio, runs_of_kind
from hyperfan.experiments.results.claims import Claim
from hyperfan.experiments.results.pairs import is_no_larger
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
        **{field: mean_of_given(found, LOSSES, start, OURS) for field, start in MEANS_IN_TEXT.items()},
    }


def _measures(run: "ConditionsRun") -> list[str]:
    return [measure for measure in LOSSES if measure in run.measures]


def _ratios(runs: "list[ConditionsRun]") -> str:
    rows = []
    for run in runs:
        for measure in _measures(run):
            ratios = (loss_ratio(run, measure, start, OURS).format(".2f") for start in OTHERS)
            rows.append([run.config.job, run.config.optimiser, MEASURES[measure], *ratios])
    return markdown_table(["job", "optimiser", "", *OTHERS], rows)


def _means(runs: "list[ConditionsRun]") -> str:
    """A table of the geometric means over jobs of each start's loss over the default's."""
    rows = []
    for kind, optimiser in itertools.product(KINDS, RATES):
        if of := runs_of_kind(runs, kind, optimiser, LOSSES):
            rows.append([kind, optimiser, *(two_digits(mean_ratio(of, LOSSES, start, OURS)) for start in OTHERS)])
    return markdown_table(["conditions", "optimiser", *OTHERS], rows)


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
