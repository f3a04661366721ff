"""Gains, the slow and obvious way: every elementwise activation of ``torch.nn`` on floats, summed over a fine grid."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence

from hyperfan.formulas import Gains

STEP = 1 / 2000
GRID = [i * STEP for i in range(-20000, 20001)]
"""±10 standard deviations. Zero, where most kinks are, lies on it."""


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def _softplus(z: float, beta: float = 1.0, threshold: float = 20.0) -> float:
    return z if z * beta > threshold else math.log1p(math.exp(z * beta)) / beta


def _gelu(z: float, approximate: str = "none") -> float:
    if approximate == "tanh":
        return 0.5 * z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return 0.5 * z * (1 + math.erf(z / math.sqrt(2)))


def _leaky_relu(z: float, negative_slope: float = 0.01) -> float:
    return z if z > 0 else negative_slope * z


def _prelu(z: float, init: float = 0.25) -> float:
    return _leaky_relu(z, init)


def _rrelu(z: float, lower: float = 1 / 8, upper: float = 1 / 3) -> float:
    # The slope is drawn from U(lower, upper); only its mean square enters a second moment.
    return _leaky_relu(z, math.sqrt((lower**2 + lower * upper + upper**2) / 3))


def _elu(z: float, alpha: float = 1.0) -> float:
    return z if z > 0 else alpha * math.expm1(z)


def _celu(z: float, alpha: float = 1.0) -> float:
    return z if z > 0 else alpha * math.expm1(z / alpha)


def _selu(z: float) -> float:
    return 1.0507009873554805 * _elu(z, 1.6732632423543772)


def _hardtanh(z: float, min_val: float = -1.0, max_val: float = 1.0) -> float:
    return min(max(z, min_val), max_val)


def _hardsigmoid(z: float) -> float:
    return _hardtanh(z + 3, 0, 6) / 6


def _threshold(z: float, threshold: float = 0.0, value: float = 0.0) -> float:
    return z if z > threshold else value


def _hardshrink(z: float, lambd: float = 0.5) -> float:
    return z if abs(z) > lambd else 0.0


def _softshrink(z: float, lambd: float = 0.5) -> float:
    return math.copysign(max(abs(z) - lambd, 0.0), z)


ACTIVATIONS: dict[str, Callable[..., float]] = {
    "linear": lambda z: z,
    "relu": lambda z: max(z, 0.0),
    "relu6": lambda z: _hardtanh(z, 0, 6),
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "elu": _elu,
    "celu": _celu,
    "selu": _selu,
    "gelu": _gelu,
    "silu": lambda z: z * _sigmoid(z),
    "mish": lambda z: z * math.tanh(_softplus(z)),
    "softplus": _softplus,
    "tanh": math.tanh,
    "sigmoid": _sigmoid,
    "logsigmoid": lambda z: -_softplus(-z),
    "softsign": lambda z: z / (1 + abs(z)),
    "tanhshrink": lambda z: z - math.tanh(z),
    "hardtanh": _hardtanh,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda z: z * _hardsigmoid(z),
    "hardshrink": _hardshrink,
    "softshrink": _softshrink,
    "threshold": _threshold,
    "sin": math.sin,
    "cos": math.cos,
}


def gains(nonlinearity: str | Callable[[float], float], **settings: float | str) -> Gains:
    """1/E[f(z)²] and 1/E[f′(z)²] of an activation by torch's name (with its settings), or of any function of floats."""
    if callable(nonlinearity):
        return _integrated(nonlinearity)
    return _named(nonlinearity, tuple(sorted(settings.items())))


@functools.cache
def _named(name: str, settings: tuple[tuple[str, float | str], ...]) -> Gains:
    if name == "glu":  # a·σ(b): E = E[σ²]; backward the mean over the inputs a and b
        half = _named("sigmoid", ())
        return Gains(half.forward, 2 / (1 / half.forward + 1 / half.backward))
    return _integrated(functools.partial(ACTIVATIONS[name], **dict(settings)))


def _integrated(f: Callable[[float], float]) -> Gains:
    values = [f(z) for z in GRID]
    forward = math.fsum(v * v * w for v, w in zip(values, _density(), strict=True))
    middles = ((a + b) / 2 for a, b in itertools.pairwise(_density()))
    backward = math.fsum(s * s * w for s, w in zip(_slopes(values), middles, strict=True))
    return Gains(1 / forward, 1 / backward if backward else math.inf)


@functools.cache
def _density() -> tuple[float, ...]:
    weights = [math.exp(-z * z / 2) for z in GRID]
    total = math.fsum(weights)
    return tuple(w / total for w in weights)


def _slopes(values: Sequence[float]) -> list[float]:
    """Difference quotients, with the jumps of a discontinuous function taken out as autograd does."""
    slopes = [(b - a) / STEP for a, b in itertools.pairwise(values)]
    for i in range(1, len(slopes) - 1):
        beside = max(abs(slopes[i - 1]), abs(slopes[i + 1]))
        if abs(slopes[i]) > 20 * beside + 20:
            slopes[i] = (slopes[i - 1] + slopes[i + 1]) / 2
    return slopes
