"""Gains of a nonlinearity, integrated over normal pre-activations of a range of variances.

A function is applied to a grid of points that requires a gradient, so its slope is what autograd sees: a jump has
none, a straight-through estimator has the one it pretends to have. The grid is dense, because Gauss–Hermite quadrature
is 7–12 % off at kinks.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.errors import InitError, nearest
from hyperfan.formulas.gains import VARIANCES, GainCurve, Gains
from hyperfan.mainnet.operations import ACTIVATIONS

_POINTS_PER_STD = 50
_REACH_IN_STDS = 8


@functools.cache
def grid() -> Tensor:
    """The points where functions are sampled: z within ±8 standard deviations, times √q for each tabulated variance q.

    Midpoints, so that kinks at round numbers, where autograd's slope is one-sided, lie between them.

    Small enough that torch does not spread the work over threads, which would cost more than the work.
    """
    with torch.inference_mode(False):
        half = _REACH_IN_STDS * _POINTS_PER_STD
        z = (torch.arange(-half, half, dtype=torch.float64, device="cpu") + 0.5) / _POINTS_PER_STD
        points = torch.tensor(VARIANCES, dtype=torch.float64, device="cpu").sqrt().unsqueeze(1) * z
        return points.requires_grad_()


@functools.cache
def _density() -> Tensor:
    z = grid()[VARIANCES.index(1.0)].detach()
    weights = torch.exp(-z.square() / 2)
    return weights / weights.sum()


def second_moments(samples: Tensor) -> Tensor | None:
    """Integrate E[f(√q·z)²] and E[f′(√q·z)²] for each tabulated q, as (2, q); ``None`` without a finite gain.

    ``samples`` are the values of f at :func:`grid`.
    """
    values = samples.detach().double()
    if not torch.isfinite(values).all() or not values.any():
        return None
    slopes: Tensor | None = None
    if samples.requires_grad:
        # Of the sum: for gradients of several values torch imports sympy, which takes longer than all of hyperfan.
        with torch.inference_mode(False), torch.enable_grad():
            total = samples.sum()
        (slopes,) = torch.autograd.grad(total, grid(), retain_graph=True, allow_unused=True)
    slopes = torch.zeros_like(values) if slopes is None else slopes
    return torch.stack([values.square() @ _density(), slopes.square() @ _density()])


def sum_moments(samples: Tensor, count: int) -> Tensor | None:
    """Second moments of a sum of so many independent f(z): n·E[f²] + n·(n − 1)·E[f]² forward, E[f′²] backward."""
    moments = second_moments(samples)
    if moments is None:
        return None
    means = samples.detach().double() @ _density()
    return torch.stack([count * moments[0] + count * (count - 1) * means.square(), moments[1]])


def multiply(m: Tensor | None, n: Tensor | None) -> Tensor | None:
    """Second moments of f(z)·g(u) for independent z and u: forward the product, backward the mean over inputs."""
    if m is None or n is None:
        return None
    return torch.stack([m[0] * n[0], (m[1] * n[0] + m[0] * n[1]) / 2])


def gain_curve(moments: Tensor | None) -> GainCurve | None:
    """The gains that undo these second moments."""
    if moments is None:
        return None
    forward, backward = (1 / moments).tolist()
    return GainCurve(tuple(forward), tuple(backward))


def prelu(samples: Tensor, slope: float = 0.25) -> Tensor:
    """PReLU, whose many slopes count by their root mean square."""
    return F.leaky_relu(samples, slope)


def rrelu(samples: Tensor, lower: float = 1 / 8, upper: float = 1 / 3) -> Tensor:
    """RReLU, whose random slope counts by its root mean square."""
    return F.leaky_relu(samples, ((lower**2 + lower * upper + upper**2) / 3) ** 0.5)


ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": torch.clone,
    **{name: getattr(F, name) for name in ACTIVATIONS},
    "threshold": torch.relu,  # which has no default settings
    "prelu": prelu,
    "rrelu": rrelu,
    "sin": torch.sin,
    "cos": torch.cos,
}
"""The activations that have a gain, by torch's name: of ``torch.nn`` all that are elementwise, as torch sets them."""


def has_gain(name: str) -> bool:
    """Whether torch has an activation of this name, so that its gains are known."""
    return name in ACTIVATION_FUNCTIONS or name == "glu"


@functools.cache
def named_curve(name: str) -> GainCurve:
    """The gain curve of an activation by torch's name, with torch's default settings."""
    if not has_gain(name):
        raise InitError(f"unknown nonlinearity '{name}': {nearest(name, [*ACTIVATION_FUNCTIONS, 'glu'])}")
    with torch.inference_mode(False), torch.enable_grad():
        if name == "glu":
            moments = multiply(second_moments(grid().clone()), second_moments(torch.sigmoid(grid())))
        else:
            moments = second_moments(ACTIVATION_FUNCTIONS[name](grid()))
    found = gain_curve(moments)
    assert found is not None
    return found


def gains(name: str) -> Gains:
    """Gains of an activation by torch's name, for a pre-activation of variance 1.

    >>> gains("relu")
    Gains(forward=2.0, backward=2.0)
    """
    at_one = named_curve(name).at(1.0)
    return Gains(round(at_one.forward, 12), round(at_one.backward, 12))  # the tails beyond the grid hold 1e-13
