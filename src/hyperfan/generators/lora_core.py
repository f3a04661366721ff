"""LoRA-XS (Bałazy et al. 2024): updates of low rank of which a small core alone is generated.

W = W⁰ + (α/r)·U·R·Vᵀ, of which R (r × r) is generated, and starts at zero. U holds the first r left singular vectors of
W⁰ times its singular values, V the right ones, as they are when the net starts; where W⁰ has fewer than r, as a weight
of zeros, U and V are random and orthonormal. In index notation the update is "ip,pqk,k,jq->ij", or "ip,qk,pk,jq->ij"
with a code for each row of R: linear in one head.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.formulas.contraction import Contraction
from hyperfan.generators.aims import Aim, Draw, Moments, Solution
from hyperfan.generators.config import BuildContext
from hyperfan.generators.generator import Factors, LowRankUpdate
from hyperfan.generators.layout import HeadLayout, attribute_name
from hyperfan.generators.updates import Updates, update_size
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.generators.lora import LoRA


class CoreHeads(Updates):
    """Updates U·R·Vᵀ, of which R is generated."""

    scaled = 0

    def __init__(self, config: "LoRA", context: BuildContext) -> None:
        super().__init__(config, context)
        for t in (self.tensors[i] for i in self.matrices):
            for side, size in zip("UV", update_size(t), strict=True):
                empty = torch.empty(size, self.rank, device=context.device, dtype=t.dtype)
                self.register_buffer(f"{attribute_name(t)}-{side}", empty)

    def _fixed(self, index: int, side: str) -> Tensor:
        """One of the fixed factors of a matrix."""
        return self.get_buffer(f"{attribute_name(self.tensors[index])}-{side}")

    def factor_sizes(self, tensor: TensorSpec) -> dict[str, int]:
        """A row of R."""
        return {"R": self.rank}

    def factors_of(self, index: int, outputs: Sequence[Tensor]) -> Factors:
        """U·R, the left factor; V is fixed."""
        (core,) = outputs
        return (self._fixed(index, "U") @ self._rows(core),)

    def update_of(self, index: int, factors: Factors) -> LowRankUpdate:
        """U·R and Vᵀ."""
        (left,) = factors
        return LowRankUpdate(left, self._fixed(index, "V").mT)

    def contraction(self, index: int, moment: float) -> Contraction:
        """U·R·Vᵀ, of which R is generated, or what one head makes."""
        if index not in self.matrices:
            return super().contraction(index, moment)
        expression = "ip,qk,pk,jq->ij" if self.per_rank else "ip,pqk,k,jq->ij"
        u, v = (self._fixed(index, side).double().square().mean().item() for side in "UV")
        h, sizes = moment / self.width, {"p": self.rank, "q": self.rank, "k": self.width}
        return Contraction(expression, sizes, [u, None, self.factor**2 * h, v])

    def solve_update(
        self, layout: HeadLayout, aims: Sequence[Aim], moments: Moments
    ) -> tuple[float | None, list[float], str]:
        """R starts at zero."""
        return 0.0, [1.0] * len(aims), "R = 0, U and V from the singular vectors of W⁰"

    @torch.no_grad()
    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Take the fixed factors from the bases."""
        super().write_(solutions, draw)
        for i in self.matrices:
            assert self.base is not None
            left, right = self._fixed(i, "U"), self._fixed(i, "V")
            base = self.base.value(self.tensors[i].name).flatten(1)
            base = base.mT if self.tensors[i].in_first else base
            u, values, vt = torch.linalg.svd(base if base.element_size() > 2 else base.float(), full_matrices=False)
            u, values, v = u[:, : self.rank], values[: self.rank], vt[: self.rank].mT
            if values[-1] <= torch.finfo(values.dtype).eps * values[0]:
                u, v = (torch.linalg.qr(draw(torch.empty_like(f, dtype=u.dtype), 1.0))[0] for f in (left, right))
                values = torch.ones_like(values)
            left.copy_(u * values)
            right.copy_(v)

    def summary(self) -> str:
        """The size of the cores, in words."""
        return f"updates by cores of {self.rank}×{self.rank}"
