"""Finished runs of the Bayesian MobileNet."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperfan.experiments import runs
from hyperfan.experiments.imagenet.config import Imagenet


class Run(runs.Run[Imagenet]):
    """One run that is over."""

    def beginning(self) -> float:
        """The training loss of the first batch, or batches that a line of metrics has; infinite if it overflowed."""
        first = next(self.of("train"), None)
        return math.inf if first is None else float(first["loss"])

    def ending(self) -> float:
        """The mean training loss over the last quarter; infinite if it diverged."""
        return math.inf if self.diverged else self.training_loss(-(-self.config.total // 4))

    def scores(self) -> Mapping[str, Any] | None:
        """Of the last test, if it came to one."""
        found = list(self.of("test"))
        return found[-1] if found else None

    def uncertainty(self) -> Mapping[str, Any] | None:
        """What was seen at the end of it."""
        return next(self.of("uncertainty"), None)


def read_run(path: Path) -> Run:
    """The run in a folder."""
    return runs.read_run(path, Imagenet, Run)


class Runs(runs.Runs[Run]):
    """All runs found under a folder that are over."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_run, "hyperfan run imagenet --all --resume")
