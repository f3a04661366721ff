"""What the configurations of runs have in common: what is checked, and what a run is called."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from hyperfan.errors import RunError

CLASSICAL = "classical"
"""In place of an init method: the mainnet without a hypernet."""


class Epochs(ABC):
    """What follows from the fields of a configuration whose run goes through its images several times."""

    epochs: int
    images: int
    batch: int
    batches: int | None
    test_every: int | None = None

    @property
    def epoch_batches(self) -> int:
        """Batches in an epoch; images that do not fill one are left out of it."""
        return self.images // self.batch

    @property
    def tested_every(self) -> int:
        """Batches between two tests."""
        return self.epoch_batches if self.test_every is None else self.test_every

    @property
    def stage(self) -> tuple[str, int]:
        """What a run goes through, and how many batches each has."""
        return "epoch", self.epoch_batches

    @property
    def total(self) -> int:
        """Batches in the run."""
        every = self.epochs * self.epoch_batches
        return every if self.batches is None else min(every, self.batches)

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is called."""

    @property
    def folder(self) -> Path:
        """Where the run goes unless told otherwise, under a folder for the experiment."""
        return Path(self.title.replace(" ", "_"))

    def check_batch(self) -> None:
        """Raise if there are not enough images to fill a batch."""
        if self.batch > self.images:
            raise RunError(f"--batch {self.batch}: a batch has no more than the {self.images} training images")


def check_counts(config: Any, *names: str) -> None:
    """Raise if any of these fields is less than 1; ``None`` stands for a default."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise RunError(f"--{name.replace('_', '-')} {value}: at least 1 is needed")


def check_rate(name: str, value: float | None) -> None:
    """Raise if it is no learning rate; ``None`` stands for a default."""
    if value is not None and not 0 < value < math.inf:
        raise RunError(f"--{name} {value:g}: a learning rate is positive and finite")


def check_seed(seed: int) -> None:
    """Raise if it is no seed."""
    if seed < 0:
        raise RunError(f"--seed {seed}: seeds start at 0")


def title(config: Any, usual: Any, untold: Collection[str]) -> str:
    """Init and seed, and then whatever differs from the usual configuration but for the fields not to tell."""
    told = [f.name for f in fields(config) if f.name not in ("init", "seed", *untold)]
    other = [f"{name}-{getattr(config, name)}" for name in told if getattr(config, name) != getattr(usual, name)]
    return " ".join([config.init, f"seed-{config.seed}", *other])
