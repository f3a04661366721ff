"""Tensors in objects of other libraries' classes, such as a cache of keys and values, that a mainnet returns."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout)
"""Classes of arguments and outputs that hold no tensor and never change."""
Slot = tuple[dict[Any, Any] | list[Any], Any]
"""A place of a tensor: a dictionary or list, and its key or index there."""


def slots(outputs: Any) -> list[Slot]:
    """The places of tensors in objects whose classes torch's trees do not know."""
    found: list[Slot] = []
    if isinstance(outputs, Tensor):
        return found
    seen: set[int] = set()
    for leaf in pytree.tree_leaves(outputs):
        if not isinstance(leaf, (Tensor, *VALUES)):
            _search(leaf, found, seen)
    return found


def _search(held: Any, found: list[Slot], seen: set[int]) -> None:
    if isinstance(held, (*VALUES, type, nn.Module)) or id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, (tuple, set, frozenset)):
        for x in held:
            _search(x, found, seen)
        return
    items = held if isinstance(held, (dict, list)) else getattr(held, "__dict__", {})
    for key, x in items.items() if isinstance(items, dict) else enumerate(items):
        if isinstance(x, Tensor):
            found.append((items, key))
        else:
            _search(x, found, seen)


def change(outputs: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Outputs with a function of each tensor in its place; objects are changed as they are."""
    if isinstance(outputs, Tensor):
        return function(outputs)
    for holder, key in slots(outputs):
        holder[key] = function(holder[key])
    return pytree.tree_map(lambda x: function(x) if isinstance(x, Tensor) else x, outputs)


def join(outputs: Sequence[Any], function: Callable[[Sequence[Tensor]], Tensor]) -> Any:
    """One of several outputs alike, with a function of their tensors in place of each."""
    for places in zip(*map(slots, outputs), strict=True):
        (holder, key), *_ = places
        holder[key] = function([held[name] for held, name in places])
    return pytree.tree_map(lambda *parts: function(parts) if isinstance(parts[0], Tensor) else parts[0], *outputs)
