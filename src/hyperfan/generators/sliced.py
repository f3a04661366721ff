"""Slices: the heads of a larger mainnet make the tensors of a smaller one.

Of a generated tensor W the smaller mainnet gets the first values along each dimension, times a factor: if its layer
wants the variance v, and the larger one's was started at v′, W[:out, :in]·√(v/v′) has the variance v. Of queries, keys
and values, or of gates, that are stacked in one tensor, each is cut by itself.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes.codes import Codes
from hyperfan.errors import CheckpointError, InitError, MainnetError
from hyperfan.formulas.contraction import Contraction
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim, Solution
from hyperfan.generators.config import BuildContext, GeneratorConfig
from hyperfan.generators.generator import NO_STEPS, Generator, Skip, Steps, Tensors
from hyperfan.generators.linear_map import Head
from hyperfan.generators.part import Part
from hyperfan.generators.stand_in import cheaper
from hyperfan.mainnet.spec import TensorSpec

_GATED = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
STACKED: dict[str, tuple[tuple[str, ...], int]] = {
    "MultiheadAttention": (("in_proj_",), 3),
    **dict.fromkeys(("LSTM", "LSTMCell"), (_GATED, 4)),
    **dict.fromkeys(("GRU", "GRUCell"), (_GATED, 3)),
}
"""By the kind of layer: the beginnings of the names of parameters in which several are stacked, and how many."""


@dataclass(frozen=True, eq=False)
class Slices(GeneratorConfig):
    """The generator of another net, to be sliced.

    Args:
        source: the generator.
        source_codes: where its codes come from.
    """

    source: Generator
    source_codes: Codes

    @property
    def codes(self) -> Codes:
        """Where the source's codes come from."""
        return self.source_codes

    def build(self, context: BuildContext) -> "SlicedTensors":
        """A view of the source, without parameters of its own."""
        return SlicedTensors(self, context)

    def to_json(self) -> dict[str, Any]:
        """Raise, because only the net that has the heads can be saved."""
        raise CheckpointError(
            "this net uses the heads of the net whose for_mainnet() made it: save that one, and call for_mainnet() "
            "again after loading"
        )


