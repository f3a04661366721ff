"""Norms are recognised by what they do, however they are written.

A norm is a function whose result is its input, shifted and scaled, with a shift and a scale for each set of features,
such that the mean square over these features is always the same: 1 after dividing by a root mean square or a standard
deviation, 1/d after dividing by the length of a vector. Whether the calls that led to a tensor do that is not guessed
from their names: they are run again on tensors of several scales, means and distributions, in place of the one that
they all began from. A parameter among them, as a norm's gain, counts by its root mean square.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from hyperfan.mainnet.replay import TorchCall, Value, common_roots, draws, evaluate

TOLERANCE = 0.01
"""The relative error that results may have: ε in a norm's denominator, and the rounding of bfloat16."""
MIN_FEATURES = 4
"""Features below which it cannot be seen whether values were shifted and scaled, which takes two."""
MAX_ROOTS = 4


def find_norm(call: TorchCall) -> tuple[Value, float] | None:
    """The value to which a norm was applied that ends with this call, and the mean square that it makes, if any."""
    for _, root in zip(range(MAX_ROOTS), common_roots(call), strict=False):
        found = _mean_square(call, root)
        if found is not None:
            return root, 1.0 if abs(found - 1) < TOLERANCE else found
    return None


def _mean_square(call: TorchCall, root: Value) -> float | None:
    """The mean square of what the call makes of a root, whatever values that has; ``None`` if it is no norm of it."""
    squares: dict[tuple[int, ...], list[Tensor]] = {features: [] for features in _sets_of_features(root.shape)}
    for x in draws(root.shape) if squares else ():
        try:
            with torch.no_grad():
                y = evaluate(call, {root: x})
        except Exception:  # the functions of a user may raise anything; it is not known what they do
            return None
        if not isinstance(y, Tensor) or y.shape != x.shape or not y.is_floating_point() or y.is_meta:
            return None
        y = y.to(torch.float64)
        squares = {f: [*s, y.square().mean(f)] for f, s in squares.items() if _shifted_and_scaled(x, y, f)}
        if not squares:
            return None
    for parts in squares.values():
        measured = torch.stack(parts)
        found = measured.mean()
        if found > 0 and ((measured - found).abs() < TOLERANCE * found).all():
            return found.item()
    return None


def _sets_of_features(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The last dimensions, one more at a time, and each of the others alone."""
    dims = range(len(shape))
    sets = [tuple(dims[i:]) for i in reversed(dims)] + [(i,) for i in dims[:-1]]
    return (s for s in sets if torch.Size([shape[i] for i in s]).numel() >= MIN_FEATURES)


def _shifted_and_scaled(x: Tensor, y: Tensor, features: tuple[int, ...]) -> bool:
    x, y = (t - t.mean(features, keepdim=True) for t in (x, y))
    scale = (x * y).mean(features, keepdim=True) / x.square().mean(features, keepdim=True)
    off = (y - scale * x).square().mean(features, keepdim=True)
    return bool((off <= TOLERANCE**2 * y.square().mean(features, keepdim=True)).all())
