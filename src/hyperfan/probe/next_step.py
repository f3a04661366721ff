"""One step ahead: what stands still at the start, but moves once something else has moved, is no fault.

A head of zeros on a bias makes the same weights for every code, and hands no gradient to the trunk; after its first
step it does neither. Of a product whose factors are both zero, no step ever moves either.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

VISIBLE_STEP = 0.1
"""Largest change of a parameter, large enough to show in what is generated."""


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


def visible_step(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
    """A direction for every parameter that has a gradient, along which each moves by about as much."""
    moving = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None and g.any()]
    return [(p, g * (VISIBLE_STEP / g.abs().max())) for p, g in moving]


def motionless(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> set[int]:
    """The ids of parameters whose gradient is exactly zero, or absent."""
    return {id(p) for p, g in zip(parameters, gradients, strict=True) if g is None or not g.any()}
