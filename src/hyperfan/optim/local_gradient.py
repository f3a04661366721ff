"""Gradients of one process, written to the memory in which they travel to the others."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from hyperfan.optim.gradient import FactoredGradient, ScaledFactors


class LocalGradient:
    """One parameter's gradient in this process, and its factors, if it has any."""

    def __init__(self, grad: Tensor, parts: ScaledFactors, partner: str) -> None:
        self.grad, self.parts, self.partner = grad, parts, partner
        self.summed = isinstance(grad, FactoredGradient) and grad.value.summed

    @property
    def codes(self) -> Tensor:
        """The codes of all parts."""
        if len(self.parts) == 1:
            return self.parts[0][0].codes
        return torch.cat([factor.codes for factor, _ in self.parts], -2)

    @property
    def row_size(self) -> int:
        """The number of values in a row of gradients."""
        return self.parts[0][0].row_size

    def write_rows(self, memory: Tensor) -> None:
        """Write all rows to memory, with their parts' scales."""
        lead, start = math.prod(self.codes.shape[:-2]), 0
        memory = memory.view(lead, -1, self.row_size)
        for factor, scale in self.parts:
            factor.write_to(memory[:, start : start + factor.rank], scale)
            start += factor.rank

    def write_dense(self, memory: Tensor) -> None:
        """Write the gradient out to memory."""
        target = memory.view(self.grad.shape)
        if isinstance(self.grad, FactoredGradient):
            self.grad.add_to_(target, 1.0, 0.0)
        else:
            target.copy_(self.grad)


def local_gradients(named: Mapping[str, Tensor]) -> dict[str, LocalGradient]:
    """The gradients of one process; those with the same factors, as of a weight and its bias, are partners."""
    first: dict[tuple[tuple[int, float], ...], str] = {}
    local = {}
    for name, p in named.items():
        if p.grad is None:
            continue
        parts = (p.grad.parts if isinstance(p.grad, FactoredGradient) else None) or ()
        partner = first.setdefault(tuple((id(f), s) for f, s in parts), name) if parts else name
        local[name] = LocalGradient(p.grad, parts, partner)
    return local
