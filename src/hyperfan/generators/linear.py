"""Linear heads: W = H·h + β, a code for each tensor."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hyperfan.codes.embedding import Embedding
from hyperfan.errors import HyperfanError
from hyperfan.generators.base import NO_STEPS, Generator, GeneratorConfig, Part, merge_spans, shape_name, tensor_name
from hyperfan.generators.heads import HeadGenerator, HeadLayout
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

    def build(
        self, tensors: Sequence[TensorSpec], width: int, embedding: Embedding, device: torch.device, dtype: torch.dtype
    ) -> Generator:
        """The heads of these tensors."""
        return LinearHeads(self, tensors, width, device, dtype)


class LinearHeads(HeadGenerator):
    """One row of what a head makes is one tensor."""

    def __init__(
        self, config: Linear, tensors: Sequence[TensorSpec], width: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(tensors, width, width)
        self.config, self.n = config, len(tensors)
        self.spans = [slice(i, i + 1) for i in range(self.n)]
        self.names = [self._head_name(t, config.sharing) for t in tensors]
        layouts = {}
        for name in dict.fromkeys(self.names):
            members = [i for i, other in enumerate(self.names) if other == name]
            first = tensors[members[0]]
            rows = merge_spans([self.spans[i] for i in members])
            layouts[name] = HeadLayout(first.numel, first.dtype, members, rows)
        self._add_heads(layouts, device)
        self.register_buffer("scale", torch.ones(self.n, 1, device=device, dtype=dtype))

    def _head_name(self, tensor: TensorSpec, sharing: Sharing) -> str:
        """Only weights share heads. Biases and norm parameters are small, and start at values of their own."""
        if sharing == "separate" or tensor.role != "weight":
            return tensor_name(tensor)
        return shape_name(tensor.shape, tensor, self.tensors)

    def forward(
        self,
        codes: Tensor,
        *,
        skip: Collection[int] = (),
        copy: bool = False,
        steps: Mapping[str, Tensor] = NO_STEPS,
    ) -> dict[str, Tensor]:
        """Each head on the codes of its tensors."""
        codes = self.head_inputs(codes)
        made: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            wanted = [i for i in layout.tensors if i not in skip]
            if not wanted:
                continue
            rows = layout.rows if len(wanted) == len(layout.tensors) else merge_spans([self.spans[i] for i in wanted])
            chosen = self._select(codes, rows)
            shape = self.tensors[wanted[0]].shape
            if codes.ndim == 2 and not steps:
                each = [row.view(shape) for row in self.head(name).rows(chosen, copy=copy)]
            else:
                flat = self.head(name).product(chosen.reshape(-1, self.width), self.step_of(steps, name))
                each = list(flat.view(*chosen.shape[:-1], *shape).unbind(codes.ndim - 2))
            made.update(zip(wanted, each, strict=True))
        return {t.name: made[i] for i, t in enumerate(self.tensors) if i in made}

    def head_inputs(self, codes: Tensor) -> Tensor:
        """Codes with the scale of each tensor."""
        return codes * self.scale

    def deferrable(self) -> list[int]:
        """All but vectors."""
        return [i for i, t in enumerate(self.tensors) if len(t.shape) > 1]

    def stand_in(self, index: int, codes: Tensor, order: Callable[..., Any]) -> Tensor:
        """A weight that layers can run from its code."""
        head = self.head(self.names[index])
        return StandIn(self.head_inputs(codes)[index], head.weight, head.bias, self.tensors[index].shape, order)

    def _set_scales_(self, scales: Sequence[float]) -> None:
        with torch.no_grad():
            self.scale.copy_(torch.tensor(scales, dtype=torch.float64).unsqueeze(1))

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """In the head if all of its tensors have one factor, else on the codes."""
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
        self.scale.mul_(torch.tensor(on_codes, dtype=torch.float64).unsqueeze(1).to(self.scale))
        return {t.name: h for t, h in zip(self.tensors, in_head, strict=True)}

    def part_inputs(self, part: Part, codes: Tensor) -> Tensor:
        """The scaled codes of a head's tensors."""
        return self._select(self.head_inputs(codes), self.layouts[part.name].rows)

    def summary(self) -> str:
        """How heads are shared."""
        assert isinstance(self.config, Linear)
        return f"{self.config.sharing} heads"
