"""From counts in bins to a line: how densely values lie, on the axis they were counted on."""

import itertools
import math
from collections.abc import Sequence

ENOUGH = 1 / 60
"""A share of all values that is worth a bin of its own, however narrow."""
NARROW = 1 / 4
"""Of a standard deviation: bins as wide as that are not widened, however empty."""


def density(centre: float, unit: float, reach: float, counts: Sequence[int]) -> list[tuple[float, float]]:
    """Values and how densely they lie there, the densest at 1; nothing if there is nothing to draw."""
    if not any(counts) or not (0 < unit < math.inf and 0 < reach < math.inf and math.isfinite(centre)):
        return []
    merged = wide_enough(counts)
    bins = _smooth(edges(centre, unit, reach, len(merged)), merged)
    dense = [(low, high, count / (high - low)) for low, high, count in bins if high > low]
    top = max((d for _, _, d in dense), default=0.0)
    if not 0 < top < math.inf:
        return []
    return [(bins[0][0], 0.0), *((low / 2 + high / 2, d / top) for low, high, d in dense), (bins[-1][1], 0.0)]


def edges(centre: float, unit: float, reach: float, bins: int) -> list[float]:
    """Of the bins of :class:`hyperfan.probe.Histogram`, of equal width in asinh((x − centre) / unit)."""
    end = math.asinh(reach / unit)
    return [centre + unit * math.sinh(end * (2 * i / bins - 1)) for i in range(bins + 1)]


def wide_enough(counts: Sequence[int]) -> list[int]:
    """Fewer and wider bins where there are few values: about as many as the square root of their number."""
    merged = list(counts)
    while len(merged) % 3 == 0 and len(merged) > max(math.isqrt(sum(counts)), 9):  # by three, to keep a middle one
        merged = [sum(merged[i : i + 3]) for i in range(0, len(merged), 3)]
    return merged


def turning_point(scales: Sequence[float | None]) -> float:
    """Where a common axis turns from linear to logarithmic: at the smallest scale, but none that is as good as zero."""
    found = [s for s in scales if s and math.isfinite(s)]
    return max(min(found), max(found) * 1e-9) if found else 1.0


def _smooth(ends: Sequence[float], counts: Sequence[int]) -> list[tuple[float, float, int]]:
    """Low end, high end and count; bins that are narrow and nearly empty are put together, as they show only noise."""
    total = sum(counts)
    spread = math.hypot(*(math.sqrt(c / total) * (a / 2 + b / 2) for c, (a, b) in _bins(counts, ends)))
    bins: list[tuple[float, float, int]] = []
    for count, (low, high) in _bins(counts, ends):
        if bins and bins[-1][2] < ENOUGH * total and high - bins[-1][0] < NARROW * spread:
            bins[-1] = (bins[-1][0], high, bins[-1][2] + count)
        else:
            bins.append((low, high, count))
    return bins


def _bins(counts: Sequence[int], ends: Sequence[float]) -> list[tuple[int, tuple[float, float]]]:
    return list(zip(counts, itertools.pairwise(ends), strict=True))
