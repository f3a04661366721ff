"""Gradients averaged over processes; those in factors by their factors, d_k times fewer bytes than if written out.

Where all processes have the same codes, as a net without conditions has, the sum of Cᵀ·Gᵣ over processes r is Cᵀ·ΣGᵣ:
the rows are summed by an all-reduce. Where codes differ, as with noise or a condition for each sample, codes and rows
of all processes are gathered, and stand one behind the other in one factor. Everything is in one all-reduce, and one
all-gather where one is needed, for each dtype.

Processes agree once on a layout of these buffers. A process whose gradients fit it no more says so in the buffer's
header, whose sum all of them read: then all agree anew, from the same gradients, and nothing is lost.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from hyperfan.distributed.ranks import check_same, gather_objects
from hyperfan.optim.exchange_layout import (
    DIGEST_BITS,
    GradientKind,
    Mode,
    Slot,
    Summary,
    choose_slot,
    digest,
    gathered_views,
    joined_digest,
)
from hyperfan.optim.factor import Factor
from hyperfan.optim.gradient import FactoredGradient, ScaledFactors, Value
from hyperfan.optim.local_gradient import LocalGradient, local_gradients

MAX_COUNT_OF_HALVES = 256
"""Up to which all integers are exact in 16 bits."""


@dataclass
class Layout:
    """All slots by name, and the buffers, by whether they are gathered and by dtype."""

    slots: dict[str, Slot]
    buffers: dict[tuple[bool, torch.dtype], Tensor]
    header: int
    """Values before the first slot of each buffer: misfits, processes with a gradient for each name, the digest."""


class Exchange:
    """Averages the gradients of some parameters over the processes of a group.

    Args:
        group: of processes; ``None`` is torch's default.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._layout: Layout | None = None
        self._digests: dict[str, tuple[Tensor, int, int]] = {}
        self._differing: set[str] = set()
        """Names of gradients whose codes differed between processes, as they will again."""
        self.calls: list[tuple[str, int]] = []
        """Collectives of the last :meth:`average` and their bytes in this process."""

    @property
    def world(self) -> int:
        """The number of processes that share gradients."""
        return dist.get_world_size(self._group)

    @torch.no_grad()
    def average(self, parameters: Mapping[str, Tensor]) -> None:
        """Replace all gradients by their means over processes. All processes call this at the same time.

        Args:
            parameters: by name, the same in all processes.
        """
        # Of gradients with the same factors the largest comes first: it says what writing them out would cost.
        named = dict(sorted(parameters.items(), key=lambda item: (-item[1].numel(), item[0])))
        self.calls = []
        if not named:
            return
        local = local_gradients(named)
        summaries = {name: self._summarise(p, name, local) for name, p in named.items()}
        if self._layout is None:
            self._layout = self._agree(named, summaries)
        while not self._share(self._layout, named, local, summaries):
            self._layout = self._agree(named, summaries)  # from the same gradients, which then fit

    def _summarise(self, p: Tensor, name: str, local: dict[str, LocalGradient]) -> Summary:
        mine = local.get(name)
        if mine is None:
            return Summary(tuple(p.shape), str(p.dtype))
        if not mine.parts:
            return Summary(tuple(p.shape), str(p.dtype), GradientKind.DENSE)
        codes = mine.codes
        sizes = (math.prod(codes.shape[:-2]), codes.shape[-1], mine.row_size)
        return Summary(
            tuple(p.shape),
            str(p.dtype),
            GradientKind.FACTORED,
            rows=codes.shape[-2],
            sizes=sizes,
            digest=self._digest(mine.partner, codes),
            partner=mine.partner,
            summed=mine.summed,
        )

    def _digest(self, name: str, codes: Tensor) -> int:
        """The digest of codes; constant ones, whose tensor is the same, are looked at once."""
        known = self._digests.get(name)
        if known is None or known[0] is not codes or known[1] != codes._version:
            known = self._digests[name] = (codes, codes._version, digest(codes))
        return known[2]

    # ── agreeing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _agree(self, named: Mapping[str, Tensor], summaries: dict[str, Summary]) -> Layout:
        everyone = gather_objects(summaries, self._group)
        check_same("the trained parameters", [{n: (s.shape, s.dtype) for n, s in each.items()} for each in everyone])
        slots: dict[str, Slot] = {}
        header = 1 + len(named) + DIGEST_BITS
        ends: dict[tuple[bool, torch.dtype], int] = {}
        for name, p in named.items():
            each = [others[name] for others in everyone]
            if len({g.digest for g in each if g.kind is not GradientKind.ABSENT}) > 1:
                self._differing.add(name)
            slot = choose_slot(each, summaries[name], p.numel(), slots, name not in self._differing)
            if slot.numel:
                key = (slot.mode is Mode.GATHERED_ROWS, _wire_dtype(p.dtype, self.world))
                start = ends.get(key, header)
                ends[key] = start + slot.numel
                slot = replace(slot, start=start)
            slots[name] = slot
        device = next(iter(named.values())).device
        if not ends:
            ends[False, torch.float32] = header
        buffers = {key: torch.zeros(end, dtype=key[1], device=device) for key, end in sorted(ends.items(), key=str)}
        return Layout(slots, buffers, header)

    # ── sharing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _share(
        self,
        layout: Layout,
        named: Mapping[str, Tensor],
        local: dict[str, LocalGradient],
        summaries: dict[str, Summary],
    ) -> bool:
        """Share gradients in a layout; returns whether they fitted it in all processes, and else leaves them."""
        slots, names = layout.slots, list(layout.slots)
        misfit = names != list(named) or not all(slots[name].fits(summaries[name]) for name in names)
        rows = [name for name in names if slots[name].mode is Mode.SUMMED_ROWS]
        codes = 0 if misfit else joined_digest([summaries[name].digest for name in rows])
        header = [float(misfit), *(float(name in local) for name in names)]
        header += [float(codes >> i & 1) for i in range(DIGEST_BITS)]
        for (_, dtype), buffer in layout.buffers.items():
            buffer[: layout.header] = torch.tensor(header, dtype=dtype)
        if not misfit:
            self._pack(layout, named, local)
        gathered = {key: self._run(key[0], buffer) for key, buffer in layout.buffers.items()}
        key, first = next(iter(gathered.items()))
        headers = first[..., : layout.header].double()
        counts = (headers.sum(0) if key[0] else headers).tolist()
        if counts[0]:
            return False
        hits = dict(zip(names, counts[1 : 1 + len(names)], strict=True))
        equal = {0.0, float(self.world)}
        if rows and (any(hits[name] not in equal for name in rows) or not equal.issuperset(counts[1 + len(names) :])):
            return False
        self._unpack(layout, named, local, gathered, hits)
        return True

    def _run(self, gather: bool, buffer: Tensor) -> Tensor:
        self.calls.append(("all-gather" if gather else "all-reduce", buffer.numel() * buffer.element_size()))
        if not gather:
            dist.all_reduce(buffer, group=self._group)
            return buffer
        everyone = buffer.new_empty(self.world, len(buffer))
        dist.all_gather(list(everyone.unbind()), buffer, group=self._group)
        return everyone

    def _pack(self, layout: Layout, named: Mapping[str, Tensor], local: dict[str, LocalGradient]) -> None:
        for name, p in named.items():
            slot, mine = layout.slots[name], local.get(name)
            if not slot.numel:
                continue
            memory = _slot_memory(slot, p, layout.buffers, self.world)
            if mine is None:
                memory.zero_()
            elif slot.mode is Mode.DENSE:
                mine.write_dense(memory)
            elif slot.mode is Mode.SUMMED_ROWS:
                mine.write_rows(memory)
            else:
                count, codes, rows = gathered_views(slot, memory)
                memory.zero_()
                count.fill_(mine.codes.shape[-2])
                codes[:, : mine.codes.shape[-2]] = mine.codes.view(codes.shape[0], -1, codes.shape[-1])
                mine.write_rows(rows[:, : mine.codes.shape[-2]])

    def _unpack(
        self,
        layout: Layout,
        named: Mapping[str, Tensor],
        local: dict[str, LocalGradient],
        shared: Mapping[tuple[bool, torch.dtype], Tensor],
        hits: Mapping[str, float],
    ) -> None:
        for (gather, _), buffer in shared.items():
            if not gather:
                buffer.div_(self.world)
        made: dict[str, ScaledFactors] = {}
        for name, p in named.items():
            slot = layout.slots[name]
            if not hits[name] or slot.mode is Mode.ABSENT:
                continue
            memory = _slot_memory(slot, p, shared, self.world).to(p.dtype)
            if slot.mode is Mode.DENSE:
                _set_dense(p, memory)
                continue
            if slot.mode is Mode.AS_PARTNER:
                made[name] = made[slot.local.partner or name]
            elif slot.mode is Mode.SUMMED_ROWS:
                codes = local[name].codes
                rows = memory.view(*codes.shape[:-1], -1).clone()  # the next exchange writes into the same memory
                made[name] = ((Factor(codes, rows), 1.0),)
            else:
                made[name] = ((_joined(slot, memory, local.get(name)), 1 / self.world),)
            _set_parts(p, made[name], slot.summed)


