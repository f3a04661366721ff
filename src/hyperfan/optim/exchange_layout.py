"""The layout of gradients in the buffers that processes share: each one's summary, and what follows for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import torch
from torch import Tensor

DIGEST_BITS = 48
"""Bits of a digest of codes in a header: in the sum each is 0 or the number of processes, in any dtype."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 0x1E3779B97F4A7C15
"""A multiplier whose multiples are spread over all 64 bits."""


class GradientKind(Enum):
    """The kinds of gradients that a parameter may have in a process."""

    ABSENT = auto()
    DENSE = auto()
    FACTORED = auto()


class Mode(Enum):
    """The ways in which processes share a gradient."""

    ABSENT = auto()
    """No process has one."""
    DENSE = auto()
    SUMMED_ROWS = auto()
    """It is in factors whose codes are the same in all processes."""
    GATHERED_ROWS = auto()
    """It is in factors whose codes differ between processes."""
    AS_PARTNER = auto()
    """It is in the factors that another parameter's gradient has."""


@dataclass(frozen=True)
class Summary:
    """The gradient of one parameter in one process, as processes compare it.

    Args:
        shape, dtype: of the parameter.
        kind: how it comes.
        rows: number of codes.
        sizes: layers, the size of a code, and that of a row of gradients.
        digest: of the codes.
        partner: first parameter whose gradient has the same factors.
        summed: whether it is 1ᵀ·G.
    """

    shape: tuple[int, ...]
    dtype: str
    kind: GradientKind = GradientKind.ABSENT
    rows: int = 0
    sizes: tuple[int, int, int] = (0, 0, 0)
    digest: int = 0
    partner: str = ""
    summed: bool = False


@dataclass(frozen=True)
class Slot:
    """The place of one parameter's gradient in the buffers that processes share.

    Args:
        mode: how it is shared.
        local: the gradient of this process when all agreed.
        rows: most codes of a process.
        sizes: as in :class:`Summary`.
        summed: whether it is 1ᵀ·G.
        start, numel: in the buffer of its mode and dtype.
    """

    mode: Mode
    local: Summary
    rows: int = 0
    sizes: tuple[int, int, int] = (0, 0, 0)
    summed: bool = False
    start: int = 0
    numel: int = 0

    def fits(self, now: Summary) -> bool:
        """Whether a gradient can be sent in this slot; one that is missing can in all."""
        if now.kind is GradientKind.ABSENT:
            return True
        if now.kind is not self.local.kind or now.partner != self.local.partner:
            return False
        same = now.sizes == self.sizes
        return {
            Mode.ABSENT: False,
            Mode.DENSE: True,
            Mode.SUMMED_ROWS: same and now.rows == self.rows,
            Mode.GATHERED_ROWS: same and now.rows <= self.rows,
            Mode.AS_PARTNER: True,
        }[self.mode]


def choose_slot(each: Sequence[Summary], local: Summary, numel: int, slots: Mapping[str, Slot], may_sum: bool) -> Slot:
    """How a gradient is shared that processes see like this: by the smallest form that all of them have."""
    there = [g for g in each if g.kind is not GradientKind.ABSENT]
    if not there:
        return Slot(Mode.ABSENT, local)
    if any(g.kind is GradientKind.DENSE for g in there) or len({(g.sizes, g.summed) for g in there}) > 1:
        return Slot(Mode.DENSE, local, numel=numel)
    first, partners, world = there[0], {g.partner for g in there}, len(each)
    (layers, width, outputs), most = first.sizes, max(g.rows for g in there)
    if len(partners) == 1 and slots.get(first.partner, Slot(Mode.DENSE, local)).mode in (
        Mode.SUMMED_ROWS,
        Mode.GATHERED_ROWS,
    ):
        return Slot(Mode.AS_PARTNER, replace(local, partner=first.partner), summed=first.summed)
    if may_sum and len(there) == world and len({g.rows for g in there}) == 1:
        return Slot(Mode.SUMMED_ROWS, local, most, first.sizes, first.summed, numel=layers * most * outputs)
    size = 1 + layers * most * (width + outputs)
    if world * size > 2 * numel:  # what each process receives, against what it sends and receives of the dense one
        return Slot(Mode.DENSE, local, numel=numel)
    return Slot(Mode.GATHERED_ROWS, local, most, first.sizes, first.summed, numel=size)


def gathered_views(slot: Slot, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The number of codes, codes and rows of one process."""
    layers, width, outputs = slot.sizes
    end = 1 + layers * slot.rows * width
    return memory[:1], memory[1:end].view(layers, slot.rows, width), memory[end:].view(layers, slot.rows, outputs)


def digest(values: Tensor) -> int:
    """A number of few bits that differs where values do."""
    bits = values.detach().contiguous().view(_INTEGERS[values.element_size()]).flatten().to(torch.int64)
    # Odd multipliers that differ by place, so that equal rows in another order are told apart.
    places = torch.arange(1, len(bits) + 1, device=bits.device) * _ODD | 1
    mixed = (bits ^ (bits >> 29)) * places
    return int((mixed ^ (mixed >> 17)).sum()) & ((1 << DIGEST_BITS) - 1)


def joined_digest(digests: Sequence[int]) -> int:
    """One digest of several, in their order."""
    joined = 0
    for each in digests:
        joined = (joined * _ODD + each) & ((1 << DIGEST_BITS) - 1)
    return joined
