"""The inputs of a mainnet that runs with many codes: which part of them belongs to which code."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.hypernet.objects import Copies, Kept, Seen, change, itself, outline, rebuild, shallow_copy

InputKind = Literal["sample", "group", "shared"]
"""A row for each code, (n, …), which the mainnet sees as a batch of one; a batch for each, (n, batch, …); the same
batch for all."""


class Changed(NamedTuple):
    """What the mainnet returned, and what it made of the objects that it was given."""

    out: Any
    copies: Copies


class Filled(NamedTuple):
    """Arguments for one run of the mainnet."""

    args: Sequence[Any]
    kwargs: dict[str, Any]
    tensors: Sequence[Tensor]
    copies: Sequence[Any] = ()
    """Copies of the lists, dictionaries and objects among the caller's arguments."""

    def with_changes(self, out: Any) -> Any:
        """The outputs of the run, with the objects that it may have changed."""
        if not self.copies:
            return out
        kept = {id(x): Kept(i) for i, x in enumerate(self.tensors)}
        copies = list(self.copies)
        rebuild(copies, lambda x: kept.get(id(x), x), itself, {})
        return Changed(out, Copies(copies))


class Inputs:
    """Arguments of the mainnet, with the tensors among them, also those in objects, as in a cache of keys and values.

    Args:
        kind: which part of each tensor belongs to which code.
        args, kwargs: the mainnet's own.
    """

    def __init__(self, kind: InputKind, args: Any, kwargs: Any) -> None:
        self.kind = kind
        self.tensors: list[Tensor]
        """The tensors among the arguments; last those in objects."""
        self._args, self._kwargs = args, kwargs
        self._only_tensors = not kwargs and all(isinstance(x, Tensor) for x in args)
        if self._only_tensors:  # as mostly: to look into them takes longer
            self.tensors = list(args)
            return
        self._leaves, self._tree = pytree.tree_flatten((args, kwargs))
        found = {id(x): x for x in self._leaves if isinstance(x, Tensor)}

        def collect(x: Tensor) -> Tensor:
            if x.numel():  # a cache without a layer's keys holds an empty tensor
                found.setdefault(id(x), x)
            return x

        seen: Seen = {}
        for x in (*args, *kwargs.values()):
            rebuild(x, collect, itself, seen)
        self._containers = [held for held, _ in seen.values()]
        self._places, self.tensors = {key: i for i, key in enumerate(found)}, list(found.values())

    def has_rows(self) -> bool:
        """Whether a tensor, with rows of features for each code, is the mainnet's only argument."""
        return self._only_tensors and len(self.tensors) == 1 and self.tensors[0].ndim > 1

    def check(self, codes: int) -> Self:
        """Raise unless every tensor has a part for each code."""
        for x in self.tensors if self.kind != "shared" else ():
            if x.ndim:
                _check_input(x, codes, self.kind == "group")
        return self

    def signature(self) -> tuple[tuple[Any, ...], bool]:
        """What can be remembered of the arguments except the values of tensors, and whether that is all there is.

        Of tensors in objects, not their sizes, which in a cache are others at every call.
        """
        if self._only_tensors:
            return (self.kind, *[(x.shape, x.dtype) for x in self.tensors]), True
        seen: set[int] = set()
        leaves = [(x.shape, x.dtype) if isinstance(x, Tensor) else outline(x, seen) for x in self._leaves]
        return (self.kind, repr(self._tree), *leaves), None not in leaves

    def of_rows(self, rows: Tensor) -> "Inputs":
        """The parts that belong to some of the codes."""
        return self.replaced([x[rows.to(x.device)] if x.ndim else x for x in self.tensors])

    def take_changes(self, rows: Tensor, part: Sequence[Tensor]) -> None:
        """Write into the inputs what a run wrote into copies of some of their rows."""
        for x, changed in zip(self.tensors, part, strict=True):
            its = rows.to(x.device)
            if x.ndim and was_written(changed, x[its]):
                x[its] = changed

    def replaced(self, tensors: Sequence[Tensor], kind: InputKind | None = None) -> "Inputs":
        """The same arguments with other tensors."""
        other = copy.copy(self)
        other.tensors, other.kind = list(tensors), kind or self.kind
        return other

    def filled(self, tensors: Sequence[Tensor]) -> Filled:
        """Arguments with these in place of the tensors, in copies of all that is not a tensor."""
        if self._only_tensors:
            return Filled(tensors, {}, tensors)

        def put(x: Tensor) -> Tensor:
            i = self._places.get(id(x))
            return x if i is None else tensors[i]

        seen: Seen = {}
        args = [rebuild(x, put, shallow_copy, seen) for x in self._args]
        kwargs = {name: rebuild(x, put, shallow_copy, seen) for name, x in self._kwargs.items()}
        return Filled(args, kwargs, tensors, [new for _, new in seen.values()])

    def adopt(self, result: Any) -> Any:
        """Put into the caller's objects what the mainnet put into their copies; what it returned, with the caller's."""
        if not isinstance(result, Changed):
            return result
        callers = {id(new): old for new, old in zip(result.copies.containers, self._containers, strict=True)}
        done: Seen = {}

        def resolve(x: Any) -> Any:
            return self.tensors[x.index] if isinstance(x, Kept) else x

        def put(held: Any) -> Any:
            return rebuild(held, resolve, lambda x: callers.get(id(x), x), done)

        for held in result.copies.containers:
            put(held)
        return pytree.tree_map(lambda x: x if isinstance(x, Tensor) else put(x), result.out)

    def spread(self, x: Tensor) -> Tensor:
        """An input with a part for each code as (codes, batch, …)."""
        return x.unsqueeze(1) if self.kind == "sample" else x.view_as(x)

    def gathered(self, out: Any, spread: Callable[[Tensor], Tensor]) -> Any:
        """Outputs, of which ``spread`` makes (codes, …), with a row for each sample where each has a code."""

        def gather(x: Tensor) -> Tensor:
            x = spread(x)
            return x.squeeze(1) if self.kind == "sample" and x.ndim > 1 else x

        return change(out, gather)


def was_written(x: Tensor, before: Tensor) -> bool:
    """Whether a tensor that was made as a copy was changed in place."""
    return not torch.equal(x, before) if x.is_inference() else x._version > 0  # of those, torch counts no changes


def _check_input(x: Tensor, codes: int, grouped: bool) -> None:
    each = "one per group" if grouped else "one per sample"
    if x.ndim < 1 + grouped or x.shape[0] != codes:
        wanted = f"({codes}, batch, …)" if grouped else f"({codes}, …)"
        repeat = ": if it is the same for all codes, pass shared=True" if x.shape[0] == 1 else ""
        raise CallError(
            f"{codes} codes were given, {each}; an input has shape {tuple(x.shape)} and should have {wanted}{repeat}"
        )
