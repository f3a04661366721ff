"""The inputs of a mainnet that runs with many codes: which part of them belongs to which code."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.hypernet.objects import VALUES, change, slots

Kind = Literal["sample", "group", "shared"]
"""A row for each code, (n, …), which the mainnet sees as a batch of one; a batch for each, (n, batch, …); the same
batch for all."""


class Inputs:
    """Arguments of the mainnet, with the tensors among them, also those in objects, as in a cache of keys and values.

    Args:
        kind: which part of each tensor belongs to which code.
        args, kwargs: the mainnet's own.
    """

    def __init__(self, kind: Kind, args: Any, kwargs: Any) -> None:
        self.kind = kind
        self.tensors: list[Tensor]
        """As given; last those in objects."""
        self.in_objects = 0
        """How many are in objects."""
        if not kwargs and all(isinstance(x, Tensor) for x in args):  # as mostly: to look into them takes longer
            self.tensors, self._tree = list(args), None
            return
        self._leaves, self._tree = pytree.tree_flatten((args, kwargs))
        self._places = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, Tensor)]
        self.tensors = [self._leaves[i] for i in self._places]
        for holder, key in slots(self._leaves):
            if holder[key].numel():  # a cache without a layer's keys holds an empty tensor
                self.tensors.append(holder[key])
                self.in_objects += 1

    def has_rows(self) -> bool:
        """Whether a tensor, with rows of features for each code, is the mainnet's only argument."""
        return self._tree is None and len(self.tensors) == 1 and self.tensors[0].ndim > 1

    def check(self, codes: int) -> Self:
        """Raise unless every tensor has a part for each code."""
        for x in self.tensors if self.kind != "shared" else ():
            if x.ndim:
                _check_input(x, codes, self.kind == "group")
        return self

    def signature(self) -> tuple[tuple[Any, ...], bool]:
        """What can be remembered of the arguments except the values of tensors, and whether that is all there is."""
        tensors = (self.kind, *[(x.shape, x.dtype) for x in self.tensors])
        if self._tree is None:
            return tensors, True
        others = [leaf for leaf in self._leaves if not isinstance(leaf, Tensor)]
        values = [(type(leaf), leaf if isinstance(leaf, VALUES) else None) for leaf in others]
        return (*tensors, repr(self._tree), *values), all(isinstance(leaf, VALUES) for leaf in others)

    def of_rows(self, rows: Tensor) -> "Inputs":
        """The parts that belong to some of the codes."""
        return self.replaced([x[rows.to(x.device)] if x.ndim else x for x in self.tensors])

    def replaced(self, tensors: Sequence[Tensor]) -> "Inputs":
        """The same with these in place of the tensors."""
        return Inputs(self.kind, *self.filled(tensors))

    def filled(self, tensors: Sequence[Tensor]) -> tuple[Any, Any]:
        """Positional and keyword arguments with these in place of the tensors."""
        if self._tree is None:
            return tensors, {}
        leaves = list(self._leaves)
        for i, x in zip(self._places, tensors, strict=False):
            leaves[i] = x
        if self.in_objects:  # copies, so that those of the caller stay as they are
            of_objects = zip(self.tensors[-self.in_objects :], tensors[-self.in_objects :], strict=True)
            memo: dict[int, Any] = {id(old): new for old, new in of_objects}
            known = (Tensor, *VALUES)
            leaves = [x if isinstance(x, known) else copy.deepcopy(x, memo) for x in leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        return args, kwargs

    def spread(self, x: Tensor) -> Tensor:
        """An input as (codes, batch, …); a number has no part for each code."""
        if x.ndim == 0:
            return x
        return x.unsqueeze(1) if self.kind == "sample" else x.view_as(x)

    def gathered(self, out: Any, spread: Callable[[Tensor], Tensor]) -> Any:
        """Outputs, of which ``spread`` makes (codes, …), with a row for each sample where each has a code."""

        def gather(x: Tensor) -> Tensor:
            x = spread(x)
            return x.squeeze(1) if self.kind == "sample" and x.ndim > 1 else x

        return change(out, gather)


def _check_input(x: Tensor, codes: int, grouped: bool) -> None:
    each = "one per group" if grouped else "one per sample"
    if x.ndim < 1 + grouped or x.shape[0] != codes:
        wanted = f"({codes}, batch, …)" if grouped else f"({codes}, …)"
        repeat = ": if it is the same for all codes, pass shared=True" if x.ndim and x.shape[0] == 1 else ""
        raise CallError(
            f"{codes} codes were given, {each}; an input has shape {tuple(x.shape)} and should have {wanted}{repeat}"
        )
