"""What was generated last, for evaluation: the same weights serve every batch until a parameter changes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.hypernet.changes import fingerprint, versions

Made = dict[str, Tensor]


class Cache:
    """Holds one set of generated tensors with what they depend on. A copy or a pickle of it is empty."""

    def __init__(self) -> None:
        self._key: object = None
        self._sample = torch.empty(0)
        self._made: Made | None = None

    def get(self, make: Callable[[], Made], sources: Sequence[Tensor], key: object) -> Made:
        """What ``make`` makes of these sources, or made of them before."""
        key, sample = (key, versions(sources)), fingerprint(sources)
        if self._made is None or key != self._key or not torch.equal(sample, self._sample):
            self.clear()  # before making, so that two sets are never held
            self._key, self._sample, self._made = key, sample, make()
        return self._made

    def clear(self) -> None:
        """Forget."""
        self._made = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, ()
