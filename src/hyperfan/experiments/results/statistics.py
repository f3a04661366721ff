"""Estimates with 95 % intervals, and a paired test."""

import bisect
import functools
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hyperfan.errors import RunError
from hyperfan.formulas.student import NORMAL_QUANTILE, student_quantile

TAIL = 0.025
"""The chance beyond either end of a 95 % interval."""
MAX_LOG_FACTOR = 700.0
"""The largest logarithm of a factor between odds; beyond it, floats end."""


@dataclass(frozen=True)
class Estimate:
    """An estimate from n values with its 95 % interval, which a single value does not have."""

    value: float
    n: int
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """The mean of independent values, by Student's t.

        >>> Estimate.of([1.0, 2.0, 3.0])
        Estimate(value=2.0, n=3, low=-0.484..., high=4.484...)
        """
        if not values or not all(map(math.isfinite, values)):
            raise RunError(f"no mean can be taken of {list(values)}: a run is missing, or diverged")
        mean, n = statistics.fmean(values), len(values)
        if n == 1:
            return cls(mean, n, None, None)
        half = student_quantile(n - 1) * statistics.stdev(values) / math.sqrt(n)
        return cls(mean, n, mean - half, mean + half)

    @classmethod
    def mean_share(cls, values: Sequence[float]) -> "Estimate":
        """The mean of shares, such as accuracies; its interval is symmetric in log-odds and stays between 0 and 1.

        The mean's standard error, carried over to its log-odds, with Student's t.

        >>> Estimate.mean_share([0.1, 0.1, 0.25])
        Estimate(value=0.15, n=3, low=0.0316..., high=0.488...)
        """
        mean = cls.of(values)
        if not all(0 <= v <= 1 for v in values):
            raise RunError(f"{list(values)} are no shares: they should lie between 0 and 1")
        p = mean.value
        if mean.high is None or not 0 < p < 1:
            return mean
        odds, factor = p / (1 - p), math.exp(min((mean.high - p) / (p * (1 - p)), MAX_LOG_FACTOR))
        return cls(p, mean.n, odds / (odds + factor), odds / (odds + 1 / factor))

    @classmethod
    def ratio(cls, values: Sequence[float]) -> "Estimate":
        """The geometric mean of ratios or other positive values, with the interval of their logarithms."""
        logs = cls.of([math.log(v) if v > 0 else math.nan for v in values])
        ends = [None if e is None else math.exp(e) for e in (logs.low, logs.high)]
        return cls(math.exp(logs.value), logs.n, ends[0], ends[1])

    @classmethod
    def median(cls, values: Sequence[float]) -> "Estimate":
        """The median, by the percentiles of its exact bootstrap distribution.

        Values may be infinite, as the loss of a run that diverged.

        >>> Estimate.median([1.0, 2.0, 3.0, 4.0, math.inf])
        Estimate(value=3.0, n=5, low=1.0, high=inf)
        """
        if not values or any(map(math.isnan, values)):
            raise RunError(f"no median can be taken of {list(values)}: a run is missing")
        middle, n, v = statistics.median(values), len(values), sorted(values)
        if n == 1:
            return cls(middle, n, None, None)
        pairs = _median_ranks(n).items()
        medians = sorted((v[i] if i == j else (v[i] + v[j]) / 2, chance) for (i, j), chance in pairs)
        up_to = list(itertools.accumulate(chance for _, chance in medians))
        return cls(middle, n, *(medians[bisect.bisect_right(up_to, tail)][0] for tail in (TAIL, 1 - TAIL)))

    @classmethod
    def share(cls, count: int, n: int) -> "Estimate":
        """A share of n, by Wilson's interval.

        >>> Estimate.share(15, 15)
        Estimate(value=1.0, n=15, low=0.796..., high=1.0)
        """
        z, p = NORMAL_QUANTILE, count / n
        middle, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        low, high = ((middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n))
        return cls(p, n, max(low, 0.0), min(high, 1.0))

    def format(self, form: str = ".3g") -> str:
        """Value and interval.

        >>> Estimate.of([1.0, 2.0, 3.0]).format()
        '2 [−0.484, 4.48]'
        """
        ends = [end for end in (self.low, self.high) if end is not None]
        interval = f" [{', '.join(f'{end:{form}}' for end in ends)}]" if ends else ""
        return f"{self.value:{form}}{interval}".replace("-", "−")

    def within(self, low: float = -math.inf, high: float = math.inf) -> bool | None:
        """Whether the value lies between two bounds; ``None`` where the interval does not decide it."""
        if self.low is None or self.high is None:
            return None
        if low < self.low and self.high < high:
            return True
        return False if self.high < low or high < self.low else None

    def is_below(self, bound: float, refuted_above: float) -> bool | None:
        """Whether the value is certainly below a bound; it is not if it is certainly above another."""
        if self.low is None or self.high is None:
            return None
        return True if self.high < bound else False if self.low > refuted_above else None

    def is_above(self, bound: float, refuted_below: float) -> bool | None:
        """Whether the value is certainly above a bound; it is not if it is certainly below another."""
        if self.low is None or self.high is None:
            return None
        return True if self.low > bound else False if self.high < refuted_below else None


