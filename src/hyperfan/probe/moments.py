"""Mean and standard deviation of numbers that come in pieces, and how often each value occurs."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


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
    """How many numbers fall into each of some bins of equal width between two edges, and how many outside them."""

    low: float
    high: float
    counts: tuple[int, ...]
    below: int = 0
    above: int = 0

    @classmethod
    def of(cls, values: Tensor, low: float, high: float, bins: int) -> "Histogram":
        """Of one piece. What is not a number is counted nowhere."""
        flat = values.detach().reshape(-1).double()
        inside = flat[(flat >= low) & (flat <= high)]
        counts = torch.histc(inside, bins, low, high).long()
        return cls(low, high, tuple(counts.tolist()), int((flat < low).sum()), int((flat > high).sum()))

    def __add__(self, other: "Histogram") -> "Histogram":
        assert (self.low, self.high, len(self.counts)) == (other.low, other.high, len(other.counts))
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(self.low, self.high, counts, self.below + other.below, self.above + other.above)
