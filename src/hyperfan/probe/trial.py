"""Steps that are tried and undone: their effect on the loss and the rate that the curvature allows, and what moves.

What stands still at the start, but moves once something else has moved, is no fault. A head of zeros on a bias makes
the same weights for every code, and hands no gradient to the trunk; after its first step it does neither. Of a product
whose factors are both zero, no step ever moves either.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from hyperfan.probe.first_step import FirstStep
from hyperfan.probe.losses import Loss
from hyperfan.probe.subject import SEED, Subject

ROUNDING = 1e-5
"""Share of the loss below which differences are not looked at: float32 sums have them."""
FIRST_DECREASE = 0.05
"""Share of the loss by which the first step that the curvature is measured with would lower it, if it were straight."""
MAX_STEPS = 12
VISIBLE_STEP = 0.1
"""Largest change of a parameter, large enough to show in what is generated."""


class Trial(NamedTuple):
    """The loss before and after one step of an optimiser at this learning rate, on everything that is trained.

    ``stable_rate`` is the rate up to which a step lowers the loss, by the curvature along it; ``None`` if that is not
    seen. Where the loss is no parabola, it may go on falling beyond it.
    """

    optimiser: FirstStep
    lr: float
    before: float
    after: float
    stable_rate: float | None


@contextmanager
def stepped(directions: Iterable[tuple[Tensor, Tensor]], rate: float) -> Iterator[None]:
    """Let parameters be a step against these directions away, and then as they were."""
    directions = list(directions)
    saved = [p.detach().clone() for p, _ in directions]
    try:
        for p, d in directions:
            p.data.add_(d, alpha=-rate)  # through .data, so that a graph the user still holds stays valid
        yield
    finally:
        for (p, _), old in zip(directions, saved, strict=True):
            p.data.copy_(old)


def try_step(
    subject: Subject,
    loss: Loss,
    start: float,
    gradients: Iterable[tuple[Tensor, Tensor]],
    optimiser: FirstStep,
    lr: float,
) -> Trial | None:
    """Try a step from this mean loss, on parameters with their gradients; ``None`` where all of these are zero."""
    directions: list[tuple[Tensor, Tensor]] = []
    slope = 0.0
    for parameter, gradient in gradients:
        directions.append((parameter, optimiser.direction(gradient)))
        slope += optimiser.slope(gradient)

    def loss_after(rate: float) -> float:
        """The mean loss after a step of this rate, which is undone; a random hypernet draws the same each time."""
        with stepped(directions, rate), torch.no_grad():
            torch.manual_seed(SEED)
            return loss(subject.output()).item()

    if not slope:
        return None
    return Trial(optimiser, lr, start, loss_after(lr), _stable_rate(loss_after, start, slope))


def _stable_rate(loss_after: Callable[[float], float], start: float, slope: float) -> float | None:
    """Twice slope over curvature, from second differences of the loss over steps ever nearer to where it turns."""
    step, found = FIRST_DECREASE * max(abs(start), 1e-3) / slope, None
    for _ in range(MAX_STEPS):
        curvature = (loss_after(step) - 2 * start + loss_after(-step)) / step**2
        if not math.isfinite(curvature):
            step /= 30
            continue
        if curvature * step**2 < ROUNDING * abs(start):  # straight as far as this goes
            break
        found = 2 * slope / curvature
        if step <= found / 2:
            break
        step = found / 4
    # The curvature may change on the way: the loss has the last word.
    for _ in range(2 * MAX_STEPS):
        if found is None or loss_after(found / 2) < start:
            return found
        found /= 3
    return None


def visible_step(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
    """A direction for every parameter that has a gradient, along which each moves by about as much."""
    moving = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None and g.any()]
    return [(p, g * (VISIBLE_STEP / g.abs().max())) for p, g in moving]


def motionless(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> set[int]:
    """The ids of parameters whose gradient is exactly zero, or absent."""
    return {id(p) for p, g in zip(parameters, gradients, strict=True) if g is None or not g.any()}
