"""Gains: by how much a nonlinearity shrinks a second moment, as values. ``mainnet/gains.py`` integrates them.

A layer that *consumes* f(z) multiplies its variance by the gain: 1/E[f(z)²] forward, 1/E[f′(z)²] backward, z ~ N(0, q).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

HALF_OCTAVES = 16
"""Half octaves from a variance of 1 to either end of the table."""
VARIANCES: tuple[float, ...] = tuple(2.0 ** (k / 2) for k in range(-HALF_OCTAVES, HALF_OCTAVES + 1))
"""Pre-activation variances q at which a :class:`GainCurve` is tabulated: half octaves from 1/256 to 256."""


@dataclass(frozen=True)
class Gains:
    """The factors that undo a nonlinearity's effect on the forward and the backward second moment."""

    forward: float
    backward: float


@dataclass(frozen=True)
class GainCurve:
    """Gains as a function of the pre-activation's variance q, tabulated at each of :data:`VARIANCES`.

    Where the variance is kept at 1 only the middle counts. A method that keeps the *backward* pass lets the forward
    variance drift, and the slope of a saturating f with it.

    >>> halves = GainCurve((0.5,) * len(VARIANCES), (0.5,) * len(VARIANCES))
    >>> halves.at(1.0)
    Gains(forward=0.5, backward=0.5)
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]

    def at(self, variance: float) -> Gains:
        """Interpolate between the tabulated variances, in logarithms; constant beyond them."""
        place = 2 * math.log2(variance) + HALF_OCTAVES if variance > 0 else 0.0
        place = min(max(place, 0.0), len(VARIANCES) - 1.0)
        i = min(int(place), len(VARIANCES) - 2)
        return Gains(_interpolate(self.forward, i, place - i), _interpolate(self.backward, i, place - i))


def attention_mean_square(keys: int) -> float:
    """E[m²] of a mixture m = Σ pᵢ·vᵢ of so many values of mean square 1, as far as it is known without data.

    It is Σ pᵢ² if the values are independent, and 1 if they are alike. With logits of variance 1, pᵢ ∝ exp(zᵢ), and
    E[Σ pᵢ²] ≈ n·E[e²ᶻ] / (n·E[e²ᶻ] + n·(n − 1)·E[eᶻ]²) = e/(e + n − 1). Between these bounds the geometric mean is, at
    worst, off by the smallest factor.

    >>> attention_mean_square(1), round(attention_mean_square(12), 3)
    (1.0, 0.445)
    """
    return math.sqrt(math.e / (math.e + keys - 1))


def _interpolate(values: Sequence[float], i: int, part: float) -> float:
    if part == 0 or not math.isfinite(values[i]) or not math.isfinite(values[i + 1]):
        return values[i]
    return float(values[i] ** (1 - part) * values[i + 1] ** part)
