"""Finished runs, and what is read off their metrics."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.files import read_json
from hyperfan.experiments.folder import read_metrics
from hyperfan.experiments.mnist.config import LAYERS, Mnist

CLASSES, TEST_IMAGES = 10, 10_000
SETTLED = 0.01
"""Weights have settled when their standard deviation stays within so much of its final value."""


@dataclass(frozen=True)
class Run:
    """One run that is over."""

    config: Mnist
    rows: Sequence[dict[str, Any]]
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def diverged(self) -> bool:
        """Whether it ended with a loss that was not finite."""
        return bool(self.rows[-1]["outcome"] == "diverged")

    def accuracy(self, epoch: int | None = None) -> float:
        """On the test images after an epoch, by default the last; of a run that diverged, that of guessing."""
        step = self.config.total if epoch is None else epoch * self.config.epoch_batches
        for r in self._of("test"):
            if r["step"] == step:
                return float(r["accuracy"])
        if self.diverged:
            return 1 / CLASSES
        raise RunError(f"'{self.config.title}' was not tested after batch {step}")

    def test_loss(self) -> float:
        """Summed over the test images at the end; of a run that diverged, that of guessing."""
        last = list(self._of("test"))[-1]
        return math.log(CLASSES) * TEST_IMAGES if self.diverged else float(last["loss"])

    def training_loss(self) -> float:
        """Mean over the last epoch; of a run that diverged, that of guessing."""
        if self.diverged:
            return math.log(CLASSES)
        first = self.config.total - self.config.epoch_batches
        losses = [r["loss"] for r in self._of("train") if r["step"] > first]
        return float(sum(losses) / len(losses))

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
        rows = [r for r in self._of("moments") if r["of"] == "weights"]
        pairs = [(r["step"], *r["layers"][where]) for r in rows if None not in r["layers"][where]]
        steps, means, deviations = zip(*pairs, strict=True)
        return list(steps), list(means), list(deviations)

    def _settled(self, where: str) -> int:
        steps, _, stds = self._moments(where)
        far = [step for step, std in zip(steps, stds, strict=True) if abs(std - stds[-1]) > SETTLED * stds[-1]]
        return 0 if not far else next(s for s in steps if s > far[-1])

    def _of(self, kind: str) -> Iterator[dict[str, Any]]:
        return (r for r in self.rows if r["kind"] == kind)


def read_run(path: Path) -> Run:
    """The run in a folder."""
    try:
        config = Mnist(**read_json(path / "config.json"))
    except TypeError as error:
        raise RunError(f"{path / 'config.json'} is not the configuration of an MNIST run: {error}") from error
    return Run(config, read_metrics(path), read_json(path / "env.json"))


class Runs:
    """All runs found under a folder that are over."""

    def __init__(self, root: Path) -> None:
        self.all: dict[Mnist, Run] = {}
        for file in sorted(root.glob("*/config.json")):
            if not (file.parent / "metrics.jsonl").exists():
                continue  # it has only just begun
            run = read_run(file.parent)
            if run.rows and run.rows[-1]["kind"] == "end":
                self.all[run.config] = run

    def seeds(self, config: Mnist, n: int) -> list[Run]:
        """The runs of a setting that are there, for up to n seeds from its own."""
        wanted = (replace(config, seed=config.seed + i) for i in range(n))
        return [self.all[c] for c in wanted if c in self.all]

    def need(self, config: Mnist, n: int) -> list[Run]:
        """The same, at least one."""
        found = self.seeds(config, n)
        if not found:
            raise RunError(
                f"there is no finished run '{config.title}': hyperfan run mnist --all --resume makes it, with the "
                "--profile and --run-dir of the other runs"
            )
        return found
