"""Classical init on a hypernet: each of its layers, the head too, is treated as a layer like any other.

For the head, fan-in is d_k and fan-out is the number of weights it makes; that its outputs are *weights* of another
layer is what such a method does not know.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hyperfan.formulas import targets
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register

Mean = Callable[[float, float], float]


def fan_in(a: float, b: float) -> float:
    """Choose the variance for the forward pass."""
    return a


def fan_out(a: float, b: float) -> float:
    """Choose the variance for the backward pass."""
    return b


MEANS: dict[str, Mean] = {
    "fan-in": fan_in,
    "fan-out": fan_out,
    "harmonic": targets.harmonic,
    "geometric": targets.geometric,
    "arithmetic": targets.arithmetic,
}
EQUATIONS = {
    "fan-in": "{}/d_k",
    "fan-out": "{}/outputs",
    "harmonic": "2·{}/(d_k + outputs)",
    "geometric": "{}/√(d_k·outputs)",
    "arithmetic": "{}·(1/d_k + 1/outputs)/2",
}


@dataclass(frozen=True)
class ClassicalTrunk:
    """The variance of a layer of the trunk: from its fans, times the gain if ``gained``."""

    mean: str
    gained: bool

    def __call__(self, read: Reading) -> float:
        """The variance of one layer."""
        gain_in, gain_out = (read.gain_in, read.gain_out) if self.gained else (1.0, 1.0)
        return MEANS[self.mean](gain_in / read.fan_in, gain_out / read.fan_out)


@dataclass(frozen=True)
class ClassicalHead:
    """The variance of a head from the head's fans; the gain is that of the layer it makes."""

    mean: str
    gained: bool

    def __call__(self, read: Reading, head: Fans, factor: float = 1.0) -> Aim:
        """The aim for one tensor."""
        of_head = replace(read, fan_in=head.fan_in, fan_out=head.fan_out)
        variance = ClassicalTrunk(self.mean, self.gained)(of_head) * factor**2
        equation = "Var(H) = " + EQUATIONS[self.mean].format("gain" if self.gained else "1")
        gain = (read.gain_in if self.gained else 1.0) if self.mean == "fan-in" else None
        return Aim(equation + ("·factor²" if factor != 1 else ""), head=variance, gain=gain)


def register_family(family: str, paper: str, gained: bool) -> None:
    """Register fan-in, fan-out and their three means under the family's name."""
    for mean in MEANS:
        register(
            Method(
                f"{family}-{mean}",
                paper,
                f"classical {family.title()} on every layer of the hypernet, {mean}",
                ClassicalHead(mean, gained),
                trunk=ClassicalTrunk(mean, gained),
                needs_nonlinearity=gained,
                needs_fans=gained,
            )
        )
