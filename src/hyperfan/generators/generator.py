"""What a generator is: a module that turns codes into tensors, and answers four questions.

*make*: the tensors of some codes (``forward``), or what stands for them (``deferrable``). *variance*: what its
parameters' variances make of each tensor (``tensor_variance``), and which reach a wanted one (``solve``, ``write_``).
*scale*: multiply one tensor without touching the others (``scale_``). *structure*: which of its parameters enter
linearly, and with which codes (``parts``).

A new generator says which heads make which tensors (``_build``), and how (``make``); if that is no linear head, what
it is in index notation (``contraction``). The rest is here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from hyperfan.codes.codes import Codes
from hyperfan.codes.moments import expected_moment, measured_moments
from hyperfan.errors import HyperfanError, InitError
from hyperfan.formulas.contraction import LINEAR_HEAD, Contraction
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim, Draw, InnerParameter, LayerVariance, Moments, Solution
from hyperfan.generators.base import Base
from hyperfan.generators.config import BuildContext, GeneratorConfig
from hyperfan.generators.layout import HeadLayout, evenly_spaced
from hyperfan.generators.linear_map import NO_STEP, Head, LinearMap
from hyperfan.generators.part import Part
from hyperfan.generators.solving import check_aims, solve
from hyperfan.generators.stand_in import Order, OrderOf, Sizes, StandIn, cheaper
from hyperfan.mainnet.spec import TensorSpec

Tensors = dict[str, Tensor]
Skip = Collection[int]
"""Indices of tensors that are not needed."""
Steps = Mapping[str, Tensor]
"""Changes of a generator's parameters, by name."""
NO_STEPS: Steps = MappingProxyType({})
Factors = tuple[Tensor, ...]
"""Plain tensors that a layer can run from in place of a generated one: its code, or the factors of a product."""


class LowRankUpdate(NamedTuple):
    """An update B·A of a weight, or of its transpose if that is stored as (in, out).

    Args:
        b: (…, out, rank).
        a: (…, rank, in).
    """

    b: Tensor
    a: Tensor