def _wire_dtype(dtype: torch.dtype, world: int) -> torch.dtype:
    """The dtype in which values travel: one that counts all processes, which a header does."""
    return torch.float32 if dtype.itemsize == 2 and world > MAX_COUNT_OF_HALVES else dtype


def _slot_memory(slot: Slot, p: Tensor, buffers: Mapping[tuple[bool, torch.dtype], Tensor], world: int) -> Tensor:
    """The part of the buffers in which a parameter's gradient travels; of all processes, where these are gathered."""
    if not slot.numel:
        return torch.empty(0)
    buffer = buffers[slot.mode is Mode.GATHERED_ROWS, _wire_dtype(p.dtype, world)]
    return buffer[..., slot.start : slot.start + slot.numel]


def _joined(slot: Slot, memory: Tensor, mine: LocalGradient | None) -> Factor:
    """One factor with the codes and rows of all processes."""
    codes, rows = [], []
    for of_process in memory:
        count, its_codes, its_rows = gathered_views(slot, of_process)
        codes.append(its_codes[:, : int(count)])
        rows.append(its_rows[:, : int(count)])
    joined = torch.cat(codes, 1), torch.cat(rows, 1)
    layered = slot.sizes[0] > 1 or (mine is not None and mine.codes.ndim == 3)
    return Factor(*joined) if layered else Factor(joined[0][0], joined[1][0])


def _set_parts(p: Tensor, parts: ScaledFactors, summed: bool) -> None:
    """Give a parameter a gradient in factors, written out if these are larger."""
    gradient = FactoredGradient(p, Value(parts, summed=summed))
    factor, _ = parts[0]
    larger = factor.rank > min(factor.codes.shape[-1], p.shape[-1])
    p.grad = gradient.to_dense() if larger else gradient


def _set_dense(p: Tensor, values: Tensor) -> None:
    if p.grad is None or isinstance(p.grad, FactoredGradient):
        p.grad = values.view(p.shape).clone()
    else:
        p.grad.copy_(values.view(p.shape))


_OF_OPTIMISERS: "WeakKeyDictionary[torch.optim.Optimizer, Exchange]" = WeakKeyDictionary()


def average_gradients(optimiser: torch.optim.Optimizer) -> None:
    """Replace all gradients of what an optimiser trains by their means over processes, where no DDP does so.

    All processes call it between backward and step; their parameters are in the same order.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    _OF_OPTIMISERS.setdefault(optimiser, Exchange()).average({f"{i:06}": p for i, p in enumerate(parameters)})
