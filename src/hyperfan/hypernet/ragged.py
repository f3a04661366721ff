"""Groups of unequal size: which rows of the inputs belong to which code."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import CallError
from hyperfan.hypernet.inputs import InputKind, Inputs
from hyperfan.hypernet.objects import join

GroupCall = Callable[[Tensor, Inputs, bool], Any]
"""Runs the mainnet on codes and inputs, which may be padded."""
CALL_COST = 1e6
"""Cost of a call in multiplications: an estimate for CPUs."""


class Ragged:
    """Groups of unequal size: rows of all codes in each input, (rows, …).

    Args:
        counts: rows of each code.
        order: the rows of the first code, then those of the second, and so on; ``None`` if they lie so.
        args, kwargs: the mainnet's own.
    """

    def __init__(self, counts: Sequence[int], order: Tensor | None, args: Any, kwargs: Any) -> None:
        self.counts, self.order = counts, order
        self.inputs = Inputs("sample", args, kwargs)
        for x in self.inputs.tensors:
            if x.ndim and len(x) != sum(counts):
                raise CallError(
                    f"{len(counts)} codes serve {sum(counts)} rows, by counts= or code_index=; an input has shape "
                    f"{tuple(x.shape)} and should have ({sum(counts)}, …)"
                )

    def run(self, codes: Tensor, call: GroupCall, weight: int) -> Any:
        """Outputs for all rows, from calls on (codes, batch, …).

        Groups of similar size are padded to one where the mainnet treats rows one by one; else there is a call for each
        size that groups have.

        Args:
            codes: of the groups.
            call: runs the mainnet on codes and inputs, which may be padded; then it may refuse, with ``None``.
            weight: number of generated values, and so of multiplications at each position of a row.
        """
        sizes = sorted(set(self.counts) - {0}) or [0]
        positions = max([math.prod(x.shape[1:-1]) for x in self.inputs.tensors], default=1)
        buckets = self._buckets(sizes, weight * positions)
        buckets.sort(key=lambda bucket: len(bucket) == 1)  # a refusal of padding comes before any other call
        found = self._run(codes, call, buckets) if len(buckets) < len(sizes) else None
        return self._run(codes, call, [[size] for size in sizes]) if found is None else found

    def _buckets(self, sizes: list[int], row_cost: int) -> list[list[int]]:
        """Sizes that run together: padding the smaller ones costs less than a call."""
        buckets, groups, padding = [[sizes[0]]], 0, 0
        for before, size in itertools.pairwise(sizes):
            groups += self.counts.count(before)
            padding += (size - before) * groups * row_cost
            if padding <= CALL_COST:
                buckets[-1].append(size)
            else:
                buckets.append([size])
                groups, padding = 0, 0
        return buckets

    def _run(self, codes: Tensor, call: GroupCall, buckets: list[list[int]]) -> Any:
        counts = torch.tensor(self.counts, dtype=torch.long)
        starts = counts.cumsum(0) - counts
        outputs, given, kept, rows = [], [], [], []
        for bucket in buckets:
            padded, size = len(bucket) > 1, bucket[-1]
            among = [i for i, count in enumerate(self.counts) if bucket[0] <= count <= size]
            chosen = torch.tensor(among, dtype=torch.long)
            place, of_group = torch.arange(size), counts[chosen].unsqueeze(1)
            # Where a group has no more rows, its last one stands again: of zeros, a mainnet might make NaN.
            index = starts[chosen].unsqueeze(1) + torch.minimum(place, of_group - 1)
            index = index if self.order is None else self.order[index]
            batches = self._batches(index)
            out = call(_of(codes, chosen), batches, padded)
            if out is None and padded:
                return None
            outputs.append(out)
            given.append(batches.tensors)
            kept.append((place < of_group).flatten().nonzero().squeeze(1) if padded else None)
            rows.append(index.flatten() if kept[-1] is None else index.flatten()[kept[-1]])
        back = torch.argsort(torch.cat(rows))
        ends = [bucket[-1] for bucket in buckets]
        return join(outputs, given, lambda parts: _joined(parts, ends, kept, back))

    def _batches(self, index: Tensor) -> Inputs:
        flat = index.flatten()
        in_order = self.order is None and len(flat) == sum(self.counts)
        each = [x if in_order or not x.ndim else _pick(x, flat) for x in self.inputs.tensors]
        given = [x.view(*index.shape, *x.shape[1:]) if x.ndim else x for x in each]
        return self.inputs.replaced(given, "group")


def _pick(x: Tensor, rows: Tensor) -> Tensor:
    return x.index_select(0, rows.to(x.device))


def _of(codes: Tensor, chosen: Tensor) -> Tensor:
    return codes if len(chosen) == len(codes) else codes[chosen.to(codes.device)]


def _joined(parts: Sequence[Tensor], sizes: Sequence[int], kept: Sequence[Tensor | None], back: Tensor) -> Tensor:
    """One output for all rows, from those of calls on groups of these sizes, of which some are padding."""
    flat = []
    for part, size, rows in zip(parts, sizes, kept, strict=True):
        if part.ndim < 2 or part.shape[1] != size:
            raise CallError(
                f"the mainnet makes {tuple(part.shape[1:])} of a group of {size} rows; with counts= or code_index= "
                "each output needs a row for each of the input's: compute a loss from the outputs, as without labels=, "
                "or give each row its code, as embedding=codes.repeat_interleave(counts, 0), without counts="
            )
        flat.append(part.flatten(0, 1) if rows is None else _pick(part.flatten(0, 1), rows))
    joined = flat[0] if len(flat) == 1 else torch.cat(flat)
    return joined if len(parts) == 1 and _is_sorted(back) else _pick(joined, back)


def _is_sorted(index: Tensor) -> bool:
    return bool((index[1:] > index[:-1]).all())


def read_inputs(
    codes: Tensor, grouped: bool, shared: bool, counts: Any, code_index: Any, args: Any, kwargs: Any
) -> Inputs | Ragged:
    """What the user says of the inputs, checked against (n, tensors, d_k) codes."""
    options = {"grouped=True": grouped, "shared=True": shared, "counts=": counts is not None,
               "code_index=": code_index is not None}  # fmt: skip
    names = [name for name, given in options.items() if given]
    if len(names) > 1:
        raise CallError(f"{names[0]} and {names[1]} say different things of the inputs: give one of them")
    if names and codes.ndim < 3:
        raise CallError(f"{names[0]} needs many codes: a tensor of tasks, or embedding= with a leading dimension")
    if counts is not None:
        return Ragged(_read_counts(counts, len(codes)), None, args, kwargs)
    if code_index is not None:
        index = _read_index(code_index, len(codes))
        return Ragged(index.bincount(minlength=len(codes)).tolist(), index.argsort(stable=True), args, kwargs)
    kind: InputKind = "group" if grouped else "shared" if shared else "sample"
    return Inputs(kind, args, kwargs).check(len(codes))


def _read_counts(counts: Any, codes: int) -> list[int]:
    if isinstance(counts, Tensor):
        counts = counts.tolist() if counts.ndim == 1 else [None]
    if not isinstance(counts, Sequence) or not all(type(c) is int and c >= 0 for c in counts):
        raise CallError(
            f"counts={counts!r}: give the number of rows of each code, as in (3, 1, 4), or a tensor of them"
        )
    if len(counts) != codes:
        raise CallError(f"counts= has {len(counts)} numbers, and there are {codes} codes: give one for each")
    return list(counts)


def _read_index(given: Any, codes: int) -> Tensor:
    if not isinstance(given, Tensor) or given.ndim != 1 or given.is_floating_point() or given.dtype == torch.bool:
        seen = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise CallError(f"code_index= is {seen}; it should be a tensor (rows,) with the number of each row's code")
    index = given.long().cpu()
    if index.numel() and not (int(index.min()) >= 0 and int(index.max()) < codes):
        raise CallError(f"code_index= holds {int(index.min())} to {int(index.max())}; there are codes 0 to {codes - 1}")
    return index
