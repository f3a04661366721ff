"""Low-rank weights: W = U·Vᵀ, both factors generated from the tensor's code.

With U = A·h and V = B·h, "irk,k,jrl,l->ij" in index notation, a known code gives Var(W) = r·Var(A)·Var(B)·‖h‖⁴.
Both factors get the same variance, so Var(A) = Var(B) = √(v/r)/‖h‖². The code stands twice: over many codes the mean of
‖h‖⁴ counts, which is larger than the square of the mean; ``Embedding(normalise=True)`` makes both equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from hyperfan.formulas.contraction import Contraction
from hyperfan.generators.base import BuildContext, Factors, Generator, GeneratorConfig
from hyperfan.generators.products import Products, check_rank


@dataclass(frozen=True)
class LowRank(GeneratorConfig):
    """Weights of low rank, each from two heads of its own; ``HyperNet(mainnet, 50, heads=LowRank(4))``.

    A weight (out, in, *kernel) counts as a matrix of out rows. Biases and norm parameters have linear heads. Layers run
    as y = U·(Vᵀ·x), and the weight itself is never made.

    Args:
        rank: of every generated weight.
    """

    rank: int

    def __post_init__(self) -> None:
        check_rank(self)

    def build(self, context: BuildContext) -> Generator:
        """Two heads for each weight."""
        return LowRankHeads(self, context)


class LowRankHeads(Products):
    """Two heads for each weight, one for anything else, a code for each tensor."""

    config: LowRank

    def __init__(self, config: LowRank, context: BuildContext) -> None:
        super().__init__(config, context, config.rank, shared=False)
        self.scattered = {self.tensors[i].name for i in self.matrices}

    def _factor_sizes(self, rows: int, columns: int) -> dict[str, int]:
        return {"left": rows * self.rank, "right": columns * self.rank}

    def _split(self, index: int, outputs: Sequence[Tensor]) -> Factors:
        left, right = (v.view(*v.shape[:-1], v.shape[-1] // self.rank, self.rank) for v in outputs)
        return left * self.scale[index], right.mT

    def contraction(self, index: int, moment: float) -> Contraction:
        """The product of two factors, or what one head makes."""
        d, h = self.width, moment / self.width
        if index not in self.matrices:
            return Contraction("ik,k->i", {"k": d}, [None, h], "v/‖h‖²")
        return Contraction("irk,k,jrl,l->ij", {"r": self.rank, "k": d, "l": d}, [None, h, None, h], "√(v/rank)/‖h‖²")

    def summary(self) -> str:
        """The rank of the weights, in words."""
        return f"weights of rank {self.rank}"
