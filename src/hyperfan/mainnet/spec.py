"""``Spec``: a mainnet as it was read, in frozen values that print, compare and pickle."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch

from hyperfan.errors import MainnetError, nearest
from hyperfan.formulas.fans import Fans
from hyperfan.formulas.gains import GainCurve, Gains
from hyperfan.mainnet.gains import named_curve
from hyperfan.text import number, table

Role = Literal["weight", "bias", "scale", "shift", "slope", "other"]
"""The use that a layer makes of a parameter. Scale and shift are a norm's, a slope is PReLU's; other has no rule."""


@dataclass(frozen=True)
class Nonlinearity:
    """A function applied between two layers, and its gains (``None`` where they cannot be known).

    ``frequency`` is the ω of sin(ω·z) or cos(ω·z), which have a period and so ask for z of a certain scale.
    """

    name: str
    curve: GainCurve | None = field(repr=False)
    frequency: float = 1.0

    @property
    def gains(self) -> Gains | None:
        """The gains for a pre-activation of variance 1."""
        return None if self.curve is None else self.curve.at(1.0)

    def gains_at(self, variance: float) -> Gains:
        """The gains for a pre-activation of this variance, where they are known."""
        assert self.curve is not None
        if self.frequency == 1:
            return self.curve.at(variance)
        # f(z) = sin(ω·z) has the values of sin at ω²·variance, which a table of f may not reach, and ω times its slope.
        found = named_curve(self.name).at(variance * self.frequency**2)
        return Gains(found.forward, found.backward / self.frequency**2)

    @classmethod
    def named(cls, name: str) -> "Nonlinearity":
        """The nonlinearity of this name in torch: "relu", "gelu", "linear", …"""
        return cls(name, named_curve(name))


IDENTITY = Nonlinearity.named("linear")


@dataclass(frozen=True)
class TensorSpec:
    """One parameter of the mainnet.

    Args:
        name: the parameter's name in the mainnet; of several tied ones, the first.
        aliases: the other names of a tied parameter.
        role: what its layer does with it.
        layer: path of the module that owns it.
        kind: class name of that module.
        fans: of the weight; a bias has those of the weight it belongs to.
        in_first: whether a weight's first dimension is that of its layer's inputs, as in a transposed convolution.
        weights: for a bias, the names of the weights to whose output it is added.
        consumes: the nonlinearity whose output the layer reads (``None``: not known).
        reads: the one weight whose layer, through that nonlinearity, feeds this layer; ``None`` if there are several.
        followed_by: the nonlinearity applied to the layer's output (``None``: not known).
        reads_inputs: whether the layer reads the inputs of the mainnet.
        scale_assumed: whether the scale of the layer's input is only assumed, because it is a sum of several tensors, a
            mixture or a pool.
        logits: for the layer of queries whose products with keys no √d divides, the second moment that the attention's
            logits would have if it put out unit variance; else 1.
        looked_up: whether its rows are looked up too, though it is the weight of a layer, which sets its scale: a tied
            table.
        beside: for a table, the tied one to whose rows its own are added.
        residual_blocks: if the layer ends a residual branch, how many such branches the mainnet has; else 0.
        elementwise: whether it was seen to be no weight, though no rule says so: it is added to values, as positions,
            multiplies them one by one, or stands beside them, as a class token. It starts as it came.
        hand_set: whether its authors set its values by hand, as those of a state space, so that only its name or a
            pattern generates it.
        start: the value it starts at when no variance applies: norm scales 1, shifts 0, slopes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    role: Role
    layer: str
    kind: str
    aliases: tuple[str, ...] = ()
    fans: Fans | None = None
    in_first: bool = False
    weights: tuple[str, ...] = ()
    consumes: Nonlinearity | None = None
    reads: str | None = None
    followed_by: Nonlinearity | None = None
    reads_inputs: bool = False
    scale_assumed: bool = False
    looked_up: bool = False
    beside: str | None = None
    residual_blocks: int = 0
    logits: float = 1.0
    elementwise: bool = False
    hand_set: bool = False
    start: float | None = None

    @property
    def has_rule(self) -> bool:
        """Whether it is known how to start it, better than it starts by itself."""
        return self.role != "other" and not self.hand_set

    @property
    def may_be_weight(self) -> bool:
        """Whether it is a weight, or a matrix that may be one: what it does is seen only if the mainnet is run."""
        return self.role == "weight" or (self.role == "other" and len(self.shape) > 1 and not self.elementwise)

    @property
    def numel(self) -> int:
        """The number of values."""
        return torch.Size(self.shape).numel()


@dataclass(frozen=True)
class Spec:
    """A mainnet, read once: its parameters in registration order, and its buffers with their starting values."""

    tensors: tuple[TensorSpec, ...]
    buffers: tuple[tuple[str, float | None], ...] = ()

    def __getitem__(self, name: str) -> TensorSpec:
        for tensor in self.tensors:
            if name == tensor.name or name in tensor.aliases:
                return tensor
        raise MainnetError(f"the mainnet has no parameter '{name}': {nearest(name, [t.name for t in self.tensors])}")

    @property
    def canonical_names(self) -> dict[str, str]:
        """The name under which each parameter is listed, by its name and, if it is tied, by its aliases."""
        return {alias: t.name for t in self.tensors for alias in (t.name, *t.aliases)}

    @property
    def unknown_nonlinearities(self) -> tuple[str, ...]:
        """The weights around which a nonlinearity is not known."""
        weights = (t for t in self.tensors if t.role == "weight")
        return tuple(t.name for t in weights if t.consumes is None or t.followed_by is None)

    def __iter__(self) -> Iterator[TensorSpec]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __str__(self) -> str:
        header = ["tensor", "shape", "role", "layer", "fan-in", "fan-out", "consumes", "followed by"]
        return table(header, [_row(t) for t in self.tensors])


def qualified_name(path: str, local: str) -> str:
    """The name in the mainnet of a parameter or module that the module at this path calls ``local``.

    >>> qualified_name("block.0", "weight"), qualified_name("", "weight")
    ('block.0.weight', 'weight')
    """
    return f"{path}.{local}" if path else local


def layer_and_module(name: str) -> tuple[str, str]:
    """Split the name of a parameter behind its first index: the repeated layer, and the module that it is in there.

    Modules of one name, such as all queries of a transformer, are of one kind.

    >>> layer_and_module("model.layers.3.self_attn.q_proj.weight"), layer_and_module("lm_head.weight")
    (('model.layers.3', 'self_attn.q_proj.weight'), ('', 'lm_head.weight'))
    """
    parts = name.split(".")
    end = next((i + 1 for i, part in enumerate(parts) if part.isdecimal()), 0)
    return ".".join(parts[:end]), ".".join(parts[end:])


def _row(t: TensorSpec) -> list[str]:
    return [
        t.name,
        "×".join(map(str, t.shape)),
        t.role,
        t.kind,
        number(t.fans.fan_in if t.fans else None),
        number(t.fans.fan_out if t.fans else None),
        t.consumes.name if t.consumes else "?" if t.role == "weight" else "–",
        t.followed_by.name if t.followed_by else "?" if t.role == "weight" else "–",
    ]
