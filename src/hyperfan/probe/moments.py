"""Moments and histograms of numbers that come in pieces, and mean squares with their sampling intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hyperfan.formulas.student import student_quantile

HISTOGRAM_BINS = 81
UNITS_PER_STD = 20
"""The bins of a histogram turn from equal width to equal ratio at this fraction of a standard deviation."""
REACH_99_TO_95 = 4.604 / 2.776
"""Reach of the interval that holds 99 % of nets, as seen from five, over that of 95 %, by Student's t. A finding is
about the worst of many layers, and 95 % of one would raise a false alarm in every twentieth net that scatters a lot.
"""


def mean_square(values: Tensor) -> float:
    """The mean square, in double precision and without a copy in it."""
    return sum_of_squares(values) / values.numel()


def sum_of_squares(values: Tensor | None) -> float:
    """The sum of squares, in double precision and without a copy in it; 0 for ``None``."""
    if values is None:
        return 0.0
    return float(torch.linalg.vector_norm(values.detach(), dtype=torch.float64).item() ** 2)


def sum_of_magnitudes(values: Tensor | None) -> float:
    """The sum of absolute values, in double precision and without a copy in it; 0 for ``None``."""
    if values is None:
        return 0.0
    return float(torch.linalg.vector_norm(values.detach(), 1, dtype=torch.float64).item())


@dataclass(frozen=True)
class Moments:
    """Count, mean, spread and range of numbers, in double precision.

    Those of two pieces add up to those of all numbers (Chan, Golub & LeVeque 1979), so the numbers need not be kept.

    >>> a, b = Moments.of(torch.tensor([1.0, 2.0])), Moments.of(torch.tensor([6.0]))
    >>> (a + b).mean, (a + b).std == Moments.of(torch.tensor([1.0, 2.0, 6.0])).std
    (3.0, True)
    """

    count: int
    mean: float
    squares: float
    """Sum of squared distances from the mean."""
    low: float
    high: float

    @classmethod
    def of(cls, values: Tensor) -> "Moments":
        """Measure one piece of the numbers."""
        flat = values.detach().reshape(-1).double()
        mean = flat.mean()
        low, high = torch.aminmax(flat)
        return cls(flat.numel(), mean.item(), (flat - mean).square().sum().item(), low.item(), high.item())

    def __add__(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        distance = other.mean - self.mean
        mean = self.mean + distance * other.count / count
        squares = self.squares + other.squares + distance * distance * self.count * other.count / count
        return Moments(count, mean, squares, min(self.low, other.low), max(self.high, other.high))

    @property
    def std(self) -> float:
        """The standard deviation, with all numbers as the population, so a single one has 0."""
        return math.sqrt(self.squares / self.count)


@dataclass(frozen=True)
class Histogram:
    """Counts of how many numbers fall into each bin.

    The bins are of equal width in asinh((x − centre) / unit): fine around the centre, wide far from it, and symmetric.
    So a scale is seen whatever the largest value is.

    Args:
        centre: the middle of the bins.
        unit: the distance at which bins turn from equal width to equal ratio.
        reach: the distance of the outer edges.
        counts: from the lowest bin to the highest; none if there was nothing to count.
    """

    centre: float
    unit: float
    reach: float
    counts: tuple[int, ...]

    @classmethod
    def around(cls, values: Tensor, known: Moments) -> "Histogram":
        """Count one piece of the numbers that have these moments; no counts if all are the same, or overflowed."""
        reach = max(known.high - known.mean, known.mean - known.low)
        unit = known.std / UNITS_PER_STD if math.isfinite(known.squares) else math.inf
        if not (0 < unit < math.inf and 0 < reach < math.inf):
            return cls(known.mean, 0.0, 0.0, ())
        return cls.of(values, known.mean, unit, reach, HISTOGRAM_BINS)

    @classmethod
    def of(cls, values: Tensor, centre: float, unit: float, reach: float, bins: int) -> "Histogram":
        """Count one piece. NaN, and numbers beyond the reach, are in no bin."""
        end = math.asinh(reach / unit)
        distances = values.detach().reshape(-1).double() - centre
        places = torch.asinh(distances[distances.abs() <= reach] / unit).clamp(-end, end)
        counts = torch.histc(places, bins, -end, end).long()
        return cls(centre, unit, reach, tuple(counts.tolist()))

    def __add__(self, other: "Histogram") -> "Histogram":
        bins = self.centre, self.unit, self.reach
        assert bins == (other.centre, other.unit, other.reach)
        return Histogram(*bins, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))


@dataclass(frozen=True)
class Scale:
    """A mean square with its 95 % sampling interval."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, reach: float) -> "Scale":
        """A value with the ends of its interval at a reach in logarithms, where they stay positive."""
        return cls(value, value, value).widened(reach)

    def widened(self, reach: float) -> "Scale":
        """The value with the ends of its interval further away, by a reach in logarithms."""
        return Scale(self.value, self.low * math.exp(-reach), self.high * math.exp(min(reach, 700)))  # exp overflows


def measured_scale(values: Tensor, units: int) -> Scale:
    """Mean square of a layer's values over inputs (dimension 0) and units, with a 95 % interval.

    Units and inputs are both drawn at random, so the variance of the mean has a part from each. The interval is taken
    on a logarithmic scale, where it cannot reach below zero.
    """
    squares = values.detach().double().square()
    mean = squares.mean().item()
    if not 0 < mean < math.inf:
        return Scale(mean, mean, mean)
    parts = [squares.movedim(d, 0).flatten(1).mean(1) for d in {0, units % squares.ndim}] if squares.ndim > 1 else []
    parts = [p for p in parts or [squares.flatten()] if len(p) > 1]
    if not parts:
        return Scale(mean, 0.0, math.inf)
    error = math.sqrt(sum(p.var().item() / len(p) for p in parts)) / mean
    reach = student_quantile(min(len(p) for p in parts) - 1) * error
    return Scale.around(mean, reach)


def predicted_scale(draws: Sequence[float]) -> Scale:
    """Geometric mean over several nets, and the interval in which one more would lie in 95 % of cases."""
    if not all(0 < d < math.inf for d in draws):
        middle = sorted(draws)[len(draws) // 2]
        return Scale(middle, min(draws), max(draws))
    logs, n = torch.tensor(draws, dtype=torch.float64).log(), len(draws)
    middle = math.exp(logs.mean().item())
    reach = student_quantile(n - 1) * logs.std().item() * math.sqrt(1 + 1 / n) if n > 1 else 0.0
    return Scale.around(middle, reach)
