"""Low-rank weights: W = U·Vᵀ, both factors generated from the tensor's code.

With U = A·h and V = B·h, "irk,k,jrl,l->ij" in index notation, a known code gives Var(W) = r·Var(A)·Var(B)·‖h‖⁴.
Both factors get the same variance, so Var(A) = Var(B) = √(v/r)/‖h‖². The code stands twice: over many codes the mean of
‖h‖⁴ counts, which is larger than the square of the mean; ``Embedding(normalise=True)`` makes both equal.
"""

from dataclasses import dataclass

from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.formulas.contraction import Contraction
from hyperfan.generators.base import NO_STEPS, BuildContext, Generator, GeneratorConfig, Skip, Steps, Tensors
from hyperfan.generators.layout import HeadLayout, tensor_name
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class LowRank(GeneratorConfig):
    """Weights of low rank, each from two heads of its own; ``HyperNet(mainnet, 50, heads=LowRank(4))``.

    A weight (out, in, *kernel) counts as a matrix of out rows. Biases and norm parameters have linear heads.

    Args:
        rank: of every generated weight.
    """

    rank: int

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 1:
            raise HyperfanError(f"LowRank(rank={self.rank!r}): give an integer from 1")

    def build(self, context: BuildContext) -> Generator:
        """Two heads for each weight."""
        return LowRankHeads(self, context)


class LowRankHeads(Generator):
    """Two heads for each weight, one for anything else, a code for each tensor."""

    config: LowRank

    def __init__(self, config: LowRank, context: BuildContext) -> None:
        super().__init__(config, context)
        rank = config.rank
        self.names = [tensor_name(t) for t in self.tensors]
        self.scattered = {t.name for t in self.tensors if _is_matrix(t)}
        layouts = {}
        for i, (name, t) in enumerate(zip(self.names, self.tensors, strict=True)):
            heads = {name: t.numel}
            if _is_matrix(t):
                rows, columns = t.shape[0], t.numel // t.shape[0]
                heads = {f"{name}-left": rows * rank, f"{name}-right": columns * rank}
            layouts[name] = HeadLayout(heads, [i], [self.spans[i]])
        self._build(layouts, (self.n,), context)

    def make(self, codes: Tensor, *, skip: Skip = (), copy: bool = False, steps: Steps = NO_STEPS) -> Tensors:
        """The product of each weight's factors."""
        tensors = {}
        for i, (t, name) in enumerate(zip(self.tensors, self.names, strict=True)):
            code = codes[..., i, :]
            rows = code.reshape(-1, self.width)
            value, *others = (self._product(head, rows, steps) for head in self.layouts[name].heads)
            if others:
                rank = self.config.rank
                left, right = (f.view(len(rows), f.shape[1] // rank, rank) for f in (value, *others))
                value = left @ right.mT
            tensors[t.name] = value.reshape(*code.shape[:-1], *t.shape) * self.scale[i]
        return tensors

    def contraction(self, index: int, moment: float) -> Contraction:
        """The product of two factors, or what one head makes."""
        d, h = self.width, moment / self.width
        if not _is_matrix(self.tensors[index]):
            return Contraction("ik,k->i", {"k": d}, [None, h], "v/‖h‖²")
        return Contraction(
            "irk,k,jrl,l->ij", {"r": self.config.rank, "k": d, "l": d}, [None, h, None, h], "√(v/rank)/‖h‖²"
        )

    def summary(self) -> str:
        """The rank of the weights, in words."""
        return f"weights of rank {self.config.rank}"


def _is_matrix(t: TensorSpec) -> bool:
    return t.role == "weight" and len(t.shape) >= 2
