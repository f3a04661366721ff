"""Where a module holds its tensors, looked up once for all calls."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Place(NamedTuple):
    """A place in one of a module's dictionaries, for the tensor of this name."""

    owner: nn.Module
    store: str
    local: str
    name: str

    @property
    def tensor(self) -> Tensor | None:
        """The tensor that is there now, if there is one."""
        found: Tensor | None = getattr(self.owner, self.store)[self.local]
        return found


class Places:
    """The places of a module's tensors; looked up again after a change, as by ``SyncBatchNorm`` or a parametrization.

    Args:
        module: which holds them.
        names: path of each place → name of its tensor: a tied one has several places.
    """

    def __init__(self, module: nn.Module, names: Mapping[str, str]) -> None:
        self.module, self._names = module, dict(names)
        self.arrangement = 0
        """Changes whenever the places were looked up again."""
        self._look_up()

    def now(self) -> Mapping[str, Place]:
        """Each place by its path; a module that has two paths has its places under the first."""
        if not torch.compiler.is_compiling() and self._rearranged():
            self._look_up()
        return self._found

    def _rearranged(self) -> bool:
        for parent, key, child in self._links:
            if parent._modules.get(key) is not child:
                return True
        for parent, children in self._counts:
            if len(parent._modules) != children:
                return True
        for owner, store, local, _ in self._found.values():  # at every call, in half the time of any(…)
            if local not in owner.__dict__[store]:
                break
        else:
            return False
        return True

    def _look_up(self) -> None:
        self.arrangement += 1
        self.modules = dict(self.module.named_modules())
        self._links = [(m, key, child) for m in self.module.modules() for key, child in m._modules.items()]
        self._counts = [(m, len(m._modules)) for m in self.module.modules()]
        self._found: dict[str, Place] = {}
        seen: set[tuple[int, str, str]] = set()
        for path, name in self._names.items():
            place = _find(self.module, path, name)
            if place is not None and (id(place.owner), place.store, place.local) not in seen:
                seen.add((id(place.owner), place.store, place.local))
                self._found[path] = place
        self.seconds = [place for path, place in self._found.items() if path != place.name]
        """Further places of tied tensors."""
        self.recurrent = [m for m in self.module.modules() if isinstance(m, nn.RNNBase)]
        """Layers that keep a list of the weights that they last ran with."""


def _find(module: nn.Module, path: str, name: str) -> Place | None:
    """The place of this path; ``None`` if the module has none, as after a parametrization."""
    holder, _, local = path.rpartition(".")
    try:
        owner = module.get_submodule(holder)
    except AttributeError:
        return None
    stores = [store for store in ("_parameters", "_buffers") if local in getattr(owner, store)]
    return Place(owner, stores[0], local, name) if stores else None
