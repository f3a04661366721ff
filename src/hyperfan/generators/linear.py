"""Linear heads: W = H·h + β, a code for each tensor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from hyperfan.codes.tasks import readable
from hyperfan.errors import HyperfanError
from hyperfan.generators.config import BuildContext, GeneratorConfig
from hyperfan.generators.generator import NO_STEPS, Factors, Generator, Skip, Steps, Tensors
from hyperfan.generators.layout import Sharing, head_names, layouts_by_name, merge_spans
from hyperfan.generators.stand_in import FromCode, Order, Sizes, StandIn


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
        # A matrix that only a run would show to be a weight shares a head too: a net that is loaded is not run.
        weights = [i for i, t in enumerate(self.tensors) if t.may_be_weight]
        self.names = head_names(self.tensors, config.sharing, weights)
        outputs, fixed = [t.numel for t in self.tensors], [False] * self.n
        layouts = layouts_by_name(self.names, outputs, self.spans, fixed)
        self._build(layouts, (self.n, 1), context)
        self.bias_may_hold_base = config.sharing == "separate"
        self._seen_scale: tuple[Tensor, int, bool] | None = None

    def make(self, codes: Tensor, *, skip: Skip = (), copy: bool = False, steps: Steps = NO_STEPS) -> Tensors:
        """The outputs of each head on the codes of its tensors."""
        if codes.shape[-2] < self.n:
            return self._from_one(codes, skip, copy, steps)
        codes = self.head_inputs(codes)
        each = codes.unbind(1) if codes.ndim == 3 else codes.unsqueeze(1).unbind(0)
        tensors: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            wanted = [i for i in layout.tensors if i not in skip]
            if not wanted:
                continue
            if len(wanted) == 1:
                tensors[wanted[0]] = self._one(wanted[0], each[wanted[0]], codes.shape[:-2], copy, steps)
                continue
            shape = self.tensors[wanted[0]].shape
            rows = layout.rows if len(wanted) == len(layout.tensors) else merge_spans([self.spans[i] for i in wanted])
            chosen = self._select(codes, rows)
            if codes.ndim == 2 and not steps:
                several = self.head(name).rows(chosen, shape, copy=copy)
            else:
                flat = self._product(name, chosen.reshape(-1, self.width), steps)
                several = flat.view(*chosen.shape[:-1], *shape).unbind(codes.ndim - 2)
            tensors.update(zip(wanted, several, strict=True))
        return {t.name: tensors[i] for i, t in enumerate(self.tensors) if i in tensors}

    def _from_one(self, codes: Tensor, skip: Skip, copy: bool, steps: Steps) -> Tensors:
        """The outputs of all heads on one code, (…, 1, width)."""
        batch = codes.shape[:-2]
        code = codes.squeeze(1) if batch else codes
        tensors = {}
        for i, t in enumerate(self.tensors):
            if i not in skip:
                head: Any = self._modules[self.names[i]]
                if head.trainer is None and not steps:
                    tensors[t.name] = head.run(code).view(batch + t.shape if batch else t.shape)
                else:
                    tensors[t.name] = self._one(i, code, batch, copy, steps)
        return tensors

    def _one(self, index: int, code: Tensor, batch: tuple[int, ...], copy: bool, steps: Steps) -> Tensor:
        """One tensor from its code (1, width), or a batch of it from (batch, width)."""
        shape, name = self.tensors[index].shape, self.names[index]
        if steps or batch:
            return self._product(name, code, steps).view(batch + shape)
        return self.head(name).rows(code, shape, copy=copy)[0]

    def reads_one(self, codes: Tensor) -> bool:
        """Whether all heads read one code as it is; its gradient is then added up in one place."""
        return codes.shape[-2] == 1 and len(self.layouts) == len(self.tensors) and self._unscaled()

    def _unscaled(self) -> bool:
        """Whether the scale of every tensor is known to be 1, as mostly where each has a head of its own."""
        scale, known = self._buffers["scale"], self._seen_scale
        assert scale is not None
        if torch.compiler.is_compiling():
            return False
        if known is None or known[0] is not scale or known[1] != scale._version:
            if scale.is_inference() or not readable(scale):
                return False
            known = self._seen_scale = scale, scale._version, bool((scale == 1).all())
        return known[2]

    def rows_of(self, name: str) -> tuple[list[str], Sequence[int]]:
        """The tensors of a head."""
        members = [self.tensors[i] for i in self.layouts[name].tensors]
        return [t.name for t in members], members[0].shape

    def head_inputs(self, codes: Tensor) -> Tensor:
        """Codes with the scale of each tensor."""
        return codes * self.scale

    def deferrable(self, *, many: bool) -> Sequence[int]:
        """Indices of matrices that many codes need not make: without a base, of heads without hooks or shards."""
        based = self.base.names if self.base is not None else ()
        wide = [i for i, t in enumerate(self.tensors) if len(t.shape) > 1 and t.name not in based] if many else []
        heads = {i: self.head(self.names[i]) for i in wide}
        return [i for i, head in heads.items() if not head.hooked and not head.sharded]

    def factors(self, codes: Tensor, indices: Skip) -> dict[int, Factors]:
        """The code of each tensor, as the one factor that it is made from."""
        codes = codes if self._unscaled() else self.head_inputs(codes)
        return {i: (codes[..., 0 if codes.shape[-2] == 1 else i, :],) for i in indices}

    def stand_in(self, index: int, factors: Factors, order: Callable[[Sizes], Order]) -> StandIn:
        """A weight that layers can run from its code, or from many."""
        (code,) = factors
        return FromCode(code, self.head(self.names[index]), self.tensors[index].shape, order)

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
