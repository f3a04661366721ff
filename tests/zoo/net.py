"""One net of the zoo: how it is made, what it is called on, and its loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

SEED = 0


@dataclass(frozen=True)
class Net:
    """A net.

    Args:
        build: makes it, with the values that its authors start it with.
        example: inputs: a tensor, a tuple of arguments, or a dict of keyword arguments.
        loss: what it puts out: logits of classes in the last dimension, or values.
        pattern: of some of its weights; by default of those that share the commonest end of a name.
        caches: whether it keeps tensors from call to call in evaluation mode, so that it is only trained in training
            mode, where it has no dropout.
        declared: further arguments of ``HyperNet``, as the message about what is unknown advises.
    """

    build: Callable[[], nn.Module]
    example: Any
    loss: Literal["classes", "values"] = "classes"
    pattern: str | None = None
    caches: bool = False
    declared: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> nn.Module:
        """The net in eval mode, always with the same values."""
        torch.manual_seed(SEED)
        with torch.enable_grad():  # a parametrization that is removed leaves a buffer else
            return self.build().eval()

    def targets(self, output: Any) -> Tensor:
        """Targets for an output, always the same."""
        first, source = first_output(output), torch.Generator().manual_seed(SEED + 1)
        if self.loss == "values":
            return torch.randn(first.shape, generator=source)
        return torch.randint(first.shape[-1], first.shape[:-1], generator=source)

    def mean_loss(self, output: Any, y: Tensor) -> Tensor:
        """The mean loss of an output."""
        first = first_output(output)
        return F.mse_loss(first, y) if self.loss == "values" else F.cross_entropy(first.flatten(0, -2), y.flatten())

    def call(self, module: nn.Module) -> Any:
        """The output of a module on the example."""
        if isinstance(self.example, dict):
            return module(**self.example)
        return module(*self.example) if isinstance(self.example, tuple) else module(self.example)


def first_output(output: Any) -> Tensor:
    """The first tensor of real numbers that a net puts out."""
    found = (t for t in pytree.tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point() and t.ndim)
    return next(found)


def normal(*shape: int) -> Tensor:
    """Normal inputs, always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED))


def integers(high: int, *shape: int) -> Tensor:
    """Integers below ``high``, always the same."""
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(SEED))
