"""Weights as products of two factors, W = L·R, of which a layer runs without making W."""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from hyperfan.codes.embedding import Embedding, is_index
from hyperfan.errors import HyperfanError
from hyperfan.formulas.contraction import Contraction
from hyperfan.generators.config import BuildContext, GeneratorConfig
from hyperfan.generators.generator import NO_STEPS, Factors, Generator, Skip, Steps, Tensors
from hyperfan.generators.layout import HeadLayout, Sharing, head_names, members_by_name, merge_spans
from hyperfan.generators.stand_in import Order, Product, Sizes, StandIn
from hyperfan.mainnet.spec import TensorSpec

CodePer = Literal["tensor", "rank"]
"""What has a code of its own: a tensor, or each rank of a product."""


class RankConfig(GeneratorConfig):
    """The choices of a user who wants products: their rank, and what has a code of its own."""

    rank: int
    code_per: CodePer

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if not is_index(self.rank) or self.rank < 1:
            raise HyperfanError(f"{kind}(rank={self.rank!r}): give an integer from 1")
        if self.code_per not in get_args(CodePer):
            raise HyperfanError(f"{kind}(code_per={self.code_per!r}): each 'tensor' has a code, or each 'rank'")

    def why_unfit(self, embedding: Embedding, has_trunk: bool) -> str | None:
        """Why all ranks of a product would be equal, if they would."""
        if self.code_per == "tensor" or embedding.per == "tensor" or embedding.identity is not None:
            return None
        return (
            "code_per='rank' with one embedding for the whole net would make all ranks equal: beside a condition give "
            "each an identity, Embedding(…, identity=8), or use Embedding(…, per='tensor')"
        )


