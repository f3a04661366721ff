"""What a generator is: a module that turns codes into tensors, and answers four questions.

*make*: the tensors of some codes (``make``), or stand-ins for them (``stand_in``). *variance*: what its parameters'
variances make of each tensor (``tensor_variance``), and which reach a wanted one (``solve``, ``write_``). *scale*:
multiply one tensor without touching the others (``scale_``). *structure*: which of its parameters enter linearly, and
with which codes (``parts``).
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from hyperfan.codes.codes import Codes
from hyperfan.codes.embedding import Embedding
from hyperfan.codes.embeddings import NO_IDENTITY, Identity
from hyperfan.codes.moments import expected_moment, measured_moments
from hyperfan.errors import HyperfanError
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Draw, Goal, InnerParameter, LayerVariance, Solution
from hyperfan.generators.linear_map import Head, LinearMap, Step
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class Part:
    """A linear map in a generator, as an optimiser may use it.

    Args:
        name: its name in the generator.
        map: the map.
        codes: number of codes that it reads in one call.
        inputs: from the net's (n, width) codes to those that the map reads; ``None`` where these come from another map.
        input_map: that other map.
    """

    name: str
    map: LinearMap
    codes: int
    inputs: Callable[[Tensor], Tensor] | None
    input_map: LinearMap | None = None

    @property
    def gradient_rank(self) -> int:
        """Rank of its weight's gradient in one call, at most; of each layer's, if each code has one."""
        return 1 if self.map.layer_per_code else self.codes


@dataclass(frozen=True)
class BuildContext:
    """What a generator is built for.

    Args:
        tensors: what to generate.
        width: size of a code.
        normalise: whether what the heads read is scaled to root mean square 1.
        device: of the parameters.
        dtype: of the codes.
    """

    tensors: Sequence[TensorSpec]
    width: int
    normalise: bool
    device: torch.device
    dtype: torch.dtype


class Request(NamedTuple):
    """How tensors are to be made in one call.

    Args:
        skip: tensors that are not needed, by index.
        copy: whether the tensors are for keeping; what a trainer lends changes with training.
        steps: changes of the generator's parameters, by name, after which to generate.
    """

    skip: Collection[int] = ()
    copy: bool = False
    steps: Mapping[str, Tensor] = MappingProxyType({})

    def step(self, part: str) -> Step:
        """The changes of one part's weight and bias."""
        return self.steps.get(f"{part}.weight"), self.steps.get(f"{part}.bias")


