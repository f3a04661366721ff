"""Checkpoints in a mainnet that runs for many samples: what runs again in backward does so for all of them."""

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from hyperfan.generators.stand_in import StandIn
from hyperfan.hypernet.batched.mode import WEIGHTS, Samples
from hyperfan.mainnet.checkpointing import MainnetCall
from hyperfan.mainnet.skeleton import Skeleton


class SamplesCall(MainnetCall):
    """One call of a mainnet for many samples.

    Args:
        samples: the mode in which it runs.
        skeleton: the mainnet.
        tensors: with which it runs.
    """

    def __init__(self, samples: Samples, skeleton: Skeleton, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors, self._in_mode)
        self._samples, self._skeleton = samples, skeleton

    def _in_mode(self, tensors: Mapping[str, Tensor]) -> AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        stack.enter_context(self._samples.entered())
        stack.enter_context(self._skeleton.bound(tensors))
        return stack

    def rebuild_tensors(self) -> Callable[[], Mapping[str, Tensor]]:
        """Weights that were not made yet are made again, as the checkpoint will compare what is computed."""
        unmade = {name: t for name, t in self.tensors.items() if isinstance(t, StandIn) and not hasattr(t, WEIGHTS)}
        return lambda: {**self.tensors, **{name: t.of_parts(t.parts()) for name, t in unmade.items()}}

    def like(self, new: Any, old: Any) -> Any:
        """With the mark of what differs between samples."""
        return self._samples.mark(new) if self._samples.has(old) else new
