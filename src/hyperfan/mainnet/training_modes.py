"""The training modes of modules, restored after they were set for a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def training_modes_restored(root: nn.Module) -> Iterator[None]:
    """In the end put a module, and each in it, back into the training mode that it was in."""
    modes = {m: m.training for m in root.modules()}
    try:
        yield
    finally:
        for m, training in modes.items():
            m.training = training
