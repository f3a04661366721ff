"""By how much a nonlinearity shrinks the second moment: gain 1/E[f(z)²] forward, 1/E[f′(z)²] backward, z ~ N(0, 1).

A layer that *consumes* f(z) multiplies its variance by the gain. Integrated on a dense grid: Gauss–Hermite
quadrature is 7–12 % off at kinks.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hyperfan.errors import InitError, nearest
from hyperfan.formulas.activations import ACTIVATIONS

_STEP = 1 / 2000
GRID: tuple[float, ...] = tuple(i * _STEP for i in range(-20000, 20001))
"""Where a nonlinearity is sampled: ±10 standard deviations. Zero, where most kinks are, lies on it."""


@dataclass(frozen=True)
class Gains:
    """The factors that undo a nonlinearity's effect on the forward and the backward second moment.

    >>> gains("relu")
    Gains(forward=2.0, backward=2.0)
    """

    forward: float
    backward: float


VARIANCES: tuple[float, ...] = tuple(2.0 ** (k / 2) for k in range(-16, 17))
"""Pre-activation variances at which a :class:`Curve` is tabulated: half octaves from 1/256 to 256."""


@dataclass(frozen=True)
class Curve:
    """Gains as a function of the pre-activation's variance: 1/E[f(√q·z)²] and 1/E[f′(√q·z)²] at each of VARIANCES.

    Where the variance is kept at 1 only the middle counts. A method that keeps the *backward* pass lets the forward
    variance drift, and the slope of a saturating f with it.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]

    def at(self, variance: float) -> Gains:
        """Interpolated between the tabulated variances, in logarithms; constant beyond them."""
        place = 2 * math.log2(variance) + 16 if variance > 0 else 0.0
        place = min(max(place, 0.0), len(VARIANCES) - 1.0)
        i = min(int(place), len(VARIANCES) - 2)
        return Gains(_between(self.forward, i, place - i), _between(self.backward, i, place - i))


def _between(values: Sequence[float], i: int, part: float) -> float:
    if part == 0 or not math.isfinite(values[i]) or not math.isfinite(values[i + 1]):
        return values[i]
    return float(values[i] ** (1 - part) * values[i + 1] ** part)


def gains_from_samples(values: Sequence[float]) -> Gains:
    """Gains of a function given by its values at :data:`GRID`."""
    if len(values) != len(GRID):
        raise InitError(f"{len(values)} samples given; the gain is integrated over the {len(GRID)} points of GRID")
    forward = math.fsum(v * v * w for v, w in zip(values, _density(), strict=True))
    middles = ((a + b) / 2 for a, b in itertools.pairwise(_density()))
    backward = math.fsum(s * s * w for s, w in zip(_slopes(values), middles, strict=True))
    if not (0 < forward < math.inf) or not math.isfinite(backward):
        raise InitError("this nonlinearity has no gain: E[f(z)²] is not a positive number for z ~ N(0, 1)")
    return Gains(_tidy(1 / forward), _tidy(1 / backward) if backward else math.inf)


def gains(nonlinearity: str | Callable[[float], float], **settings: float | str) -> Gains:
    """Gains of an activation by torch's name (with its settings), or of any function of a float.

    >>> round(gains("tanh").forward, 3), round(gains("leaky_relu", negative_slope=0.2).forward, 3)
    (2.536, 1.923)
    >>> gains(lambda z: 3 * z)
    Gains(forward=0.1111111111111, backward=0.1111111111111)
    """
    if callable(nonlinearity):
        return gains_from_samples([nonlinearity(z) for z in GRID])
    return _named(nonlinearity, tuple(sorted(settings.items())))


@functools.cache
def _named(name: str, settings: tuple[tuple[str, float | str], ...]) -> Gains:
    if name == "glu":  # a·σ(b): E = E[σ²]; backward the mean over the inputs a and b
        half = _named("sigmoid", ())
        return Gains(half.forward, 2 / (1 / half.forward + 1 / half.backward))
    if name not in ACTIVATIONS:
        raise InitError(f"unknown nonlinearity '{name}': {nearest(name, [*ACTIVATIONS, 'glu'])}")
    f = functools.partial(ACTIVATIONS[name], **dict(settings))
    return gains_from_samples([f(z) for z in GRID])


@functools.cache
def _density() -> tuple[float, ...]:
    weights = [math.exp(-z * z / 2) for z in GRID]
    total = math.fsum(weights)
    return tuple(w / total for w in weights)


def _slopes(values: Sequence[float]) -> list[float]:
    """Difference quotients, with the jumps of a discontinuous function taken out as autograd does."""
    slopes = [(b - a) / _STEP for a, b in itertools.pairwise(values)]
    for i in range(1, len(slopes) - 1):
        beside = max(abs(slopes[i - 1]), abs(slopes[i + 1]))
        if abs(slopes[i]) > 20 * beside + 20:
            slopes[i] = (slopes[i - 1] + slopes[i + 1]) / 2
    return slopes


def _tidy(gain: float) -> float:
    return round(gain, 13)  # the grid's own rounding: ReLU's gain is 2, not 2.0000000000000004
