"""Tensors in objects of other libraries' classes, as in a cache of keys and values, and in lists and dictionaries.

A mainnet with many codes runs on copies of the objects that it is given, with tensors of its own in them. What it puts
into a copy is one of its outputs, and in the end is put into the caller's object.
"""

import copy
import enum
import itertools
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError

VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout)
"""Classes of arguments and outputs that hold no tensor and never change."""
FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
ATOMS = (*VALUES, *FUNCTIONS, type, types.ModuleType, enum.Enum, nn.Module)
"""Classes that are not looked into."""
Seen = dict[int, tuple[Any, Any]]
"""Containers by their ids: each with what stands for it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Stands for a tensor that the mainnet left where it was: the number of that input."""

    index: int


class Copies:
    """Containers among the arguments that the mainnet saw in place of the caller's, in the same order."""

    def __init__(self, containers: list[Any]) -> None:
        self.containers = containers


def rebuild(held: Any, leaf: Callable[[Any], Any], target: Callable[[Any], Any], seen: Seen) -> Any:
    """A function of each tensor in its place, wherever it is held.

    Args:
        held: a tensor, or what holds some, at any depth.
        leaf: from a tensor, or a :class:`Kept`, to what comes into its place.
        target: from a list, dictionary or object to the one into which its contents go; itself to change it in place.
        seen: containers that were met before.
    """
    if isinstance(held, (Tensor, Kept)):
        return leaf(held)
    if isinstance(held, ATOMS):
        return held
    if id(held) in seen:
        return seen[id(held)][1]
    if isinstance(held, tuple):
        items = [rebuild(x, leaf, target, seen) for x in held]
        same = all(new is old for new, old in zip(items, held, strict=True))
        return held if same else getattr(type(held), "_make", type(held))(items)
    if not isinstance(held, (list, dict, deque)) and not any(map(len, _stores(held))):
        return held  # as a sentinel, that is known by being the same
    new = target(held)
    seen[id(held)] = held, new
    for store, target_store in zip(_stores(held), _stores(new), strict=True):
        if isinstance(store, MutableMapping):
            _fill_mapping(target_store, {key: rebuild(x, leaf, target, seen) for key, x in store.items()})
        else:
            items = [rebuild(x, leaf, target, seen) for x in store]
            if len(items) != len(target_store) or any(a is not b for a, b in zip(items, target_store, strict=True)):
                target_store.clear()
                target_store.extend(items)
    return new


def outline(held: Any, seen: set[int]) -> Hashable | None:
    """Classes and values in something, and of tensors the dtype and number of dimensions; ``None`` if not all is known.

    A cache whose tensors have grown has the same.
    """
    if isinstance(held, Tensor):
        return held.ndim, held.dtype
    if isinstance(held, ATOMS):  # of which functions and modules may do something else the next time
        return (type(held), held) if isinstance(held, (*VALUES, type, enum.Enum)) else None
    stores = [held] if isinstance(held, tuple) else _stores(held)
    if id(held) in seen or not stores:
        return (type(held),) if stores else None
    seen.add(id(held))
    items = [x for s in stores for x in (itertools.chain(*s.items()) if isinstance(s, MutableMapping) else s)]
    found = [outline(x, seen) for x in items]
    return None if None in found else (type(held), *found)


def _fill_mapping(target: MutableMapping[Any, Any], items: dict[Any, Any]) -> None:
    for key in [key for key in target if key not in items]:
        del target[key]
    for key, x in items.items():
        if key not in target or target[key] is not x:
            target[key] = x


def _stores(held: Any) -> list[Any]:
    """What holds the contents of a container: a list, a dictionary, an object's attributes."""
    if type(held) in (list, dict, deque):  # which have no attributes; torch.compile cannot ask for them
        return [held]
    found = [held] if isinstance(held, (list, dict, deque)) else []
    if isinstance(getattr(held, "__dict__", None), dict):
        found.append(held.__dict__)
    names = dict.fromkeys(n for kind in type(held).__mro__ for n in _names(getattr(kind, "__slots__", ())))
    return [*found, _Slots(held, names)] if names else found


def _names(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else [n for n in slots if not n.startswith("__")]


class _Slots(MutableMapping[str, Any]):
    """The attributes that an object's class has in ``__slots__``."""

    def __init__(self, held: Any, names: Iterable[str]) -> None:
        self.held, self.names = held, names

    def __getitem__(self, name: str) -> Any:
        return getattr(self.held, name)

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self.held, name, value)  # also in a frozen dataclass

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self.held, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if hasattr(self.held, name))

    def __len__(self) -> int:
        return len(list(iter(self)))


def itself(held: Any) -> Any:
    """The target of what is changed in place."""
    return held


def shallow_copy(held: Any) -> Any:
    """A container for the copied contents of another, which is left as it is."""
    return held.copy() if type(held) in (list, dict) else copy.copy(held)


def _objects(outputs: Any) -> list[Any]:
    """What is of a class that torch's trees do not know."""
    if isinstance(outputs, Tensor):
        return []
    return [x for x in pytree.tree_leaves(outputs) if not isinstance(x, (Tensor, Kept, *ATOMS))]


def in_objects(outputs: Any) -> list[Any]:
    """The tensors in objects whose classes torch's trees do not know, and what stands for those that were kept."""
    found: list[Any] = []
    seen: Seen = {}

    def collect(x: Any) -> Any:
        found.append(x)
        return x

    for held in _objects(outputs):
        rebuild(held, collect, itself, seen)
    return found


def change(outputs: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Outputs with a function of each tensor in its place, those in objects last; objects are changed as they are."""
    if isinstance(outputs, Tensor):
        return function(outputs)
    leaves, tree = pytree.tree_flatten(outputs)
    inside = in_objects(leaves)
    changed = tree.unflatten([function(x) if isinstance(x, Tensor) else x for x in leaves])
    if not inside:
        return changed
    inside = [function(x) if isinstance(x, Tensor) else x for x in inside]
    put_in_objects(outputs, inside)  # last, since objects may hold lists that are outputs too
    return changed


def put_in_objects(outputs: Any, tensors: Sequence[Any]) -> None:
    """Put tensors in the places where :func:`in_objects` found some."""
    each = iter(tensors)
    seen: Seen = {}
    for held in _objects(outputs):
        rebuild(held, lambda _: next(each), itself, seen)


def join(
    outputs: Sequence[Any], given: Sequence[Sequence[Tensor]], function: Callable[[Sequence[Tensor]], Tensor]
) -> Any:
    """One of several outputs alike, with a function of their tensors in place of each.

    Args:
        outputs: of calls with parts of the inputs.
        given: the inputs of each.
        function: joins the tensors of all calls.
    """

    def of_all(*parts: Any) -> Any:
        if all(isinstance(x, Kept) for x in parts) or not isinstance(parts[0], (Tensor, Kept)):
            return parts[0]
        return function([its[x.index] if isinstance(x, Kept) else x for x, its in zip(parts, given, strict=True)])

    inside = [in_objects(out) for out in outputs]
    if len({len(found) for found in inside}) > 1:
        raise CallError(
            f"the mainnet puts {' and '.join(str(len(found)) for found in inside)} tensors into objects, depending on "
            "the sample: call it for those apart that differ"
        )
    joined = pytree.tree_map(of_all, *outputs)
    put_in_objects(outputs[0], [of_all(*parts) for parts in zip(*inside, strict=True)])
    return joined
