"""From counts in bins to a line: the share of values by place on an axis."""

import itertools
import math
from collections.abc import Sequence

from hyperfan.charts.axis import Axis

MIN_SHARE = 1 / 60
"""A bin with this share of all values is kept, however narrow."""
MIN_WIDTH = 1 / 40
"""A bin this wide, as part of the axis, is kept, however empty."""


def density(axis: Axis, centre: float, unit: float, reach: float, counts: Sequence[int]) -> list[tuple[float, float]]:
    """Values, and the density of the histogram on this axis there, 1 at the highest; empty if there is none to draw.

    Density is counted by length on the axis as drawn, so that the filled area is the share of values. On an axis that
    is logarithmic far from zero, a distribution that is wide looks wide, with most of its area far from zero.
    """
    if not any(counts) or not (0 < unit < math.inf and 0 < reach < math.inf and math.isfinite(centre)):
        return []
    merged = wide_enough(counts)
    ends = edges(centre, unit, reach, len(merged))
    places = [axis.at(end, clip=True) or 0.0 for end in ends]
    bins = [(i, j, count) for i, j, count in _smooth(places, merged) if places[j] > places[i]]
    dense = [((ends[i] + ends[j]) / 2, count / (places[j] - places[i])) for i, j, count in bins]
    top = max((d for _, d in dense), default=0.0)
    if not 0 < top < math.inf:
        return []
    return [(ends[bins[0][0]], 0.0), *((x, d / top) for x, d in dense), (ends[bins[-1][1]], 0.0)]


def edges(centre: float, unit: float, reach: float, bins: int) -> list[float]:
    """Edges of the bins of :class:`hyperfan.probe.Histogram`, of equal width in asinh((x − centre) / unit)."""
    end = math.asinh(reach / unit)
    return [centre + unit * math.sinh(end * (2 * i / bins - 1)) for i in range(bins + 1)]


def wide_enough(counts: Sequence[int]) -> list[int]:
    """Fewer and wider bins where there are few values: about as many as the square root of their number."""
    merged = list(counts)
    while len(merged) % 3 == 0 and len(merged) > max(math.isqrt(sum(counts)), 9):  # by three, to keep a middle one
        merged = [sum(merged[i : i + 3]) for i in range(0, len(merged), 3)]
    return merged


def _smooth(places: Sequence[float], counts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Low edge, high edge and count; narrow and nearly empty neighbours are merged, as they show only noise."""
    total = sum(counts)
    bins: list[tuple[int, int, int]] = []
    for count, (low, high) in zip(counts, itertools.pairwise(range(len(places))), strict=True):
        if bins and bins[-1][2] < MIN_SHARE * total and places[high] - places[bins[-1][0]] < MIN_WIDTH:
            bins[-1] = (bins[-1][0], high, bins[-1][2] + count)
        else:
            bins.append((low, high, count))
    return bins
