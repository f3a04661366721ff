"""Means with intervals."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hyperfan.errors import RunError

# Quantile 0.975 of Student's t, for 1 to 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Estimate:
    """A mean of n values with its 95 % interval by Student's t; one value has none."""

    mean: float
    n: int
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Of independent values.

        >>> Estimate.of([1.0, 2.0, 3.0])
        Estimate(mean=2.0, n=3, low=-0.484..., high=4.484...)
        """
        if not values or not all(map(math.isfinite, values)):
            raise RunError(f"no mean can be taken of {list(values)}: a run is missing, or diverged")
        mean, n = statistics.fmean(values), len(values)
        if n == 1:
            return cls(mean, n, None, None)
        half = _T[min(n - 1, len(_T)) - 1] * statistics.stdev(values) / math.sqrt(n)
        return cls(mean, n, mean - half, mean + half)

    @classmethod
    def ratio(cls, values: Sequence[float]) -> "Estimate":
        """The geometric mean of ratios, with the interval of their logarithms."""
        logs = cls.of([math.log(v) if v > 0 else math.nan for v in values])
        ends = [None if e is None else math.exp(e) for e in (logs.low, logs.high)]
        return cls(math.exp(logs.mean), logs.n, ends[0], ends[1])

    def say(self, form: str = ".3g") -> str:
        """Mean, interval and n.

        >>> Estimate.of([1.0, 2.0, 3.0]).say()
        '2 [−0.484, 4.48], n = 3'
        """
        interval = "" if self.low is None or self.high is None else f" [{self.low:{form}}, {self.high:{form}}]"
        return f"{self.mean:{form}}{interval}, n = {self.n}".replace("-", "−")
