"""Which loss goes backward: the user's, the usual one for such an output, or a random direction."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from hyperfan.errors import HyperfanError
from hyperfan.probe.subject import SEED
from hyperfan.probe.theory import Loss, first_tensor, float_tensors

GivenLoss = Callable[[Any, Any], Tensor]


def direction(output: object) -> tuple[Loss, None]:
    """Without a loss: a random direction in all that is put out, over the number of inputs."""
    tensors = float_tensors(output)
    own = torch.Generator().manual_seed(SEED + 1)
    ways = [torch.randn(t.shape, generator=own).to(t) / max(len(tensors[0]), 1) for t in tensors]

    def loss(out: object) -> Tensor:
        return torch.stack([(t * w).sum() for t, w in zip(float_tensors(out), ways, strict=True)]).sum()

    return loss, None


def loss_for(output: object, y: Any, given: GivenLoss | None) -> tuple[Loss, float | None]:
    """The mean loss of outputs like this one, and that of a net which knows nothing, if it is a cross-entropy."""
    first, *rest = float_tensors(output)
    second, last = _classes(first, y)
    if given is not None:
        usual = given is cross_entropy or (isinstance(given, nn.CrossEntropyLoss) and given.reduction == "mean")
        return lambda out: _scalar(given(out, y)), math.log(first.shape[1]) if second and usual else None
    if rest:
        raise HyperfanError(f"the mainnet puts out {1 + len(rest)} tensors: pass loss=, a function of them and y")
    if second and not last:
        return lambda out: cross_entropy(first_tensor(out), y), math.log(first.shape[1])
    if last and not second:  # as language models have it
        return lambda out: cross_entropy(first_tensor(out).flatten(0, -2), y.flatten()), math.log(first.shape[-1])
    if isinstance(y, Tensor) and y.is_floating_point() and y.shape == first.shape:
        return lambda out: mse_loss(first_tensor(out), y.to(first)), None
    why = ", whose classes may be in its second or in its last dimension" if second and last else ""
    raise HyperfanError(
        f"the loss is not known for an output of shape {tuple(first.shape)}{why}, and this y: pass loss=, a function "
        "of the output and y that returns the mean loss"
    )


def _classes(output: Tensor, y: Any) -> tuple[bool, bool]:
    """Whether y may be the classes of an output that has them in its second, or in its last dimension."""
    if not isinstance(y, Tensor) or y.is_floating_point() or output.ndim < 2:
        return False, False
    return y.shape == output.shape[:1] + output.shape[2:], output.ndim > 2 and y.shape == output.shape[:-1]


def _scalar(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        seen = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise HyperfanError(f"loss= returned {seen}: it should return one tensor, the mean loss over the inputs")
    return loss.reshape(())
