"""Linear heads: W = H·h + β, a code for each tensor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.base import (
    BuildContext,
    Generator,
    GeneratorConfig,
    Request,
    merge_spans,
    shape_name,
    tensor_name,
)
from hyperfan.generators.heads import HeadGenerator
from hyperfan.generators.stand_in import StandIn
from hyperfan.mainnet.spec import TensorSpec

Sharing = Literal["shared", "separate"]


@dataclass(frozen=True)
class Linear(GeneratorConfig):
    """Linear heads: "shared" has one for all weights of one shape, "separate" one for each tensor."""

    sharing: Sharing

    def __post_init__(self) -> None:
        if self.sharing not in get_args(Sharing):
            raise HyperfanError(f"heads={self.sharing!r}: use 'shared', 'separate', Chunks(…) or LowRank(…)")

    def build(self, context: BuildContext) -> Generator:
        """One head for each tensor, or for each shape."""
        return LinearHeads(self, context)


class LinearHeads(HeadGenerator):
    """One row of what a head makes is one tensor."""

    config: Linear

    def __init__(self, config: Linear, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        self.names = [self._head_name(t, config.sharing) for t in self.tensors]
        self._add_heads(self._layouts_by_name(lambda t: t.numel), context.device)
        self.register_buffer("scale", torch.ones(self.n, 1, device=context.device, dtype=context.dtype))

    def _head_name(self, tensor: TensorSpec, sharing: Sharing) -> str:
        """Only weights share heads. Biases and norm parameters are small, and start at values of their own."""
        if sharing == "separate" or tensor.role != "weight":
            return tensor_name(tensor)
        return shape_name(tensor.shape, tensor, self.tensors)

    def make(self, codes: Tensor, request: Request) -> dict[str, Tensor]:
        """The outputs of each head on the codes of its tensors."""
        codes = self.head_inputs(codes)
        tensors: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            wanted = [i for i in layout.tensors if i not in request.skip]
            if not wanted:
                continue
            rows = layout.rows if len(wanted) == len(layout.tensors) else merge_spans([self.spans[i] for i in wanted])
            chosen = self._select(codes, rows)
            shape = self.tensors[wanted[0]].shape
            if codes.ndim == 2 and not request.steps:
                each = self.head(name).rows(chosen, shape, copy=request.copy)
            else:
                flat = self.head(name).product(chosen.reshape(-1, self.width), request.step(name))
                each = flat.view(*chosen.shape[:-1], *shape).unbind(codes.ndim - 2)
            tensors.update(zip(wanted, each, strict=True))
        return {t.name: tensors[i] for i, t in enumerate(self.tensors) if i in tensors}

    def rows_of(self, name: str) -> tuple[list[str], Sequence[int]]:
        """The tensors of a head."""
        members = [self.tensors[i] for i in self.layouts[name].tensors]
        return [t.name for t in members], members[0].shape

    def head_inputs(self, codes: Tensor) -> Tensor:
        """Codes with the scale of each tensor."""
        return codes * self.scale

    def deferrable(self) -> list[int]:
        """Indices of all tensors but vectors."""
        return [i for i, t in enumerate(self.tensors) if len(t.shape) > 1]

    def stand_in(self, index: int, codes: Tensor, order: Callable[..., Any]) -> Tensor:
        """A weight that layers can run from its code."""
        head = self.head(self.names[index])
        return StandIn(self.head_inputs(codes)[index], head, self.tensors[index].shape, order)

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """Multiply tensors in the head if all of its tensors have one factor, else on the codes."""
        each = [factors.get(t.name, 1.0) for t in self.tensors]
        in_head = [1.0] * len(each)
        for name, layout in self.layouts.items():
            different = {each[i] for i in layout.tensors}
            if len(different) > 1:
                self._check_bias_is_zero(name)
            else:
                for i in layout.tensors:
                    in_head[i] = each[i]
        for name, layout in self.layouts.items():
            factor = in_head[layout.tensors[0]]
            if factor != 1:
                self.head(name).weight.mul_(factor)
                self.head(name).bias.mul_(factor)
        on_codes = [f / h for f, h in zip(each, in_head, strict=True)]
        self.scale.mul_(self._like_scale(on_codes))
        return {t.name: h for t, h in zip(self.tensors, in_head, strict=True)}

    def _like_scale(self, values: Sequence[float]) -> Tensor:
        return super()._like_scale(values).unsqueeze(1)

    def summary(self) -> str:
        """How heads are shared, in words."""
        return f"{self.config.sharing} heads"
