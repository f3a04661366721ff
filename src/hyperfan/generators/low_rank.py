"""Low-rank weights: W = U·Vᵀ, both factors generated from the tensor's code.

With U = A·h and V = B·h, "irk,k,jrl,l->ij" in index notation, a known code gives Var(W) = r·Var(A)·Var(B)·‖h‖⁴.
Both factors get the same variance, so Var(A) = Var(B) = √(v/r)/‖h‖². The code stands twice: over many codes the mean of
‖h‖⁴ counts, which is larger than the square of the mean; ``Embedding(normalise=True)`` makes both equal.

With a code for each rank, U_r = A·h_r and V_r = B·h_r, "ik,rk,jl,rl->ij", one head makes all ranks, and the terms of
two ranks have both heads in common: E[(A·h_r)_i·(A·h_s)_i] = Var(A)·(h_r·h_s). So

    Var(W) = Var(A)·Var(B)·Σ_rs (h_r·h_s)² = r·Var(A)·Var(B)·m⁴,  m² = √(Σ_rs (h_r·h_s)²/r),

in which m² takes the place of ‖h‖²: ranks of equal codes would make r·‖h‖², unrelated ones ‖h‖²·√(1 + (r − 1)/d_k), see
:func:`hyperfan.formulas.contraction.overlapping_terms`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from hyperfan.codes.codes import Codes
from hyperfan.codes.moments import measured_means
from hyperfan.formulas.contraction import overlapping_terms
from hyperfan.generators.config import BuildContext
from hyperfan.generators.generator import Factors, Generator
from hyperfan.generators.products import CodePer, Products, RankConfig, matrix_size
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class LowRank(RankConfig):
    """Weights of low rank, each from two heads of its own; ``HyperNet(mainnet, 50, heads=LowRank(4))``.

    A weight (out, in, *kernel) counts as a matrix of out rows. Biases and norm parameters have linear heads. Layers run
    as y = U·(Vᵀ·x), and the weight itself is never made.

    Args:
        rank: of every generated weight.
        code_per: what has a code of its own, each "tensor" or each "rank": then heads make one column of each factor
            from a rank's code, and are r times smaller.
    """

    rank: int
    code_per: CodePer = "tensor"

    def build(self, context: BuildContext) -> Generator:
        """Two heads for each weight."""
        return LowRankHeads(self, context)


class LowRankHeads(Products):
    """Two heads for each weight, one for anything else."""

    config: LowRank
    scaled = 0

    def __init__(self, config: LowRank, context: BuildContext) -> None:
        super().__init__(config, context, config.rank, sharing="separate", per_rank=config.code_per == "rank")
        self.scattered = {self.tensors[i].name for i in self.matrices}

    def factor_sizes(self, tensor: TensorSpec) -> dict[str, int]:
        """A column of U, and one of V."""
        return dict(zip(("left", "right"), matrix_size(tensor), strict=True))

    def factors_of(self, index: int, outputs: Sequence[Tensor]) -> Factors:
        """U and Vᵀ."""
        left, right = (self._columns(values) for values in outputs)
        return left, right.mT

    def expected_moments(self, codes: Codes, *, exact: bool, trunk_preserves: bool) -> list[float | None]:
        """‖h‖²; of weights whose ranks have codes m², which is known before a draw only where these are unrelated."""
        moments = super().expected_moments(codes, exact=exact, trunk_preserves=trunk_preserves)
        if not self.per_rank:
            return moments
        factor = (overlapping_terms(self.rank, 1 / self.width) / self.rank) ** 0.5
        unrelated = codes.trunk is None and codes.embeddings.config.per == "tensor"
        known = [None if moment is None or (exact and not unrelated) else moment * factor for moment in moments]
        return [known[i] if i in self.matrices else moment for i, moment in enumerate(moments)]

    def measured_moments(self, codes: Codes) -> list[float]:
        """‖h‖², or of weights whose ranks have codes m², as they are."""
        moments = super().measured_moments(codes)
        if not self.per_rank:
            return moments
        overlaps = measured_means(codes, self.spans, _overlap)
        return [math.sqrt(overlaps[i]) if i in self.matrices else moment for i, moment in enumerate(moments)]

    def summary(self) -> str:
        """The rank of the weights, in words."""
        return f"weights of rank {self.rank}{', a code for each rank' if self.per_rank else ''}"


def _overlap(codes: Tensor) -> Tensor:
    """m⁴ = Σ_rs (h_r·h_s)²/R of R codes, (…, R, width) → (…); of one code ‖h‖⁴."""
    return (codes @ codes.mT).square().sum((-1, -2)) / codes.shape[-2]
