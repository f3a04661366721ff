"""What is read off the metrics of MNIST runs beside loss and accuracy: how their weights settle."""

import itertools
import math
from pathlib import Path
from typing import Literal

from hyperfan.experiments import runs
from hyperfan.experiments.mnist.config import LAYERS, Mnist

SETTLED = 0.01
"""Weights have settled when their standard deviation stays within so much of its final value."""


class Run(runs.Run[Mnist]):
    """One run that is over."""

    def settled(self) -> float:
        """Batches after which the weights' deviations stay near their final value, averaged over layers.

        A run that diverged never settles.
        """
        if self.diverged:
            return float(self.config.total)
        return sum(self._settled(f"{path}.weight") for path in LAYERS) / len(LAYERS)

    def restless(self, of: Literal["mean", "deviation"], relative: bool) -> float:
        """How far the weights' mean or deviation moves in 1000 batches after the first third, averaged over layers.

        Relative to the deviation at the end, or as it is. A run that diverged has no such number.
        """
        if self.diverged:
            return math.nan
        moves = []
        for path in LAYERS:
            _, means, deviations = self._moments(f"{path}.weight")
            values = means if of == "mean" else deviations
            late = values[len(values) // 3 :]
            scale = deviations[-1] if relative else 1.0
            moves += [abs(b - a) / scale for a, b in itertools.pairwise(late)]
        return sum(moves) / len(moves)

    def _moments(self, where: str) -> tuple[list[int], list[float], list[float]]:
        """Steps, and mean and standard deviation of a weight at each."""
        rows = [r for r in self.of("moments") if r["of"] == "weights"]
        pairs = [(r["step"], *r["layers"][where]) for r in rows if None not in r["layers"][where]]
        steps, means, deviations = zip(*pairs, strict=True)
        return list(steps), list(means), list(deviations)

    def _settled(self, where: str) -> int:
        steps, _, stds = self._moments(where)
        far = [step for step, std in zip(steps, stds, strict=True) if abs(std - stds[-1]) > SETTLED * stds[-1]]
        return 0 if not far else next(s for s in steps if s > far[-1])


def read_run(path: Path) -> Run:
    """The run in a folder."""
    return runs.read_run(path, Mnist, Run)


class Runs(runs.Runs[Run]):
    """All runs found under a folder that are over."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_run, "hyperfan run mnist --all --resume")