class Products(Generator):
    """A code for each tensor, or for each rank. Weights are products; anything else has one linear head.

    A weight (out, in, *kernel) counts as a matrix of out rows. From a tensor's code a head makes a whole factor, from
    the code of a rank one row or column of it, so that it is r times smaller.
    """

    matrices: Sequence[int]
    """Indices of the tensors that are products."""
    factor = 1.0
    """The factor on every product."""
    scaled: int
    """Which of a matrix's generated factors, in the order of their sizes, carries the matrix's scale."""

    def __init__(
        self, config: GeneratorConfig, context: BuildContext, rank: int, *, sharing: Sharing, per_rank: bool
    ) -> None:
        super().__init__(config, context)
        self.rank, self.per_rank = rank, per_rank
        self.matrices = [i for i, t in enumerate(self.tensors) if t.may_be_weight and len(t.shape) >= 2]
        self._check_rank()
        self.names = head_names(self.tensors, sharing, self.matrices)
        if per_rank:
            ends = itertools.accumulate(rank if i in self.matrices else 1 for i in range(len(self.tensors)))
            self.spans = [slice(*pair) for pair in itertools.pairwise([0, *ends])]
            self.n = self.spans[-1].stop
        layouts = {}
        for name, members in members_by_name(self.names).items():
            tensor, heads = self.tensors[members[0]], {"": self.tensors[members[0]].numel}
            if members[0] in self.matrices:
                sizes = self.factor_sizes(tensor)
                heads = {f"-{factor}": size * (1 if per_rank else rank) for factor, size in sizes.items()}
            outputs = {f"{name}{suffix}": size for suffix, size in heads.items()}
            layouts[name] = HeadLayout(outputs, members, merge_spans([self.spans[i] for i in members]))
        self._build(layouts, (len(self.tensors),), context)

    @abstractmethod
    def factor_sizes(self, tensor: TensorSpec) -> dict[str, int]:
        """How many values of each generated factor one rank of a matrix has, by the factor's name."""

    @abstractmethod
    def factors_of(self, index: int, outputs: Sequence[Tensor]) -> Factors:
        """The factors of a matrix, from what its heads make, each (…, values) of its code, or (…, rank, values).

        One of them is scaled already.
        """

    def contraction(self, index: int, moment: float) -> Contraction:
        """The product of two generated factors, one of which is multiplied by ``factor``, or what one head makes."""
        d, h = self.width, moment / self.width
        if index not in self.matrices:
            return Contraction("ik,k->i", {"k": d}, [None, h], "v/‖h‖²")
        expression = "ik,rk,jl,rl->ij" if self.per_rank else "irk,k,jrl,l->ij"
        mean_squares = [None, self.factor**2 * h, None, h]
        return Contraction(expression, {"r": self.rank, "k": d, "l": d}, mean_squares, "√(v/rank)/‖h‖²")

    def _columns(self, values: Tensor) -> Tensor:
        """A factor whose columns are ranks, (…, size, rank), from what its head makes."""
        return values.mT if self.per_rank else values.view(*values.shape[:-1], values.shape[-1] // self.rank, self.rank)

    def _rows(self, values: Tensor) -> Tensor:
        """A factor whose rows are ranks, (…, rank, size), from what its head makes."""
        return values if self.per_rank else values.view(*values.shape[:-1], self.rank, values.shape[-1] // self.rank)

    def left_and_right(self, index: int, factors: Factors) -> tuple[Tensor, Tensor]:
        """Left and right factor of a matrix, (…, rows, rank) and (…, rank, columns)."""
        left, right = factors
        return left, right

    def _check_rank(self) -> None:
        for t in (self.tensors[i] for i in self.matrices):
            rows, columns = matrix_size(t)
            if self.rank > min(rows, columns):
                raise HyperfanError(
                    f"rank {self.rank} is more than '{t.name}' has, a matrix of {rows} × {columns}: give a rank of at "
                    f"most {min(rows, columns)}, or leave it out of generate="
                )

    def make(self, codes: Tensor, *, skip: Skip = (), copy: bool = False, steps: Steps = NO_STEPS) -> Tensors:
        """The product of each weight's factors."""
        tensors = {}
        for i, outputs in self._outputs(codes, skip, steps).items():
            shape = (*codes.shape[:-2], *self.tensors[i].shape)
            if i in self.matrices:
                left, right = self.left_and_right(i, self.factors_of(i, outputs))
                tensors[i] = (left @ right).reshape(shape)
            else:
                tensors[i] = outputs[0].reshape(shape)
        return {self.tensors[i].name: tensors[i] for i in sorted(tensors)}

    def deferrable(self, *, many: bool) -> Sequence[int]:
        """All weights, but not while a graph is compiled, or where a base is multiplied."""
        multiplied = self.base is not None and self.base.multiply
        return [] if multiplied or torch.compiler.is_compiling() else self.matrices

    def factors(self, codes: Tensor, indices: Skip) -> dict[int, Factors]:
        """Both factors of each weight, or what is generated of them."""
        others = [i for i in range(len(self.tensors)) if i not in indices]
        return {i: self.factors_of(i, outputs) for i, outputs in self._outputs(codes, others, NO_STEPS).items()}

    def stand_in(self, index: int, factors: Factors, order: Callable[[Sizes], Order]) -> StandIn:
        """A weight that layers run without; there is one order for it."""
        name = self.tensors[index].name
        base = self.base.value(name) if self.base is not None and name in self.base else None
        return Product(*self.left_and_right(index, factors), base, self.tensors[index].shape)

    def _outputs(self, codes: Tensor, skip: Skip, steps: Steps) -> dict[int, list[Tensor]]:
        """What the heads of each tensor make of its code, (…, values), or of those of its ranks, (…, rank, values).

        One of them carries the tensor's scale: all that a head makes is multiplied at once.
        """
        found: dict[int, list[Tensor]] = {}
        for layout in self.layouts.values():
            wanted = [i for i in layout.tensors if i not in skip]
            if not wanted:
                continue
            chosen = self._select(codes, merge_spans([self.spans[i] for i in wanted]))
            is_matrix = wanted[0] in self.matrices
            scale = self.factor * self.scale[wanted] if is_matrix else self.scale[wanted]
            for k, head in enumerate(layout.heads):
                made = self._product(head, chosen.reshape(-1, self.width), steps)
                ranks = [self.rank] if self.per_rank and is_matrix else []
                made = made.view(*chosen.shape[:-2], len(wanted), *ranks, made.shape[-1])
                common = self.common_part(head, steps) if ranks else None
                made = made if common is None else made + common
                if k == (self.scaled if is_matrix else 0):
                    made = (made * scale.view(-1, *[1] * (1 + len(ranks)))).to(made.dtype)  # which autocast may lower
                for i, values in zip(wanted, made.unbind(-2 - len(ranks)), strict=True):
                    found.setdefault(i, []).append(values)
        return found

    def common_part(self, head: str, steps: Steps) -> Tensor | None:
        """What is added to all that a head makes of the codes of ranks, (rank, values), if anything is."""
        return None


def matrix_size(t: TensorSpec) -> tuple[int, int]:
    """Rows and columns of a weight, seen as a matrix with its first dimension as rows."""
    return t.shape[0], t.numel // max(t.shape[0], 1)
