"""The loss that goes backward: the user's, the usual one for such an output, or a random direction."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from hyperfan.errors import CallError, HyperfanError
from hyperfan.mainnet.replay import tensors
from hyperfan.probe.moments import mean_square
from hyperfan.probe.subject import SEED

Loss = Callable[[object], Tensor]
"""A function from the mainnet's output to the loss."""
PROBABILITY_ERROR = 1e-3
"""Error of a sum of probabilities."""
UserLoss = Callable[[Any, Any], Tensor]
"""A function from the mainnet's output and ``y`` to the mean loss."""


def random_direction(output: object) -> Tensor:
    """A loss where none is given: the output along a random direction, always the same, over the number of inputs."""
    found = float_tensors(output)
    generator = torch.Generator().manual_seed(SEED + 1)
    directions = [torch.randn(t.shape, generator=generator).to(t) / max(len(main_output(output)), 1) for t in found]
    return torch.stack([(t * d).sum() for t, d in zip(found, directions, strict=True)]).sum()


def returned_loss(output: object, *, per_code: bool = False) -> Tensor | None:
    """The loss that a mainnet returns, as language models do that are given labels: a tensor of one value.

    With ``per_code``, where it is known to put one out, also the mean of one for each code.
    """
    found = next((t for t in float_tensors(output) if t.ndim <= per_code), None)
    return found if found is None else found.mean()


def main_output(output: object) -> Tensor:
    """The first tensor that a mainnet puts out for its inputs, or else its loss."""
    found = float_tensors(output)
    return next((t for t in found if t.ndim), found[0])


def mean_loss(output: object, y: Any, given: UserLoss | None) -> Tensor:
    """The mean loss over inputs: the user's, or the usual one for an output and a y like these."""
    first, *rest = float_tensors(output)
    if given is not None:
        return _scalar(given(output, y))
    if rest:
        raise HyperfanError(f"the mainnet puts out {1 + len(rest)} tensors: pass loss=, a function of them and y")
    second, last = _class_dimensions(first, y)
    if second and not last:
        return cross_entropy(first, y)
    if last and not second:  # as language models have it
        return cross_entropy(first.flatten(0, -2), y.flatten())
    if isinstance(y, Tensor) and y.is_floating_point() and y.shape == first.shape:
        return mse_loss(first, y.to(first))
    why = ", whose classes may be in its second or in its last dimension" if second and last else ""
    raise HyperfanError(
        f"the loss is not known for an output of shape {tuple(first.shape)}{why}, and this y: pass loss=, a function "
        "of the output and y that returns the mean loss"
    )


def guessing_loss(output: Tensor, y: Any, given: UserLoss | None) -> float | None:
    """The mean loss of guessing, ln(classes), if it is a cross-entropy."""
    second, last = _class_dimensions(output, y)
    if given is None and last:
        return math.log(output.shape[-1])
    usual = given in (None, cross_entropy) or (isinstance(given, nn.CrossEntropyLoss) and given.reduction == "mean")
    return math.log(output.shape[1]) if second and usual else None


def target_square(output: Tensor, y: Any, given: UserLoss | None) -> float | None:
    """The mean square of the targets, if the loss is a squared error and they are no probabilities of classes."""
    usual = given in (None, mse_loss) or isinstance(given, nn.MSELoss)
    if not usual or not isinstance(y, Tensor) or not y.is_floating_point() or y.shape != output.shape:
        return None
    probabilities = y.ndim > 1 and bool((y >= 0).all()) and bool(((y.sum(-1) - 1).abs() < PROBABILITY_ERROR).all())
    return None if probabilities else mean_square(y)


def float_tensors(output: object) -> list[Tensor]:
    """All floating-point tensors that a mainnet puts out, alone or in tuples, lists and dicts."""
    found = [t for t in tensors(output) if t.is_floating_point()]
    if not found:
        raise CallError(
            f"the mainnet puts out a {type(output).__name__}, and no tensor of floating point numbers in tuples or "
            "dicts: wrap it in a module that returns one"
        )
    return found


def _class_dimensions(output: Tensor, y: Any) -> tuple[bool, bool]:
    """Whether y may be the classes of an output that has them in its second, or in its last dimension."""
    if not isinstance(y, Tensor) or y.is_floating_point() or output.ndim < 2:
        return False, False
    return y.shape == output.shape[:1] + output.shape[2:], output.ndim > 2 and y.shape == output.shape[:-1]


def _scalar(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        seen = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise HyperfanError(f"loss= returned {seen}: it should return one tensor, the mean loss over the inputs")
    return loss.reshape(())
