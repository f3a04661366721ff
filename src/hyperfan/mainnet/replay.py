"""The calls of a traced run as expressions, which can be run again on other values."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.mainnet.trails import Trail

MAX_CALLS = 64
"""How many calls back an expression is followed: longer than any norm that is written out."""


@dataclass(frozen=True)
class TorchCall:
    """One call of a torch function, with its name stripped of underscores."""

    func: Callable[..., Any]
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that it was given."""
        return tensors((self.args, self.kwargs))

    @property
    def values(self) -> "list[Value]":
        """The values that stand in it for traced tensors, each once."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Value)))


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in nested containers."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a traced run as the result of a call; a variable if it has none, as a layer's output.

    Args:
        number: counts values in the order in which they were made.
        trail: of the tensor.
        shape: of the tensor.
        call: what made it, with values in place of traced tensors, so that others can be put there.
        place: which of the tensors that the call returned.
    """

    number: int
    trail: Trail
    shape: tuple[int, ...]
    call: TorchCall | None = None
    place: int = 0


def common_roots(call: TorchCall) -> Iterator[Value]:
    """The values from which everything in an expression was computed, the nearest first.

    Those are the dominators of its graph. In order of their numbers, the last value of a front that moves back is one
    of them whenever it is alone.
    """
    front = {value.number: value for value in call.values}
    numbers = [-number for number in front]
    heapq.heapify(numbers)
    for _ in range(MAX_CALLS):
        if not numbers:
            return
        value = front[-heapq.heappop(numbers)]
        if not numbers:
            yield value
        before = [] if value.call is None else value.call.values
        if not before and numbers:
            return  # a variable beside others
        for other in before:
            if other.number not in front:
                front[other.number] = other
                heapq.heappush(numbers, -other.number)


def evaluate(call: TorchCall, known: dict[Value, Tensor]) -> Any:
    """The result of a call with these tensors in place of values; an error is that of the function."""

    def put_in(leaf: Any) -> Any:
        found = _tensor(leaf, known) if isinstance(leaf, Value) else leaf
        return found.clone() if isinstance(found, Tensor) else found  # some functions work in place

    args, kwargs = pytree.tree_map(put_in, (tuple(call.args), dict(call.kwargs)))
    return call.func(*args, **kwargs)


def _tensor(value: Value, known: dict[Value, Tensor]) -> Tensor:
    if value not in known:
        if value.call is None:
            raise ValueError("the expression has another variable")
        known[value] = tensors(evaluate(value.call, known))[value.place]
    return known[value]


def draws(shape: Sequence[int]) -> list[Tensor]:
    """Tensors of several scales, means and distributions, in float64 and always the same."""
    source = torch.Generator("cpu").manual_seed(0)
    z, scales = (torch.randn(*shape, generator=source, dtype=torch.float64) for _ in range(2))
    rows = (scales[..., :1] if scales.ndim else scales).exp()
    return [z, 2 + 3 * z * rows, z**3]