class Generator(nn.Module, ABC):
    """Makes the generated tensors of a mainnet from codes.

    Attributes:
        config: the user's choices.
        tensors: what it makes.
        width: size of a code.
        head_width: size of what a head reads, d_k.
        n: number of codes; by default one for each tensor.
        spans: the codes of each tensor, from the first to one past the last.
        names: the layout of each tensor's heads; mostly the name of its only head.
        layouts: the heads.
        exclusive: whether each code belongs to one tensor.
        scattered: tensors whose mean square may differ from their variance by more than their own sampling error,
            because few codes or factors make them.
        scale: buffer of factors that belong to single tensors.
        base: what tensors have in common for all codes, where no head's bias holds it.
    """

    config: GeneratorConfig
    names: list[str]
    layouts: dict[str, HeadLayout]
    exclusive = True
    scattered: Collection[str] = ()
    scale: Tensor
    base: Base | None
    bias_may_hold_base = False
    """Whether the bias of a tensor's head is free to hold its base, because it serves no other tensor."""

    def __init__(self, config: GeneratorConfig, context: BuildContext) -> None:
        super().__init__()
        self.config = config
        self.tensors, self.width, self.head_width = tuple(context.tensors), context.width, context.width
        self.n = len(self.tensors)
        self.spans = [slice(i, i + 1) for i in range(self.n)]
        self.base = None

    def _build(self, layouts: dict[str, HeadLayout], scale: tuple[int, ...], context: BuildContext) -> None:
        """Add the heads, and a scale of this shape."""
        self.layouts = layouts
        for layout in layouts.values():
            for name, outputs in layout.heads.items():
                dtype = self.tensors[layout.tensors[0]].dtype
                self.add_module(name, Head(self.head_width, outputs, context.device, dtype))
        self.register_buffer("scale", torch.ones(scale, device=context.device, dtype=context.dtype))

    def add_base(self, values: Mapping[str, Tensor], device: torch.device, *, multiply: bool) -> None:
        """Let tensors stand on a :class:`Base`; those that start constant have one only if its value is given."""
        based = [t for t in self.tensors if t.start is None or t.name in values]
        self.base = Base(based, values, device, multiply=multiply)

    @property
    def bias_holds_base(self) -> bool:
        """Whether the biases of heads hold what tensors have in common for all codes."""
        return self.bias_may_hold_base and self.base is None

    @property
    def owns_heads(self) -> bool:
        """Whether its heads are its own; those of another net are started, drawn and saved there."""
        return self.config.codes is None

    def head(self, name: str) -> Head:
        """One of its heads."""
        found = self._modules[name]
        assert isinstance(found, Head)
        return found

    def heads_of(self, index: int) -> list[Head]:
        """The heads that make a tensor."""
        return [self.head(name) for name in self.layouts[self.names[index]].heads]

    @property
    def code_dtype(self) -> torch.dtype:
        """The dtype that codes should have."""
        return cast(Tensor, self._buffers["scale"]).dtype  # at every call, where an attribute takes ten times as long

    # ── make ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def forward(
        self, codes: Tensor, *, skip: Skip = (), defer: Skip = (), copy: bool = False, steps: Steps = NO_STEPS
    ) -> dict[str, Any]:
        """Generate tensors as :meth:`make` does, each on its base if it has one; one code may serve all tensors.

        Those to ``defer`` come as their :meth:`factors`, from which :meth:`assemble` makes what stands for them.
        """
        codes = codes if self.reads_one(codes) else self.spread(codes)
        tensors = self.make(codes, skip={*skip, *defer} if defer else skip, copy=copy, steps=steps)
        tensors = tensors if self.base is None else self.base(tensors, steps)
        deferred = self.factors(codes, defer) if defer else {}
        return {**tensors, **{self.tensors[i].name: found for i, found in deferred.items()}} if defer else tensors

    def for_layers(self, codes: Tensor) -> Tensors:
        """What the mainnet runs with, for one code of each tensor: tensors, or what stands for them."""
        defer = self.deferrable(many=False)
        made = self(codes, defer=defer)
        return self.assemble(made) if defer else made

    def assemble(self, made: Mapping[str, Any], order: OrderOf = lambda _, sizes: cheaper(sizes)) -> Tensors:
        """What the mainnet runs with, of what :meth:`forward` returned: stand-ins in place of factors."""
        tensors = dict(made)
        for i, t in enumerate(self.tensors):
            if type(made.get(t.name)) is tuple:
                tensors[t.name] = self.stand_in(i, made[t.name], partial(order, t.name))
        return tensors

    def spread(self, codes: Tensor) -> Tensor:
        """A code for each tensor or chunk, (…, n, width), also where one, (…, 1, width), serves them all."""
        return codes if codes.shape[-2] == self.n else codes.expand(*codes.shape[:-2], self.n, codes.shape[-1])

    def reads_one(self, codes: Tensor) -> bool:
        """Whether one code, (…, 1, width), that serves all tensors need not be spread."""
        return False

    @abstractmethod
    def make(self, codes: Tensor, *, skip: Skip = (), copy: bool = False, steps: Steps = NO_STEPS) -> Tensors:
        """Generate tensors from (n, width) codes, or a batch of each from (batch, n, width), without their base.

        Args:
            codes: as :class:`Codes` makes them.
            skip: tensors that are not needed.
            copy: whether the tensors are for keeping; what a trainer lends changes with training.
            steps: changes of the generator's parameters after which to generate.
        """

    def _product(self, name: str, codes: Tensor, steps: Steps) -> Tensor:
        """What a map makes of codes after a step."""
        part = self._modules[name]
        assert isinstance(part, LinearMap)
        step = (steps.get(f"{name}.weight"), steps.get(f"{name}.bias")) if steps else NO_STEP
        return part.product(codes, step)

    def head_inputs(self, codes: Tensor) -> Tensor:
        """What the heads read of (…, n, width) codes: (…, n, head_width)."""
        return codes

    def deferrable(self, *, many: bool) -> Sequence[int]:
        """Tensors, by index, that layers can do without; with ``many`` codes also where that hangs on their sizes."""
        return []

    def factors(self, codes: Tensor, indices: Skip) -> dict[int, Factors]:
        """What stand-ins of deferrable tensors are made from, by index, of codes as :meth:`make` has them."""
        raise HyperfanError(f"{type(self).__name__} defers no tensors")

    def stand_in(self, index: int, factors: Factors, order: Callable[[Sizes], Order]) -> StandIn:
        """Something that stands for a deferrable tensor, from its factors."""
        raise HyperfanError(f"{type(self).__name__} defers no tensors")

    def low_rank_updates(self, codes: Tensor) -> Mapping[str, LowRankUpdate] | None:
        """The updates B·A of low rank that one code of each tensor makes, by name; ``None`` if it makes no updates."""
        return None

    def why_saved_unfit(self, in_first: Collection[str]) -> str | None:
        """The reason why saved values would be misread, if there is one.

        Args:
            in_first: the names of weights that were stored as (in, out) when values were saved.
        """
        return None

    # ── variance ───────────────────────────────────────────────────────────────────────────────────────────────────

    def expected_moments(self, codes: Codes, *, exact: bool, trunk_preserves: bool) -> list[float | None]:
        """‖h‖² of what the heads read for each tensor, before anything is drawn; ``None`` where only a draw tells."""
        moment = expected_moment(codes, self.width, exact=exact, trunk_preserves=trunk_preserves)
        return [moment] * len(self.tensors)

    def measured_moments(self, codes: Codes) -> list[float]:
        """‖h‖² of what the heads read for each tensor, from the codes and the parameters as they are."""
        return measured_moments(codes, self.spans)

    def inner_parameters(self, layer: LayerVariance) -> list[InnerParameter]:
        """The parameters between codes and heads, from a method's variance for a layer of the hypernet."""
        return []

    def level_inner_(self, codes: Codes) -> None:
        """Let what lies between codes and heads, just drawn, bring every code to the second moment expected of it."""

    def head_fans(self, index: int) -> Fans:
        """The fans of the layer that makes a tensor, or of the first: d_k in, number of outputs out."""
        return self.fans_of(self.layouts[self.names[index]])[0]

    def fans_of(self, layout: HeadLayout) -> list[Fans]:
        """The fans of each of a layout's heads."""
        return [Fans(self.head_width, outputs) for outputs in layout.heads.values()]

    def contraction(self, index: int, moment: float) -> Contraction:
        """A tensor in index notation, before its scale, whose heads read codes of this ‖h‖²."""
        return Contraction(LINEAR_HEAD, {"k": self.head_width}, [None, moment / self.head_width])

    def tensor_variance(self, index: int, variance: float, moment: float) -> float:
        """Variance of a tensor, before its scale, whose heads have this variance and read codes of this ‖h‖²."""
        return self.contraction(index, moment).variance(variance)

    def started_variance(self, index: int, variance: float, moment: float) -> float:
        """Variance of what is generated of a tensor that was solved for, from the head variance and ‖h‖² found."""
        return self.tensor_variance(index, variance, moment)

    def is_linear(self, index: int) -> bool:
        """Whether a tensor is linear in one head."""
        return self.contraction(index, 1.0).is_linear

    def check_aims(self, aims: Sequence[Aim]) -> None:
        """Raise if tensors cannot start so that they meet their aims; which codes there are does not matter."""
        check_aims(self, aims)

    def solve(self, aims: Sequence[Aim], moments: Moments) -> list[Solution]:
        """How each tensor starts, so that it meets its aim with codes of these second moments."""
        return solve(self, aims, moments)

    def adopt_(self, aims: Callable[[Sequence[TensorSpec]], list[Aim]]) -> list[Solution]:
        """Start on heads of another net as they are, by scales alone; ``aims`` has a method's aims for tensors."""
        raise HyperfanError(f"{type(self).__name__} has heads of its own to start")

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw the heads, and set the scales, as solved."""
        for layout in self.layouts.values():
            solution = solutions[layout.tensors[0]]
            assert solution.variance is not None
            for name in layout.heads:
                draw(self.head(name).weight, solution.variance)
                common = solution.aim.common if self.bias_holds_base else 0.0
                draw(self.head(name).bias, common, mean=solution.aim.mean)
        if self.base is not None:
            self.base.write_({t.name: s.aim for t, s in zip(self.tensors, solutions, strict=True)}, draw)
        self._set_scales_([s.scale for s in solutions])

    # ── scale ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """Multiply tensors, given by name, without touching the others.

        Returns for each the part of its factor that went into the parameters of its head; the rest is in ``scale``.
        """
        self.scale.mul_(self._like_scale([factors.get(t.name, 1.0) for t in self.tensors]))
        return {}

    @torch.no_grad()
    def _set_scales_(self, scales: Sequence[float]) -> None:
        """Let the scale of each tensor be this."""
        self.scale.copy_(self._like_scale(scales))

    def _like_scale(self, values: Sequence[float]) -> Tensor:
        """A value for each tensor, in the dtype and on the device of ``scale``."""
        return torch.tensor(values, dtype=torch.float64).to(self.scale)

    def _check_bias_is_zero(self, name: str) -> None:
        """A head's bias does not go through the codes; where a code is scaled it must be zero, as at the start."""
        if self.head(name).bias.any():
            raise InitError(
                f"the bias of head {name} is trained, and serves several tensors, so that one of them cannot be scaled "
                f"alone: do it before training, or use {self.config.separate_heads}"
            )

    # ── structure ──────────────────────────────────────────────────────────────────────────────────────────────────

    def parts(self) -> list[Part]:
        """The linear maps of the generator: its heads, each with the codes of its tensors."""
        return [
            Part(name, self.head(name), layout.codes, partial(self._inputs_of, layout))
            for layout in self.layouts.values()
            for name in layout.heads
        ]

    def common_parameters(self) -> list[nn.Parameter]:
        """The parameters that all codes have in common: those of bases, and those that are in no map."""
        return [*(() if self.base is None else self.base.parameters()), *self.parameters(recurse=False)]

    def _inputs_of(self, layout: HeadLayout, codes: Tensor) -> Tensor:
        return self._select(self.head_inputs(codes), layout.rows)

    def _select(self, codes: Tensor, rows: Sequence[slice]) -> Tensor:
        """Some of the codes, (…, rows, width)."""
        even = evenly_spaced(rows)
        return torch.cat([codes[..., s, :] for s in rows], -2) if even is None else codes[..., even, :]

    def rows_of(self, name: str) -> tuple[Sequence[str], Sequence[int]] | None:
        """The tensors that are rows of what a map makes, in order, and their shape; ``None`` where it is not so."""
        return None

    def sync(self) -> None:
        """Write to all maps what was trained without them."""
        for part in self.parts():
            part.map.sync()

    def shared_heads(self) -> list[str]:
        """Heads that would make several tensors equal if these had equal codes; some tensors start constant anyway."""
        drawn = [[i for i in layout.tensors if self.tensors[i].start is None] for layout in self.layouts.values()]
        return [name for name, members in zip(self.layouts, drawn, strict=True) if len(members) > 1]

    @abstractmethod
    def summary(self) -> str:
        """The generator, in a few words."""
