"""Weights as products of two factors, W = L·R, of which a layer runs without making W."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Protocol

from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.base import NO_STEPS, BuildContext, Factors, Generator, GeneratorConfig, Skip, Steps, Tensors
from hyperfan.generators.layout import HeadLayout, merge_spans, shape_name, tensor_name
from hyperfan.generators.stand_in import Product
from hyperfan.mainnet.spec import TensorSpec


class HasRank(Protocol):
    """The choices of a user who wants products."""

    @property
    def rank(self) -> int:
        """Of every product."""


def check_rank(config: HasRank) -> None:
    """Raise if a rank is none."""
    if not isinstance(config.rank, int) or isinstance(config.rank, bool) or config.rank < 1:
        raise HyperfanError(f"{type(config).__name__}(rank={config.rank!r}): give an integer from 1")


class Products(Generator):
    """A code for each tensor. Weights are products; anything else has one linear head.

    A weight (out, in, *kernel) counts as a matrix of out rows.
    """

    matrices: Collection[int]
    """Indices of the tensors that are products."""

    def __init__(self, config: GeneratorConfig, context: BuildContext, rank: int, *, shared: bool) -> None:
        super().__init__(config, context)
        self.rank = rank
        self.matrices = [i for i, t in enumerate(self.tensors) if t.role == "weight" and len(t.shape) >= 2]
        self._check_rank()
        self.names = [
            shape_name(t.shape, t, self.tensors) if shared and i in self.matrices else tensor_name(t)
            for i, t in enumerate(self.tensors)
        ]
        layouts = {}
        for name in dict.fromkeys(self.names):
            members = [i for i, other in enumerate(self.names) if other == name]
            tensor, heads = self.tensors[members[0]], {"": self.tensors[members[0]].numel}
            if members[0] in self.matrices:
                heads = {f"-{factor}": outputs for factor, outputs in self._factor_sizes(*matrix_size(tensor)).items()}
            sizes = {f"{name}{suffix}": outputs for suffix, outputs in heads.items()}
            layouts[name] = HeadLayout(sizes, members, merge_spans([self.spans[i] for i in members]))
        self._build(layouts, (self.n,), context)

    @abstractmethod
    def _factor_sizes(self, rows: int, columns: int) -> dict[str, int]:
        """How many values of each generated factor a matrix of this size has, by the factor's name."""

    @abstractmethod
    def _split(self, index: int, outputs: Sequence[Tensor]) -> Factors:
        """The factors of a matrix, from what its heads make, each (…, values)."""

    def _both(self, index: int, factors: Factors) -> tuple[Tensor, Tensor]:
        """Left and right factor of a matrix, (…, rows, rank) and (…, rank, columns)."""
        left, right = factors
        return left, right

    def both_factors(self, index: int, factors: Factors) -> tuple[Tensor, Tensor]:
        """Left and right factor of a matrix, of what :meth:`factors` returns for it."""
        return self._both(index, factors)

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
                left, right = self._both(i, self._split(i, outputs))
                tensors[i] = (left @ right).reshape(shape)
            else:
                tensors[i] = outputs[0].reshape(shape) * self.scale[i]
        return {self.tensors[i].name: tensors[i] for i in sorted(tensors)}

    def factors(self, codes: Tensor, skip: Skip = ()) -> dict[int, Factors]:
        """Those of all weights."""
        others = [i for i in range(self.n) if i not in self.matrices or i in skip]
        return {i: self._split(i, outputs) for i, outputs in self._outputs(codes, others, NO_STEPS).items()}

    def product(self, index: int, factors: Factors, base: Tensor | None) -> Tensor:
        """A stand-in for a weight."""
        return Product(*self._both(index, factors), base, self.tensors[index].shape)

    def _outputs(self, codes: Tensor, skip: Skip, steps: Steps) -> dict[int, list[Tensor]]:
        """What the heads of each tensor make of its code, (…, values)."""
        found: dict[int, list[Tensor]] = {}
        for layout in self.layouts.values():
            wanted = [i for i in layout.tensors if i not in skip]
            if not wanted:
                continue
            chosen = self._select(codes, merge_spans([self.spans[i] for i in wanted]))
            for head in layout.heads:
                made = self._product(head, chosen.reshape(-1, self.width), steps)
                each = made.view(*chosen.shape[:-1], made.shape[-1]).unbind(-2)
                for i, values in zip(wanted, each, strict=True):
                    found.setdefault(i, []).append(values)
        return found


def matrix_size(t: TensorSpec) -> tuple[int, int]:
    """Rows and columns of a weight (out, in, *kernel), seen as a matrix."""
    return t.shape[0], t.numel // max(t.shape[0], 1)
