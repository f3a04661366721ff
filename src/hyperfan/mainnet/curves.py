"""A nonlinearity's gains over a range of pre-activation variances, from its samples."""

import functools

import torch
from torch import Tensor

from hyperfan.errors import InitError, nearest
from hyperfan.formulas.activations import ACTIVATIONS
from hyperfan.formulas.gains import VARIANCES, Curve

_PER_UNIT = 200
_REACH = 8


@functools.cache
def grid() -> Tensor:
    """Where functions are sampled: z within ±8 standard deviations, times √q for each tabulated variance q."""
    z = torch.arange(-_REACH * _PER_UNIT, _REACH * _PER_UNIT + 1, dtype=torch.float64) / _PER_UNIT
    return torch.tensor(VARIANCES, dtype=torch.float64).sqrt().unsqueeze(1) * z


@functools.cache
def _density() -> Tensor:
    z = grid()[VARIANCES.index(1.0)]
    weights = torch.exp(-z.square() / 2)
    return weights / weights.sum()


def integrate(samples: Tensor) -> Tensor | None:
    """E[f(√q·z)²] and E[f′(√q·z)²] for each tabulated q, as (2, q); ``None`` for what has no finite gain."""
    if not torch.isfinite(samples).all() or not samples.any():
        return None
    slopes = samples.diff() / grid().diff()
    beside = torch.maximum(slopes[:, :-2].abs(), slopes[:, 2:].abs())
    jumps = slopes[:, 1:-1].abs() > 20 * beside + 20  # autograd does not see a discontinuity
    smooth = torch.where(jumps, (slopes[:, :-2] + slopes[:, 2:]) / 2, slopes[:, 1:-1])
    between = (_density()[1:-2] + _density()[2:-1]) / 2
    return torch.stack([samples.square() @ _density(), smooth.square() @ between])


def multiply(m: Tensor | None, n: Tensor | None) -> Tensor | None:
    """Moments of f(z)·g(u) for independent z and u: the product forward; backward, the mean over both inputs."""
    if m is None or n is None:
        return None
    return torch.stack([m[0] * n[0], (m[1] * n[0] + m[0] * n[1]) / 2])


def curve(moments: Tensor | None) -> Curve | None:
    """The gains that undo these moments."""
    if moments is None:
        return None
    forward, backward = (1 / moments).tolist()
    return Curve(tuple(forward), tuple(backward))


@functools.cache
def named_curve(name: str) -> Curve:
    """Of an activation by torch's name, with torch's default settings."""
    if name == "glu":
        linear, gate = (integrate(f(grid())) for f in (torch.clone, torch.sigmoid))
        found = curve(multiply(linear, gate))
    elif name in ACTIVATIONS:
        f = ACTIVATIONS[name]
        values = [[f(u) for u in row] for row in grid().tolist()]
        found = curve(integrate(torch.tensor(values, dtype=torch.float64)))
    else:
        raise InitError(f"unknown nonlinearity '{name}': {nearest(name, [*ACTIVATIONS, 'glu'])}")
    assert found is not None
    return found
