"""What a method wants of each tensor, and how a generator starts to meet it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from hyperfan.formulas.fans import Fans
from hyperfan.mainnet.spec import Role

Draw = Callable[..., Tensor]
""":func:`hyperfan.codes.fill_` with its distribution and source of randomness set: ``draw(tensor, variance)``."""
LayerVariance = Callable[[Fans], float]
"""A method's variance for a linear layer of the hypernet that reads embeddings."""

Moments = Sequence[float | None]
"""‖h‖² of each tensor's codes; ``None`` where it is not known yet."""


@dataclass(frozen=True)
class Aim:
    """What a method wants of a tensor: a target variance for the generator to reach, or the head's variance itself.

    Args:
        equation: where the number comes from.
        target: variance of the tensor.
        head: variance of the layer that makes it, from that layer's fans (d_k in, number of outputs out), for methods
            that do not look at what is made.
        base: beside ``head``, variance of a base that all codes have in common, from the fans of the same layer.
        factor: beside ``head``, a factor on the tensor that is no part of the layer's weights.
        gain: the gain that went into it, if any.
        mean: what all values start around.
        share: part of the target that is generated, ρ; the rest is for a base that all codes have in common.
        multiplies: whether what is generated multiplies that base, W = W⁰ ⊙ (1 + M).
        shared_gain: where a head serves tensors of any target, its variance is this over its width, and the rest of the
            target goes into the scale of each tensor.
    """

    equation: str
    target: float | None = None
    head: Callable[[Fans], float] | None = None
    gain: float | None = None
    mean: float = 0.0
    shared_gain: float = 1.0
    share: float = 1.0
    multiplies: bool = False
    base: Callable[[Fans], float] | None = None
    factor: float = 1.0
    base_variance: float = 0.0
    """The variance of ``base``, once the layer is known."""

    def known_for(self, fans: Fans) -> "Aim":
        """The aim for a layer with these fans."""
        return self if self.base is None else replace(self, base_variance=self.base(fans))

    @property
    def generated(self) -> float | None:
        """Variance of what is generated, ρ·v; of a factor on the base ρ/(1 − ρ)."""
        if self.target is None:
            return None
        return self.share / (1 - self.share) if self.multiplies else self.share * self.target

    @property
    def common(self) -> float:
        """Variance of the base, (1 − ρ)·v."""
        return self.base_variance if self.target is None else (1 - self.share) * self.target


@dataclass(frozen=True)
class Solution:
    """How a generator starts so that one tensor meets its aim.

    Args:
        head: name of what makes it.
        aim: of the method.
        variance: of the weights of its heads; ``None`` while ‖h‖² is not known.
        scale: factor on the code, or on what is made of it, that no other tensor sees.
        note: how the equation of the aim goes on.
    """

    head: str
    aim: Aim
    variance: float | None
    scale: float
    note: str


class InnerParameter(NamedTuple):
    """The start of a parameter between codes and heads, by its name in the generator."""

    name: str
    role: Role
    equation: str
    variance: float = 0.0
    fan_in: float | None = None
    fan_out: float | None = None
