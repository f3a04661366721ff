"""Updates of low rank on weights that are there already: products that start at zero, on a base."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.aims import Aim, Draw, Moments, Solution
from hyperfan.generators.config import BuildContext
from hyperfan.generators.generator import Factors, LowRankUpdate
from hyperfan.generators.layout import HeadLayout
from hyperfan.generators.products import Products, matrix_size
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.generators.lora import LoRA


class Updates(Products):
    """Products that start at zero, on a base."""

    config: "LoRA"

    def __init__(self, config: "LoRA", context: BuildContext) -> None:
        per_rank = config.code_per == "rank"
        super().__init__(config, context, config.rank, sharing=config.sharing, per_rank=per_rank)
        self.factor = config.factor
        for layout in self.layouts.values():
            first, *others = (self.tensors[i] for i in layout.tensors)
            for t in others:
                if t.in_first != first.in_first:
                    raise HyperfanError(
                        f"one of '{first.name}' and '{t.name}' is stored as (in, out) and one as (out, in), so that "
                        f"one head cannot make A of both: use {config.separate_heads}, or leave one out of generate="
                    )

    def update_of(self, index: int, factors: Factors) -> LowRankUpdate:
        """The update of a matrix, from its factors."""
        return LowRankUpdate(*factors)

    def left_and_right(self, index: int, factors: Factors) -> tuple[Tensor, Tensor]:
        """B and A, or the transposed ones of a weight that is stored as (in, out)."""
        b, a = self.update_of(index, factors)
        return (a.mT, b.mT) if self.tensors[index].in_first else (b, a)

    def low_rank_updates(self, codes: Tensor) -> Mapping[str, LowRankUpdate]:
        """The updates of matrices; other tensors are not of low rank."""
        found = self.factors(codes, self.matrices)
        return {self.tensors[i].name: self.update_of(i, factors) for i, factors in found.items()}

    def why_saved_unfit(self, in_first: Collection[str]) -> str | None:
        """The reason why A and B would change places: a head made A of the other side of a weight when saved."""
        now = [t.name for t in self.tensors if t.in_first]
        if sorted(in_first) == sorted(now):
            return None
        return (
            f"saved with other sides of A and B for {', '.join(now)}, which are stored as (in, out), and would be read "
            "the wrong way round: train it anew"
        )

    @abstractmethod
    def solve_update(
        self, layout: HeadLayout, aims: Sequence[Aim], moments: Moments
    ) -> tuple[float | None, list[float], str]:
        """The variance of the first head of some matrices, the scale of each, and how they start, in words."""

    def check_aims(self, aims: Sequence[Aim]) -> None:
        """Any aim will do: that nothing is generated at the start is meant."""

    def solve(self, aims: Sequence[Aim], moments: Moments) -> list[Solution]:
        """Nothing of a tensor is generated at the start: it has the variance that its base has."""
        found: dict[int, Solution] = {}
        for name, layout in self.layouts.items():
            of_layout, its_moments = [aims[i] for i in layout.tensors], [moments[i] for i in layout.tensors]
            variance: float | None = 0.0
            scales, note = [1.0] * len(of_layout), "H = 0"
            if layout.tensors[0] in self.matrices:
                variance, scales, note = self.solve_update(layout, of_layout, its_moments)
            for i, aim, scale in zip(layout.tensors, of_layout, scales, strict=True):
                found[i] = Solution(name, self._on_base(i, aim), variance, scale, f"; {note}")
        return [found[i] for i in range(len(self.tensors))]

    def started_variance(self, index: int, variance: float, moment: float) -> float:
        """Zero, whatever the variance of A's head."""
        return 0.0

    def _on_base(self, index: int, aim: Aim) -> Aim:
        """The aim that a tensor's base fulfils."""
        name = self.tensors[index].name
        if self.base is None or name not in self.base.kept:
            return replace(aim, equation=f"W⁰: {aim.equation}")
        square = self.base.value(name).double().square().mean().item()
        return replace(aim, equation="W⁰ kept", target=square, share=0.0)

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw the bases that have no values, and let all heads be zero."""
        for layout in self.layouts.values():
            index = layout.tensors[0]
            on_base = self.base is not None and self.tensors[index].name in self.base
            for name in layout.heads:
                draw(self.head(name).weight, 0.0)
                draw(self.head(name).bias, 0.0, mean=0.0 if on_base else solutions[index].aim.mean)
        if self.base is not None:
            aims = {t.name: s.aim for t, s in zip(self.tensors, solutions, strict=True)}
            self.base.write_(aims, draw, means=True)
        self._set_scales_([s.scale for s in solutions])


def update_size(t: TensorSpec) -> tuple[int, int]:
    """d_out and d_in of a weight's update B·A: the size of its matrix, or of the transposed one if inputs are first."""
    rows, columns = matrix_size(t)
    return (columns, rows) if t.in_first else (rows, columns)