@functools.cache
def _median_ranks(n: int) -> Mapping[tuple[int, int], float]:
    """The chance of each pair of ranks, often equal, to be those whose mean is the median of a resample of n values.

    The k-th smallest of n draws is among the first i values if at least k draws are: a tail of a binomial
    distribution. With n even, the middle two are apart, at i and j, if one half of the draws has its largest at i and
    the other its smallest at j.
    """
    k, half = (n + 1) // 2, n // 2
    log_ways = [math.lgamma(n + 1) - math.lgamma(d + 1) - math.lgamma(n - d + 1) for d in range(n + 1)]
    among = [_binomial_tail(log_ways, i / n, k) for i in range(n + 1)]
    chances = {(i, i): among[i + 1] - among[i] for i in range(n)}
    if n % 2 == 0:
        largest = [((i + 1) / n) ** half - (i / n) ** half for i in range(n)]
        for i, j in itertools.combinations(range(n), 2):
            apart = largest[i] * largest[n - 1 - j]
            chances[i, j] = math.exp(log_ways[half] + math.log(apart)) if apart else 0.0
            chances[i, i] -= chances[i, j]
    return chances


def _binomial_tail(log_ways: Sequence[float], p: float, k: int) -> float:
    """The chance that at least k of n draws are hits, each with probability p; binomials are given as logarithms."""
    n = len(log_ways) - 1
    if p in (0, 1):
        return float(p)
    logs = (log_ways[d] + d * math.log(p) + (n - d) * math.log1p(-p) for d in range(k, n + 1))
    return min(1.0, math.fsum(map(math.exp, logs)))


def ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """One list over the other, pair by pair; equal values have ratio 1, also two that are infinite or zero.

    >>> ratios([1.0, 2.0, math.inf, math.inf, 0.0], [4.0, math.inf, 2.0, math.inf, 0.0])
    [0.25, 0.0, inf, 1.0, 1.0]
    """
    return [1.0 if x == y else math.inf if y == 0 else x / y for x, y in zip(a, b, strict=True)]


def signed_rank(a: Sequence[float], b: Sequence[float]) -> float:
    """The exact two-sided p of Wilcoxon's signed-rank test on the logarithms of a pair's ratios; ties are left out.

    >>> signed_rank([1, 2, 3, 4, 5], [2, 3, 4, 5, 6])
    0.0625
    """
    logs = [-math.inf if r == 0 else math.log(r) for r in ratios(a, b)]
    logs = [x for x in logs if x != 0]
    if not logs:
        return 1.0
    sizes = sorted(map(abs, logs))
    # Doubled, so that the mean rank of equal sizes is an integer.
    rank = {size: 2 * sizes.index(size) + 1 + sizes.count(size) for size in sizes}
    ranks = [rank[abs(x)] for x in logs]
    seen = sum(r for r, x in zip(ranks, logs, strict=True) if x > 0)
    tail = min(seen, sum(ranks) - seen)
    chances = np.zeros(tail + 1)  # of the sums of the positive ranks, up to the one seen
    chances[0] = 1.0
    for r in ranks:
        chances = (chances + np.pad(chances, (min(r, tail + 1), 0))[: tail + 1]) / 2
    return float(min(1.0, 2 * chances.sum()))


def growth(values: Sequence[float]) -> float:
    """The factor by which a scale grows from one hidden layer to the next, by least squares on logarithms."""
    slope, _ = statistics.linear_regression(range(len(values)), [math.log(v) for v in values])
    return math.exp(slope)
