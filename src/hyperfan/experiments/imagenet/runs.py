"""Finished runs of the Bayesian MobileNet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperfan.experiments import runs
from hyperfan.experiments.imagenet.config import Imagenet


class Run(runs.Run[Imagenet]):
    """One run that is over."""

    def beginning(self) -> float:
        """The training loss of the first batches, before any step has had much effect."""
        return float(next(self.of("train"))["loss"])

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
