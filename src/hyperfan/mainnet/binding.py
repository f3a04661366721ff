"""Tensors in their places in a module, for the time of a call or of a ``with``."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from torch import Tensor, nn

from hyperfan.errors import CallError
from hyperfan.mainnet.places import Place

WEIGHTS, REFERENCES = "_flat_weights", "_flat_weight_refs"
"""Attributes in which a recurrent layer of torch keeps the weights that it last ran with, and references to them."""


class Binding:
    """Where it is entered, a module has these tensors; then again those that it had.

    Args:
        places: of the module, by path.
        seconds: further places of tied tensors.
        recurrent: layers that would keep what they ran with, and its graph, which cannot be copied.
        tensors: by name.
    """

    def __init__(
        self,
        places: Mapping[str, Place],
        seconds: Sequence[Place],
        recurrent: Sequence[nn.RNNBase],
        tensors: Mapping[str, Tensor],
    ) -> None:
        self._places, self._seconds, self._recurrent, self._tensors = places, seconds, recurrent, tensors
        self._before: list[tuple[dict[str, Any], str, Any]] = []

    def __enter__(self) -> None:
        places, before = self._places, self._before
        for layer in self._recurrent:
            state = layer.__dict__
            before += [(state, key, state[key]) for key in (WEIGHTS, REFERENCES)]
            state[REFERENCES] = [_gone] * len(state[WEIGHTS])  # so that it lists those that it has now
        try:
            for name, tensor in self._tensors.items():
                owner, store, local, _ = places[name] if name in places else no_place(name)
                there = owner.__dict__[store]
                before.append((there, local, there[local]))
                there[local] = tensor
            for owner, store, local, name in self._seconds:
                there = owner.__dict__[store]
                before.append((there, local, there[local]))
                there[local] = places[name].tensor
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_error: object) -> None:
        for there, local, tensor in self._before:
            there[local] = tensor
        self._before.clear()


def _gone() -> None:
    """Stands for a reference to a weight that is no longer there."""


def no_place(name: str) -> NoReturn:
    """Raise because a generated tensor has no place in the mainnet any more."""
    raise CallError(
        f"'{name}' is generated, but its layer in net.mainnet was replaced or parametrised, and has no place for it "
        "any more: change the mainnet before HyperNet copies it"
    )