class Generator(nn.Module, ABC):
    """Makes the generated tensors of a mainnet from codes.

    Attributes:
        config: the user's choices.
        tensors: what it makes.
        width: size of a code.
        head_width: size of what a head reads, d_k.
        n: number of codes; by default one for each tensor.
        spans: the codes of each tensor, from the first to one past the last.
        names: the head that makes each tensor.
        exclusive: whether each code belongs to one tensor.
        scattered: tensors whose mean square may differ from their variance by more than their own sampling error,
            because few codes or factors make them.
        scale: buffer of factors that belong to single tensors.
    """

    config: "GeneratorConfig"
    names: list[str]
    exclusive = True
    scattered: Collection[str] = ()
    scale: Tensor

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self.tensors, self.width, self.head_width = tuple(context.tensors), context.width, context.width
        self.n = len(self.tensors)
        self.spans = [slice(i, i + 1) for i in range(self.n)]

    def head(self, name: str) -> Head:
        """One of its heads."""
        found = self._modules[name]
        assert isinstance(found, Head)
        return found

    # ── make ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def forward(
        self,
        codes: Tensor,
        *,
        skip: Collection[int] = (),
        copy: bool = False,
        steps: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> dict[str, Tensor]:
        """Generate tensors from (n, width) codes, or a batch of each from (batch, n, width), as a request says."""
        return self.make(codes, Request(skip, copy, steps))

    @abstractmethod
    def make(self, codes: Tensor, request: Request) -> dict[str, Tensor]:
        """Generate every tensor but those to skip, from codes as :class:`Codes` makes them."""

    def head_inputs(self, codes: Tensor) -> Tensor:
        """What the heads read of (…, n, width) codes: (…, n, head_width)."""
        return codes

    def deferrable(self) -> list[int]:
        """Tensors, by index, that a layer can do without: it runs from a stand-in."""
        return []

    def stand_in(self, index: int, codes: Tensor, order: Callable[..., Any]) -> Tensor:
        """Something that stands for a deferrable tensor, from (n, width) codes."""
        raise HyperfanError(f"{type(self).__name__} has no stand-ins")

    # ── variance ───────────────────────────────────────────────────────────────────────────────────────────────────

    def expected_moments(self, codes: Codes, *, exact: bool, trunk_preserves: bool) -> list[float | None]:
        """‖h‖² of what the heads read for each tensor, before anything is drawn; ``None`` where only a draw tells."""
        moment = expected_moment(codes, self.width, exact=exact, trunk_preserves=trunk_preserves)
        return [moment] * len(self.tensors)

    def measured_moments(self, codes: Codes) -> list[float]:
        """‖h‖² of what the heads read for each tensor, from the codes and the parameters as they are."""
        return measured_moments(codes, self.spans)

    def write_inner_(self, layer: LayerVariance, codes: Codes, draw: Draw, *, level: bool) -> None:
        """Draw the parameters between codes and heads, if there are any.

        Args:
            layer: the method's variance for a layer of the hypernet.
            codes: where codes come from, already drawn.
            draw: fills a tensor.
            level: whether every code is brought to the second moment expected of it.
        """

    def inner_parameters(self, layer: LayerVariance) -> list[InnerParameter]:
        """What :meth:`write_inner_` draws."""
        return []

    @abstractmethod
    def head_fans(self, index: int) -> Fans:
        """The fans of the layer that makes a tensor: d_k in, number of outputs out."""

    @abstractmethod
    def tensor_variance(self, index: int, variance: float, moment: float) -> float:
        """Variance of a tensor, before its scale, whose heads have this variance and read codes of this ‖h‖²."""

    @abstractmethod
    def solve(self, goals: Sequence[Goal], moments: Sequence[float | None]) -> list[Solution]:
        """How to start each tensor, so that it meets its goal with codes of these second moments."""

    @abstractmethod
    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw the heads, and set the scales, as solved."""

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

    # ── structure ──────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def parts(self) -> list[Part]:
        """The linear maps of the generator."""

    def rows_of(self, name: str) -> tuple[Sequence[str], Sequence[int]] | None:
        """The tensors that are rows of what a map makes, in order, and their shape; ``None`` where it is not so."""
        return None

    def sync(self) -> None:
        """Write to all maps what was trained without them."""
        for part in self.parts():
            part.map.sync()

    def shared_heads(self) -> list[str]:
        """Heads that would make several tensors equal if these had equal codes."""
        return []

    @abstractmethod
    def summary(self) -> str:
        """What it is, in a few words."""


class GeneratorConfig(ABC):
    """What a user passes as ``heads=``: a frozen dataclass that builds a generator."""

    KINDS: ClassVar[dict[str, type["GeneratorConfig"]]] = {}

    def __init_subclass__(cls) -> None:
        GeneratorConfig.KINDS[cls.__name__] = cls

    @property
    def identity(self) -> Identity:
        """The embedding of each code beside the net's, if it is to have one."""
        return NO_IDENTITY

    def check(self, embedding: Embedding, has_trunk: bool) -> None:  # noqa: B027  # most generators go with anything
        """Raise if it does not go with the embedding or the trunk."""

    @abstractmethod
    def build(self, context: BuildContext) -> Generator:
        """A generator with these choices."""

    def to_json(self) -> dict[str, Any]:
        """Plain values from which :meth:`from_json` makes the same."""
        assert dataclasses.is_dataclass(self)
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "GeneratorConfig":
        """What :meth:`to_json` described; a TypeError or KeyError if it is not known here."""
        fields = dict(content)
        return GeneratorConfig.KINDS[fields.pop("kind")](**fields)


# ── names and places ───────────────────────────────────────────────────────────────────────────────────────────────


def merge_spans(spans: Sequence[slice]) -> list[slice]:
    """The same with neighbours merged.

    >>> merge_spans([slice(0, 2), slice(2, 3), slice(5, 6)])
    [slice(0, 3, None), slice(5, 6, None)]
    """
    found: list[slice] = []
    for s in spans:
        if found and found[-1].stop == s.start:
            found[-1] = slice(found[-1].start, s.stop)
        else:
            found.append(s)
    return found


def tensor_name(tensor: TensorSpec) -> str:
    """A name for a tensor's head that is stable, free of dots, and no attribute of a module."""
    return tensor.name.replace(".", "/") if "." in tensor.name else f"/{tensor.name}"


def shape_name(shape: Sequence[int], tensor: TensorSpec, tensors: Sequence[TensorSpec]) -> str:
    """A name for the head of a shape, with the tensor's dtype where that is not the same for all."""
    dtypes = {t.dtype for t in tensors}
    dtype = f"-{str(tensor.dtype).removeprefix('torch.')}" if len(dtypes) > 1 else ""
    return ("x".join(map(str, shape)) or "scalar") + dtype
