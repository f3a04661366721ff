"""Finished runs of the CIFAR-10 experiment."""

from pathlib import Path

from hyperfan.experiments import runs
from hyperfan.experiments.cifar10.config import Cifar10

Run = runs.Run[Cifar10]


def read_run(path: Path) -> Run:
    """The run in a folder."""
    return runs.read_run(path, Cifar10, Run)


class Runs(runs.Runs[Run]):
    """All runs found under a folder that are over."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_run, "hyperfan run cifar10 --all --resume")
