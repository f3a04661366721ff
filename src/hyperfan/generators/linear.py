"""Linear heads: W = H·h + β, a code for each tensor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.base import NO_STEPS, BuildContext, Generator, GeneratorConfig, Skip, Steps, Tensors
from hyperfan.generators.layout import Sharing, head_names, layouts_by_name, merge_spans
from hyperfan.generators.stand_in import FromCode


@dataclass(frozen=True)
class Linear(GeneratorConfig):
    """Linear heads: "shared" has one for all weights of one shape, "separate" one for each tensor.

    "module" has one for all weights of one module in repeated layers, as all "self_attn.q_proj" of a transformer.
    """

    sharing: Sharing

    def __post_init__(self) -> None:
        if self.sharing not in get_args(Sharing):
            raise HyperfanError(
                f"heads={self.sharing!r}: use 'shared', 'separate', 'module', Chunks(…), LowRank(…) or LoRA(…)"
            )

    def build(self, context: BuildContext) -> Generator:
        """One head for each tensor, or for each shape."""
        return LinearHeads(self, context)


class LinearHeads(Generator):
    """One row of what a head makes is one tensor."""

    config: Linear

    def __init__(self, config: Linear, context: BuildContext) -> None:
        super().__init__(config, context)
        weights = [i for i, t in enumerate(self.tensors) if t.role == "weight"]
        self.names = head_names(self.tensors, config.sharing, weights)
        outputs, fixed = [t.numel for t in self.tensors], [False] * self.n
        layouts = layouts_by_name(self.names, outputs, self.spans, fixed)
        self._build(layouts, (self.n, 1), context)
        self.base_in_bias = config.sharing == "separate"

    def make(self, codes: Tensor, *, skip: Skip = (), copy: bool = False, steps: Steps = NO_STEPS) -> Tensors:
        """The outputs of each head on the codes of its tensors."""
        codes = self.head_inputs(codes)
        each = codes.unbind(1) if codes.ndim == 3 else codes.unsqueeze(1).unbind(0)
        tensors: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            wanted = [i for i in layout.tensors if i not in skip]
            if not wanted:
                continue
            shape = self.tensors[wanted[0]].shape
            if len(wanted) == 1 and codes.ndim == 3:
                made = self._product(name, each[wanted[0]], steps).view(len(codes), *shape)
                tensors[wanted[0]] = made
                continue
            if len(wanted) == 1 and self.head(name).trainer is None and not steps:
                tensors[wanted[0]] = self.head(name)(each[wanted[0]]).view(shape)
                continue
            rows = layout.rows if len(wanted) == len(layout.tensors) else merge_spans([self.spans[i] for i in wanted])
            chosen = each[wanted[0]] if len(wanted) == 1 else self._select(codes, rows)
            if codes.ndim == 2 and not steps:
                several = self.head(name).rows(chosen, shape, copy=copy)
            else:
                flat = self._product(name, chosen.reshape(-1, self.width), steps)
                several = flat.view(*chosen.shape[:-1], *shape).unbind(codes.ndim - 2)
            tensors.update(zip(wanted, several, strict=True))
        return {t.name: tensors[i] for i, t in enumerate(self.tensors) if i in tensors}

    def rows_of(self, name: str) -> tuple[list[str], Sequence[int]]:
        """The tensors of a head."""
        members = [self.tensors[i] for i in self.layouts[name].tensors]
        return [t.name for t in members], members[0].shape

    def head_inputs(self, codes: Tensor) -> Tensor:
        """Codes with the scale of each tensor."""
        return codes * self.scale

    def deferrable(self) -> list[int]:
        """Indices of all tensors but vectors, unless their head has hooks, which a stand-in would not run."""
        return [i for i, t in enumerate(self.tensors) if len(t.shape) > 1 and not self.head(self.names[i]).hooked]

    def stand_in(self, index: int, codes: Tensor, order: Callable[..., Any]) -> Tensor:
        """A weight that layers can run from its code, or from many."""
        head = self.head(self.names[index])
        return FromCode(self.head_inputs(codes)[..., index, :], head, self.tensors[index].shape, order)

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """Multiply tensors in the head if all of its tensors have one factor, else on the codes."""
        each = {t.name: factors.get(t.name, 1.0) for t in self.tensors}
        in_head, of_head = dict.fromkeys(each, 1.0), {}
        for name, layout in self.layouts.items():
            members = [self.tensors[i].name for i in layout.tensors]
            different = {each[member] for member in members}
            if len(different) > 1:
                self._check_bias_is_zero(name)
            else:
                of_head[name] = different.pop()
                in_head |= dict.fromkeys(members, of_head[name])
        for name, factor in of_head.items():  # all checks come before the first change
            if factor != 1:
                self.head(name).weight.mul_(factor)
                self.head(name).bias.mul_(factor)
        super().scale_({name: each[name] / in_head[name] for name in each})
        return in_head

    def _like_scale(self, values: Sequence[float]) -> Tensor:
        return super()._like_scale(values).unsqueeze(1)

    def summary(self) -> str:
        """How heads are shared, in words."""
        return "heads shared by module" if self.config.sharing == "module" else f"{self.config.sharing} heads"
