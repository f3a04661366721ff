"""Tensors in their places in a module, for the time of a call or of a ``with``."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from hyperfan.mainnet.places import Place


class Binding:
    """Where it is entered, a module has these tensors; then again those that it had.

    Args:
        places: of the module, by path.
        tensors: by name; what is not among them stays, and is also put in the second places of tied tensors.
    """

    def __init__(self, places: Mapping[str, Place], tensors: Mapping[str, Tensor]) -> None:
        self._places, self._tensors = places, tensors
        self._before: list[tuple[dict[str, Any], str, Any]] = []

    def __enter__(self) -> None:
        for path, (owner, store, local, name) in self._places.items():
            tensor = self._tensors.get(name)
            if tensor is None:
                if path == name:
                    continue
                tensor = self._places[name].tensor  # kept, and here is its second place
            there = owner.__dict__[store]
            self._before.append((there, local, there[local]))
            there[local] = tensor

    def __exit__(self, *_error: object) -> None:
        for there, local, tensor in self._before:
            there[local] = tensor
        self._before.clear()