class SlicedTensors(Generator):
    """A part of each tensor that another generator makes, at a scale of its own."""

    config: Slices

    def __init__(self, config: Slices, context: BuildContext) -> None:
        super().__init__(config, context)
        self.source = config.source
        place = {t.name: i for i, t in enumerate(self.source.tensors)}
        self.places = [place[t.name] for t in self.tensors]
        """For each tensor the index of the one in the source that it is a slice of."""
        for i, t in enumerate(self.tensors):
            _check_shape(t, self.source.tensors[self.places[i]])
            made = self.heads_of(i)[0].held[0]
            if (t.dtype, context.device) != (made.dtype, made.device):
                raise MainnetError(
                    f"'{t.name}' is {t.dtype} on {context.device}, and is generated as {made.dtype} on {made.device}: "
                    f"move the mainnet with .to('{made.device}', {made.dtype})"
                )
        self.n, self.width, self.head_width = self.source.n, self.source.width, self.source.head_width
        self.exclusive, self.layouts = self.source.exclusive, {}
        self.spans = [self.source.spans[i] for i in self.places]
        self.names = [self.source.names[i] for i in self.places]
        self.register_buffer("scale", self.source.scale.new_ones(len(self.tensors)))

    def make(self, codes: Tensor, *, skip: Skip = (), copy: bool = False, steps: Steps = NO_STEPS) -> Tensors:
        """The source's tensors, on their bases, cut and scaled; where it can be, only what is needed of them."""
        wanted = [i for i in range(len(self.tensors)) if i not in skip]
        others = set(range(len(self.source.tensors))) - {self.places[i] for i in wanted}
        of_source = {name.removeprefix("source."): step for name, step in steps.items()}
        in_part = set(self._in_part(steps))
        defer = [self.places[i] for i in wanted if i in in_part]
        made, tensors = self.source(codes, skip=others, defer=defer, steps=of_source), {}
        for i, t in ((i, self.tensors[i]) for i in wanted):
            cut, generated = partial(_first, shape=t.shape, blocks=blocks_in(t)), made[t.name]
            deferred = isinstance(generated, tuple)
            part = self.source.stand_in(self.places[i], generated, cheaper).part(cut) if deferred else cut(generated)
            tensors[t.name] = part * self.scale[i]
        return tensors

    def _in_part(self, steps: Steps) -> list[int]:
        """Tensors of which a part can be made: not those whose heads' gradients an optimiser keeps in factors."""
        if steps or torch.compiler.is_compiling():
            return []
        deferrable = self.source.deferrable(many=True)
        smaller = [i for i, t in enumerate(self.tensors) if t.numel < self.source.tensors[self.places[i]].numel]
        return [i for i in smaller if self.places[i] in deferrable and all(h.trainer is None for h in self.heads_of(i))]

    def head_inputs(self, codes: Tensor) -> Tensor:
        """What the heads of the source read."""
        return self.source.head_inputs(codes)

    # ── variance ───────────────────────────────────────────────────────────────────────────────────────────────────

    def adopt_(self, aims: Callable[[Sequence[TensorSpec]], list[Aim]]) -> list[Solution]:
        """Let each tensor start at its own target, and not at the target of the source's tensor."""
        here, there, found = aims(self.tensors), aims(self.source.tensors), []
        for index, (t, aim, i) in enumerate(zip(self.tensors, here, self.places, strict=True)):
            wanted, has = aim.target, there[i].target
            if (wanted == 0) != (has == 0):
                raise InitError(
                    f"'{t.name}' should start with variance {wanted:g} in this mainnet, and has {has:g} in the one "
                    "that the hypernet was built for, which no factor mends if one of them is 0: generate it in "
                    "neither, or use init='hyperfan-in'"
                )
            factor = math.sqrt(wanted / has) if wanted and has else 1.0
            found.append(
                Solution(self.names[index], aim, self.head_variance(index), factor, "; a slice, scaled by √(v/v′)")
            )
        self._set_scales_([solution.scale for solution in found])
        return found

    def measured_moments(self, codes: Codes) -> list[float]:
        """‖h‖² of what the source's heads read for each tensor."""
        moments = self.source.measured_moments(codes)
        return [moments[i] for i in self.places]

    def head_variance(self, index: int) -> float:
        """Mean square of the weights of a tensor's heads as they are."""
        squares = [head.weight.detach().double().square().mean().item() for head in self.heads_of(index)]
        return sum(squares) / len(squares)

    def heads_of(self, index: int) -> list[Head]:
        """The heads that make the source's tensor."""
        return self.source.heads_of(self.places[index])

    def head_fans(self, index: int) -> Fans:
        """The fans of the layer that makes the source's tensor."""
        return self.source.head_fans(self.places[index])

    def contraction(self, index: int, moment: float) -> Contraction:
        """The source's tensor in index notation."""
        return self.source.contraction(self.places[index], moment)

    def started_variance(self, index: int, variance: float, moment: float) -> float:
        """Variance of what the source generates of its tensor."""
        return self.source.started_variance(self.places[index], variance, moment)

    # ── structure ──────────────────────────────────────────────────────────────────────────────────────────────────

    def parts(self) -> list[Part]:
        """The linear maps of the source."""
        return self.source.parts()

    def common_parameters(self) -> list[nn.Parameter]:
        """The parameters of the source that all codes have in common, its bases' among them."""
        return self.source.common_parameters()

    def summary(self) -> str:
        """The generator that it takes slices of, in a few words."""
        return f"slices of {self.source.summary()}"


def blocks_in(tensor: TensorSpec) -> int:
    """How many tensors of one shape are stacked in this one, such as the gates of an LSTM; mostly 1."""
    prefixes, count = STACKED.get(tensor.kind, ((), 1))
    return count if tensor.name.rpartition(".")[2].startswith(prefixes) else 1


def _first(tensor: Tensor, shape: Sequence[int], blocks: int) -> Tensor:
    """The first values along each of the last dimensions, (…, *shape), in each of the blocks."""
    batch, before = tensor.shape[: tensor.ndim - len(shape)], tensor.shape[tensor.ndim - len(shape) :]
    if blocks > 1:
        tensor = tensor.reshape(*batch, blocks, before[0] // blocks, *before[1:])
    sizes = (blocks, shape[0] // blocks, *shape[1:]) if blocks > 1 else shape
    for i, size in enumerate(sizes, len(batch)):
        tensor = tensor if size == tensor.shape[i] else tensor.narrow(i, 0, size)  # which backward fills up with zeros
    return tensor.reshape(*batch, *shape)


def _check_shape(small: TensorSpec, large: TensorSpec) -> None:
    fits = len(small.shape) == len(large.shape) and all(s <= m for s, m in zip(small.shape, large.shape, strict=True))
    if not fits:
        raise MainnetError(
            f"'{small.name}' has shape {small.shape}, of which {large.shape} is not the larger: build the hypernet for "
            "the largest mainnet, and call its for_mainnet() for the others"
        )
