"""Small mainnets, and what the tests of this room ask of them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hyperfan.formulas import Gains
from hyperfan.mainnet import Nonlinearity, Spec, read

CELL = 1 / 50
"""Nonlinearities are sampled once in each cell of this width. Kinks and jumps on cell borders do no harm."""
ROUGH = CELL**2
"""What a gain may be off by: the midpoint rule's h²/24, times slopes of order one."""

Function = Callable[[Tensor], Tensor]


class Between(nn.Module):
    """A layer, a function, a layer."""

    def __init__(self, function: Function, width: int = 8, out: int | None = None) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.function = function
        self.second = nn.Linear(out or width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)))


class Applied(nn.Module):
    """A module without parameters that applies a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def consumed(function: Function, width: int = 8, out: int | None = None) -> Nonlinearity:
    """What the layer after this function is said to consume."""
    found = read(Between(function, width, out), torch.randn(5, 4), warn=False)["second.weight"].consumes
    assert found is not None
    return found


def between(spec: Spec) -> dict[str, tuple[str | None, str | None]]:
    """Of each weight, the names of what it consumes and of what follows it."""
    return {
        t.name: (t.consumes and t.consumes.name, t.followed_by and t.followed_by.name)
        for t in spec
        if t.role == "weight"
    }


def branches(spec: Spec) -> dict[str, int]:
    """The weights that end a residual branch, and the number of blocks each is told of."""
    return {t.name: t.residual_blocks for t in spec if t.role == "weight" and t.residual_blocks}


def pair(gains: Gains | None) -> tuple[float, float] | None:
    """Gains as a tuple, which approx understands."""
    return None if gains is None else (gains.forward, gains.backward)
