"""Mean and standard deviation of numbers that come in pieces, and how often each value occurs."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 81
FINE = 20
"""The bins of a histogram turn from equal width to equal ratio at this fraction of a standard deviation."""


@dataclass(frozen=True)
class Moments:
    """Of the numbers seen so far, in double precision.

    Two of them add up to the moments of all numbers (Chan, Golub & LeVeque 1979), so nothing needs to be kept.

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
        """Of one piece."""
        flat = values.detach().reshape(-1).double()
        mean = flat.mean()
        low, high = torch.aminmax(flat)
        return cls(flat.numel(), mean.item(), (flat - mean).square().sum().item(), low.item(), high.item())

    def __add__(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * other.count / count
        squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        return Moments(count, mean, squares, min(self.low, other.low), max(self.high, other.high))

    @property
    def std(self) -> float:
        """With all numbers as the population, so a single one has 0."""
        return math.sqrt(self.squares / self.count)


@dataclass(frozen=True)
class Histogram:
    """How many numbers fall into each of some bins.

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
        """Of one piece of the numbers that have these moments; with no counts if all are the same, or overflowed."""
        reach = max(known.high - known.mean, known.mean - known.low)
        unit = known.std / FINE if math.isfinite(known.squares) else math.inf
        if not (0 < unit < math.inf and 0 < reach < math.inf):
            return cls(known.mean, 0.0, 0.0, ())
        return cls.of(values, known.mean, unit, reach, BINS)

    @classmethod
    def of(cls, values: Tensor, centre: float, unit: float, reach: float, bins: int) -> "Histogram":
        """Of one piece. What is not a number, or beyond the reach, is counted nowhere."""
        end = math.asinh(reach / unit)
        away = values.detach().reshape(-1).double() - centre
        places = torch.asinh(away[away.abs() <= reach] / unit).clamp(-end, end)
        counts = torch.histc(places, bins, -end, end).long()
        return cls(centre, unit, reach, tuple(counts.tolist()))

    def __add__(self, other: "Histogram") -> "Histogram":
        mine, theirs = (self.centre, self.unit, self.reach), (other.centre, other.unit, other.reach)
        assert mine == theirs
        return Histogram(*mine, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))
