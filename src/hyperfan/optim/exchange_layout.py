"""The layout of gradients in the buffers that processes share: what each says of its own, and what follows for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

Mode = Literal["absent", "dense", "summed rows", "gathered rows", "as its partner"]
DIGEST_BITS = 48
"""Of the codes, in a header: each is a number that is 0 or the number of processes in the sum, in any dtype."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 0x1E3779B97F4A7C15
"""A multiplier whose multiples are spread over all 64 bits."""


@dataclass(frozen=True)
class Seen:
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
    kind: Literal["none", "dense", "factored"] = "none"
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
        said: what this process said of its gradient when all agreed.
        rows: most codes of a process.
        sizes: as in :class:`Seen`.
        summed: whether it is 1ᵀ·G.
        start, numel: in the buffer of its mode and dtype.
    """

    mode: Mode
    said: Seen
    rows: int = 0
    sizes: tuple[int, int, int] = (0, 0, 0)
    summed: bool = False
    start: int = 0
    numel: int = 0

    def fits(self, now: Seen) -> bool:
        """Whether a gradient can be sent in this slot; one that is missing can in all."""
        if now.kind == "none":
            return True
        if now.kind != self.said.kind or now.partner != self.said.partner:
            return False
        same = now.sizes == self.sizes
        return {
            "absent": False,
            "dense": True,
            "summed rows": same and now.rows == self.rows,
            "gathered rows": same and now.rows <= self.rows,
            "as its partner": True,
        }[self.mode]


def choose_slot(each: Sequence[Seen], said: Seen, numel: int, slots: Mapping[str, Slot], may_sum: bool) -> Slot:
    """How a gradient is shared that processes see like this: by the smallest form that all of them have."""
    there = [seen for seen in each if seen.kind != "none"]
    if not there:
        return Slot("absent", said)
    if any(seen.kind == "dense" for seen in there) or len({(s.sizes, s.summed) for s in there}) > 1:
        return Slot("dense", said, numel=numel)
    first, partners, world = there[0], {seen.partner for seen in there}, len(each)
    (layers, width, outputs), most = first.sizes, max(seen.rows for seen in there)
    if len(partners) == 1 and slots.get(first.partner, Slot("dense", said)).mode in ("summed rows", "gathered rows"):
        return Slot("as its partner", replace(said, partner=first.partner), summed=first.summed)
    if may_sum and len(there) == world and len({seen.rows for seen in there}) == 1:
        return Slot("summed rows", said, most, first.sizes, first.summed, numel=layers * most * outputs)
    size = 1 + layers * most * (width + outputs)
    if world * size > 2 * numel:  # what each process receives, against what it sends and receives of the dense one
        return Slot("dense", said, numel=numel)
    return Slot("gathered rows", said, most, first.sizes, first.summed, numel=size)


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
