"""Settings compared seed by seed, since runs of one seed share data and draws: is one smaller than the other?"""

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from hyperfan.experiments.results.claims import Claim, Fact
from hyperfan.experiments.results.statistics import Estimate, ratios, signed_rank

LOSS_MARGIN = 1.1
"""A factor between two losses that nobody would mind."""
SIGNIFICANT_P = 0.05
"""The bound on p of a paired test."""
MIN_PAIRS = 6
"""Below so many pairs no p can be under that bound."""


class ChosenBy(StrEnum):
    """Which seeds choose the rates at which settings are compared; its text ends the label of a measurement."""

    OTHERS = ""
    COMPARED = "; rates by the seeds compared"


def agreed(facts: Iterable[Fact]) -> Fact:
    """The fact at the rates of either choice, from one fact for each :class:`ChosenBy`, if both are the same.

    Where two rates are about as good, chance decides which of them a few seeds choose. So what is so at the one and not
    at the other is not decided. By one choice alone it would be so, by ``all_of`` refuted, and with other seeds it may
    come out the other way.

    >>> [agreed(facts) for facts in ((True, True), (False, False), (True, False), (None, False))]
    [True, False, None, None]
    """
    found = set(facts)
    return found.pop() if len(found) == 1 else None


def compare_at_best_rates(
    label: str, rates: Sequence[Callable[[ChosenBy], float]], compare: Callable[..., Fact]
) -> Fact:
    """Compare settings at their best rates by either choice; decided is what comes out alike at both.

    Args:
        label: of a measurement, with a field for the rate of each setting.
        rates: the best rate of each setting by a choice.
        compare: decides the fact from the label, to which the choice is added, and the rates.
    """

    def at(by: ChosenBy) -> Fact:
        chosen = [rate(by) for rate in rates]
        return compare(f"{label.format(*chosen)}{by}", *chosen)

    return agreed(map(at, ChosenBy))


def opposite(fact: Fact) -> Fact:
    """Whether something is not so."""
    return None if fact is None else not fact


def median_ratio(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """The median of the ratios, seed by seed, without pairs of which both diverged; 1 of none if no pair is left.

    >>> median_ratio([1.0, 2.0, math.inf], [2.0, 4.0, math.inf])
    Estimate(value=0.5, n=2, low=0.5, high=0.5)
    """
    kept = [r for x, y in zip(a, b, strict=True) if min(x, y) != math.inf for r in ratios([x], [y])]
    return Estimate.median(kept) if kept else Estimate(1.0, 0, None, None)


def measure_ratio(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> tuple[Estimate, float]:
    """Record the median of the ratios; returns it with the p of the paired test."""
    found, p = median_ratio(a, b), signed_rank(a, b)
    left_out = f"; {len(a) - found.n} pairs of which both diverged left out" if found.n < len(a) else ""
    return c.measure(label, found, note=f", p = {p:.2g}{left_out}"), p


def is_smaller(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is smaller, seed by seed. It is not if it is certainly larger."""
    _, smaller = _compare(c, label, a, b)
    return smaller


def is_no_larger(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is as small as b, seed by seed, but for a little at most. It is not if it is certainly larger."""
    ratio, smaller = _compare(c, label, a, b)
    if smaller is False:
        return False
    return True if _is_enough(ratio) and ratio.is_below(LOSS_MARGIN, refuted_above=1) else None


def is_no_smaller(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is as large as b, seed by seed, but for a little at most. It is not if it is certainly smaller."""
    ratio, smaller = _compare(c, label, a, b)
    if smaller:
        return False
    return True if _is_enough(ratio) and ratio.is_above(1 / LOSS_MARGIN, refuted_below=1) else None


def _compare(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> tuple[Estimate, Fact]:
    """Record the median of the ratios; returns it with whether a is smaller, where it certainly is or is larger."""
    ratio, p = measure_ratio(c, label, a, b)
    return ratio, ratio.within(high=1) if _is_enough(ratio) and p < SIGNIFICANT_P else None


def _is_enough(ratio: Estimate) -> bool:
    return ratio.n >= MIN_PAIRS
