"""Groups of unequal size: which rows of the inputs belong to which code."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import CallError
from hyperfan.hypernet.inputs import Inputs, Kind
from hyperfan.hypernet.objects import join


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

    def run(self, codes: Tensor, call: Callable[[Tensor, Inputs], Any]) -> Any:
        """Outputs for all rows, from calls on (codes, batch, …): one for each size that groups have."""
        sizes = sorted(set(self.counts) - {0}) or [0]
        starts = [0, *itertools.accumulate(self.counts)]
        outputs, rows = [], []
        for size in sizes:
            chosen = [i for i, count in enumerate(self.counts) if count == size]
            index = torch.tensor([r for i in chosen for r in range(starts[i], starts[i + 1])], dtype=torch.long)
            rows.append(index if self.order is None else self.order.cpu()[index])
            outputs.append(call(self._of(codes, chosen), self._batches(rows[-1], len(chosen), size)))
        back = torch.argsort(torch.cat(rows))
        return join(outputs, lambda parts: _joined(parts, sizes, back))

    def _of(self, codes: Tensor, chosen: list[int]) -> Tensor:
        return codes if len(chosen) == len(codes) else codes[torch.tensor(chosen, device=codes.device)]

    def _batches(self, rows: Tensor, groups: int, size: int) -> Inputs:
        in_order = self.order is None and len(rows) == sum(self.counts)
        given = [x if in_order or not x.ndim else x[rows.to(x.device)] for x in self.inputs.tensors]
        args, kwargs = self.inputs.filled([x.view(groups, size, *x.shape[1:]) if x.ndim else x for x in given])
        return Inputs("group", args, kwargs)


def _joined(parts: Sequence[Tensor], sizes: Sequence[int], back: Tensor) -> Tensor:
    """One output for all rows, from those for the groups of each size."""
    for part, size in zip(parts, sizes, strict=True):
        if part.ndim < 2 or part.shape[1] != size:
            raise CallError(
                f"the mainnet makes {tuple(part.shape[1:])} of a group of {size} rows; with counts= or code_index= "
                "each output needs a row for each of the input's"
            )
    joined = torch.cat([part.flatten(0, 1) for part in parts])
    return joined if len(parts) == 1 and _is_sorted(back) else joined[back.to(joined.device)]


def _is_sorted(index: Tensor) -> bool:
    return bool((index[1:] > index[:-1]).all())


def read_inputs(
    codes: Tensor, grouped: bool, shared: bool, counts: Any, code_index: Any, args: Any, kwargs: Any
) -> Inputs | Ragged:
    """What the user says of the inputs, checked against (n, tensors, d_k) codes."""
    said = {"grouped=True": grouped, "shared=True": shared, "counts=": counts is not None,
            "code_index=": code_index is not None}  # fmt: skip
    names = [name for name, given in said.items() if given]
    if len(names) > 1:
        raise CallError(f"{names[0]} and {names[1]} say different things of the inputs: give one of them")
    if names and codes.ndim < 3:
        raise CallError(f"{names[0]} needs many codes: a tensor of tasks, or embedding= with a leading dimension")
    if counts is not None:
        return Ragged(_read_counts(counts, len(codes)), None, args, kwargs)
    if code_index is not None:
        index = _read_index(code_index, len(codes))
        return Ragged(index.bincount(minlength=len(codes)).tolist(), index.argsort(stable=True), args, kwargs)
    kind: Kind = "group" if grouped else "shared" if shared else "sample"
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
