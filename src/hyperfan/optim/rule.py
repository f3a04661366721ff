"""The rule of torch.optim.SGD, for anything that can be scaled and to which a multiple of the gradient can be added."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Add = Callable[[Tensor, float, float], object]
"""``add(target, alpha, beta)``: target ← beta·target + alpha·gradient, in place."""


@dataclass(frozen=True)
class Settings:
    """What a parameter group says."""

    lr: float
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    maximize: bool

    @classmethod
    def of(cls, group: Mapping[str, Any]) -> "Settings":
        """Those of a parameter group as they are now."""
        return cls(
            float(group["lr"]),
            float(group["momentum"]),
            float(group["dampening"]),
            float(group["weight_decay"]),
            bool(group["nesterov"]),
            bool(group["maximize"]),
        )


def update(p: Tensor, buffer: Tensor | None, add: Add, s: Settings) -> Tensor | None:
    """One step on ``p`` in place; returns its momentum buffer.

    Every term is linear in parameter, buffer and gradient, so the same rule holds for W = C·H + β as for H and β.
    """
    sign = -1.0 if s.maximize else 1.0
    shrink = 1 - s.lr * s.weight_decay
    if s.momentum == 0:
        add(p, -s.lr * sign, shrink)
        return buffer
    if buffer is None:
        buffer = p * s.weight_decay if s.weight_decay else torch.zeros_like(p)
        add(buffer, sign, 1.0)
    else:
        undamped = 1 - s.dampening
        if s.weight_decay:
            buffer.mul_(s.momentum).add_(p, alpha=undamped * s.weight_decay)
        add(buffer, undamped * sign, 1.0 if s.weight_decay else s.momentum)
    if s.nesterov:
        add(p, -s.lr * sign, shrink)
        p.add_(buffer, alpha=-s.lr * s.momentum)
    else:
        p.add_(buffer, alpha=-s.lr)
    return buffer
