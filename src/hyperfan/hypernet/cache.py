"""What was generated last, for evaluation: the same weights serve every batch until a parameter changes."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hyperfan.hypernet.changes import fingerprint, versions

Made = dict[str, Tensor]


@dataclass(frozen=True)
class _Found:
    """What was made, and of what. Sources are held, so that none is at the address of another that is gone."""

    key: object
    sources: list[Tensor]
    versions: object
    sample: Tensor
    made: Made
    made_versions: object

    def fits(self, key: object, sources: Sequence[Tensor]) -> bool:
        """Whether nothing has changed: neither the sources nor, as a mainnet might, what was made."""
        return (
            key == self.key
            and len(sources) == len(self.sources)
            and all(map(operator.is_, sources, self.sources))
            and versions(sources) == self.versions
            and torch.equal(fingerprint(sources), self.sample)
            and versions(self.made.values()) == self.made_versions
        )


class Cache:
    """Holds one set of generated tensors with what they depend on. A copy or a pickle of it is empty."""

    def __init__(self) -> None:
        self._found: _Found | None = None

    def get(self, make: Callable[[], Made], sources: Sequence[Tensor], key: object) -> Made:
        """What ``make`` makes of these sources, or made of them before."""
        found = self._found  # once: another thread may change it
        if found is not None and found.fits(key, sources):
            return found.made
        del found
        self.clear()  # before making, so that two sets are never held
        made = make()
        self._found = _Found(key, list(sources), versions(sources), fingerprint(sources), made, versions(made.values()))
        return made

    def clear(self) -> None:
        """Forget."""
        self._found = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, ()
