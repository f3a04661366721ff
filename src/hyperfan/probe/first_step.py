"""The first step of each optimiser: its direction, and how fast it lowers the loss.

A head makes W = H·h + β. With g = ∂L/∂W its gradients are ∂L/∂H = g⊗h and ∂L/∂β = g, and a first step at rate η moves

    SGD    each H_k by η·g·h_k         W by η·g·(Σ h_k² + 1)         ‖h‖² + 1 times as far as a step on W itself
    Adam   each H_k by η·sign(g·h_k)   W by η·sign(g)·(Σ |h_k| + 1)  ‖h‖₁ + 1 times as far

Adam's is m̂/(√v̂ + ε), where both moments are those of one gradient: g/(|g| + ε), the sign where |g| is far above ε.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor
from torch.optim import Optimizer

from hyperfan.errors import HyperfanError
from hyperfan.probe.moments import sum_of_magnitudes, sum_of_squares

OptimiserName = Literal["sgd", "adam", "adamw"]
ADAM_EPSILON = 1e-8
"""The default of torch.optim.Adam."""


@dataclass(frozen=True)
class FirstStep:
    """The first step of an optimiser with torch's defaults, without weight decay.

    Args:
        name, title: of the optimiser, as an argument and in a sentence.
        multiple: how many times as far a step on a head moves W as one on W itself, as a formula.
        direction: from the gradient of a parameter to minus its step at rate 1.
        slope: from the gradient to the decrease of the loss along that direction, for each unit of the rate; 0 for
            ``None``. It takes gradients to be far above ε.
    """

    name: OptimiserName
    title: str
    multiple: str
    direction: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor | None], float]


def _gradient(g: Tensor) -> Tensor:
    return g


def _smooth_sign(g: Tensor) -> Tensor:
    return g / g.abs().add_(ADAM_EPSILON)


_ADAM = FirstStep("adam", "Adam", "‖h‖₁ + 1", _smooth_sign, sum_of_magnitudes)
_SGD = FirstStep("sgd", "SGD", "‖h‖² + 1", _gradient, sum_of_squares)
FIRST_STEPS: dict[str, FirstStep] = {s.name: s for s in (_SGD, _ADAM, replace(_ADAM, name="adamw", title="AdamW"))}


def first_step(optimiser: str | Optimizer) -> FirstStep:
    """The first step of the optimiser of this name, or of one that was built.

    >>> first_step("adamw").multiple
    '‖h‖₁ + 1'
    """
    name = type(optimiser).__name__.lower() if isinstance(optimiser, Optimizer) else optimiser
    if not isinstance(name, str) or name not in FIRST_STEPS:
        seen = repr(optimiser) if isinstance(optimiser, str) else f"a {type(optimiser).__name__}"
        raise HyperfanError(f"optimiser= is {seen}: choose {', '.join(map(repr, FIRST_STEPS))}, or pass one of these")
    return FIRST_STEPS[name]
