"""One start's loss over another's, and its means over jobs, which the page's tables and text have."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hyperfan.experiments.conditions import KINDS, RATES
from hyperfan.experiments.conditions.claims import named
from hyperfan.experiments.results.pairs import median_ratio
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.text import two_digits

if TYPE_CHECKING:
    from hyperfan.experiments.conditions.results import ConditionsRun


def loss_ratio(run: "ConditionsRun", measure: str, start: str, other: str) -> Estimate:
    """A start's loss over another's, seed by seed, each at the rate that other seeds chose."""
    both = (named(each, run.config.job) for each in (start, other))
    return median_ratio(*(run.scores(measure, each, run.best(each)) for each in both))


def runs_of_kind(
    runs: "Iterable[ConditionsRun]", kind: str, optimiser: str, measures: Sequence[str]
) -> "list[ConditionsRun]":
    """The runs whose conditions are of a kind, with an optimiser, that have one of the measures."""
    of_kind = (run for run in runs if run.config.job in KINDS[kind] and run.config.optimiser == optimiser)
    return [run for run in of_kind if not {*measures}.isdisjoint(run.measures)]


def mean_ratio(runs: "Sequence[ConditionsRun]", measures: Sequence[str], start: str, other: str) -> float:
    """The geometric mean over jobs and measures of the medians of a start's loss over another's."""
    each = ((run, measure) for run in runs for measure in measures if measure in run.measures)
    return geometric_mean([loss_ratio(run, measure, start, other).value for run, measure in each])


def mean_of_given(runs: "Iterable[ConditionsRun]", measures: Sequence[str], start: str, other: str) -> str:
    """That mean with each optimiser, where conditions are given, in words."""
    of = {optimiser: runs_of_kind(runs, "given", optimiser, measures) for optimiser in RATES}
    means = {o: mean_ratio(found, measures, start, other) for o, found in of.items() if found}
    return " and ".join(f"{two_digits(mean)} with {optimiser}" for optimiser, mean in means.items())


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of ratios, which may be zero or infinite.

    >>> geometric_mean([0.5, 8.0]), geometric_mean([0.5, math.inf])
    (2.0, inf)
    """
    return math.prod(values) ** (1 / len(values))
