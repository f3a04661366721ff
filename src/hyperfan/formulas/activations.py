"""Every elementwise activation of ``torch.nn``, on floats, with torch's names and default settings."""

import math
from collections.abc import Callable


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
