"""Classical init on a hypernet: each of its layers, the head too, is treated as a layer like any other.

For the head, fan-in is d_k and fan-out is the number of weights it makes; that its outputs are *weights* of another
layer is what such a method does not know.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hyperfan.formulas import targets
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register


def forward(a: float, b: float) -> float:
    """Choose the variance for the forward pass."""
    return a


def backward(a: float, b: float) -> float:
    """Choose the variance for the backward pass."""
    return b


MEANS: dict[str, tuple[Callable[[float, float], float], str]] = {
    "fan-in": (forward, "{}/d_k"),
    "fan-out": (backward, "{}/outputs"),
    "harmonic": (targets.harmonic, "2·{}/(d_k + outputs)"),
    "geometric": (targets.geometric, "{}/√(d_k·outputs)"),
    "arithmetic": (targets.arithmetic, "{}·(1/d_k + 1/outputs)/2"),
}
"""How the variances for both passes become one, and the equation for a head."""


def layer_variance(read: Reading, *, mean: str, gained: bool) -> float:
    """The variance of a layer of the trunk: from its fans, times the gain if ``gained``."""
    gain_in, gain_out = (read.gain_in, read.gain_out) if gained else (1.0, 1.0)
    return MEANS[mean][0](gain_in / read.fan_in, gain_out / read.fan_out)


def head_aim(read: Reading, *, mean: str, gained: bool, factor: float = 1.0) -> Aim:
    """The variance of a head from the head's fans; the gain is that of the layer it makes."""

    def variance(fans: Fans) -> float:
        of_head = replace(read, fan_in=fans.fan_in, fan_out=fans.fan_out)
        return layer_variance(of_head, mean=mean, gained=gained) * factor**2

    equation = "Var(H) = " + MEANS[mean][1].format("gain" if gained else "1") + ("·factor²" if factor != 1 else "")
    gain = (read.gain_in if gained else 1.0) if mean == "fan-in" else None
    return Aim(equation, head=variance, gain=gain)


KAIMING_AIM = partial(head_aim, mean="fan-in", gained=True)
KAIMING_TRUNK = partial(layer_variance, mean="fan-in", gained=True)


def register_family(family: str, paper: str, gained: bool) -> None:
    """Register fan-in, fan-out and their three means under the family's name."""
    for mean in MEANS:
        register(
            Method(
                f"{family}-{mean}",
                paper,
                f"classical {family.title()} on every layer of the hypernet, {mean}",
                partial(head_aim, mean=mean, gained=gained),
                trunk=partial(layer_variance, mean=mean, gained=gained),
                needs_nonlinearity=gained,
                needs_fans=gained,
            )
        )
