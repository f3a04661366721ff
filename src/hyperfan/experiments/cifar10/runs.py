"""Finished runs of the CIFAR-10 experiment, and the rate at which each init does best."""

import math
from dataclasses import replace
from pathlib import Path

from hyperfan.experiments import runs
from hyperfan.experiments.cifar10.config import RATES, Cifar10

Run = runs.Run[Cifar10]
LAST = 100
"""Batches at the end whose training loss is averaged."""


def read_run(path: Path) -> Run:
    """The run in a folder."""
    return runs.read_run(path, Cifar10, Run)


class Runs(runs.Runs[Run]):
    """All runs found under a folder that are over."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_run, "hyperfan run cifar10 --all --resume")

    def best(self, base: Cifar10, init: str) -> Cifar10:
        """The init at the rate with the smallest training loss at the end, by the first seed alone.

        A run that diverged is the worst, and of several such the one with the smallest rate is taken.
        """
        tried = [self.need(replace(base, init=init, lr=lr), 1)[0] for lr in RATES[init]]
        return min(tried, key=lambda r: (math.inf if r.diverged else r.training_loss(LAST), r.config.rate)).config
