"""Finished runs of a classifier, and what is read off their metrics."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from hyperfan.errors import RunError
from hyperfan.experiments.files import read_json
from hyperfan.experiments.folder import read_metrics
from hyperfan.report import RunData

CLASSES = 10
Config = TypeVar("Config", bound=Any)
"""A frozen dataclass: the configuration of a run."""


@dataclass(frozen=True)
class Run(Generic[Config]):
    """One run that is over."""

    config: Config
    rows: Sequence[dict[str, Any]]
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def diverged(self) -> bool:
        """Whether it ended with a loss that was not finite."""
        return bool(self.rows[-1]["outcome"] == "diverged")

    def accuracy(self, epoch: int | None = None) -> float:
        """On the test images after an epoch, by default the last; of a run that diverged, that of guessing."""
        step = self.config.total if epoch is None else epoch * self.config.epoch_batches
        for r in self.of("test"):
            if r["step"] == step:
                return float(r["accuracy"])
        if self.diverged:
            return 1 / CLASSES
        raise RunError(f"'{self.config.title}' was not tested after batch {step}")

    def first_loss(self) -> float:
        """Mean over the test images before training; infinite if that overflowed."""
        loss = next(self.of("test"))["loss"]
        return math.inf if loss is None else float(loss) / float(self.config.test_images)

    def test_loss(self) -> float:
        """Summed over the test images at the end; of a run that diverged, that of guessing."""
        last = list(self.of("test"))[-1]
        return math.log(CLASSES) * self.config.test_images if self.diverged else float(last["loss"])

    def training_loss(self, last: int | None = None) -> float:
        """Mean over the last batches, by default an epoch's; of a run that diverged, that of guessing."""
        if self.diverged:
            return math.log(CLASSES)
        first = self.config.total - (last or self.config.epoch_batches)
        losses = [r["loss"] for r in self.of("train") if r["step"] > first]
        return float(sum(losses) / len(losses))

    def data(self, path: Path, kind: str, sentence: str) -> RunData:
        """What its page shows."""
        config, title = read_json(path / "config.json"), f"{kind}: {self.config.title}"
        return RunData(title, self.rows, config, self.environment, sentence=sentence, stage=self.config.stage)

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        """The lines of one kind."""
        return (r for r in self.rows if r["kind"] == kind)

    def told(self) -> str:
        """How it ended, in a sentence's beginning."""
        end = self.rows[-1]
        if self.diverged:
            where = "the loss itself" if end["layer"] is None else f"layer '{end['layer']}'"
            return f"Diverged at batch {end['step'] + 1}; the first to overflow was {where}"
        epochs = self.config.total / self.config.epoch_batches
        return f"{self.accuracy():.2%} of the test images right after {epochs:.3g} epochs"


AnyRun = TypeVar("AnyRun", bound=Run[Any])


def read_run(path: Path, config: Callable[..., Any], run: Callable[..., AnyRun]) -> AnyRun:
    """The run in a folder."""
    content = {k: tuple(v) if isinstance(v, list) else v for k, v in read_json(path / "config.json").items()}
    try:
        made = config(**content)
    except TypeError as error:
        raise RunError(f"{path / 'config.json'} is not the configuration of such a run: {error}") from error
    return run(made, read_metrics(path), read_json(path / "env.json"))


class Runs(Generic[AnyRun]):
    """All runs found under a folder that are over.

    Args:
        root: the folder.
        read: reads a run from its folder.
        command: makes the runs.
    """

    def __init__(self, root: Path, read: Callable[[Path], AnyRun], command: str) -> None:
        self.command = command
        self._found: dict[str, AnyRun] = {}
        for file in sorted(root.glob("*/config.json")):
            if not (file.parent / "metrics.jsonl").exists():
                continue  # it has only just begun
            run = read(file.parent)
            if run.rows and run.rows[-1]["kind"] == "end":
                self._found[run.config.title] = run  # which leaves out how it was watched, and where it ran

    def __contains__(self, config: Any) -> bool:
        """Whether there is a run of it."""
        return config.title in self._found

    def __iter__(self) -> Iterator[AnyRun]:
        return iter(self._found.values())

    def seeds(self, config: Any, n: int) -> list[AnyRun]:
        """The runs of a setting that are there, for up to n seeds from its own."""
        wanted = (replace(config, seed=config.seed + i) for i in range(n))
        return [self._found[c.title] for c in wanted if c in self]

    def need(self, config: Any, n: int) -> list[AnyRun]:
        """The same, at least one."""
        found = self.seeds(config, n)
        if not found:
            raise RunError(
                f"there is no finished run '{config.title}': {self.command} makes it, with the --profile and --run-dir "
                "of the other runs"
            )
        return found


def pairs(a: Sequence[AnyRun], b: Sequence[AnyRun]) -> list[tuple[AnyRun, AnyRun]]:
    """By seed: the runs of one seed have the same embeddings and data order."""
    theirs = {r.config.seed: r for r in b}
    return [(r, theirs[r.config.seed]) for r in a if r.config.seed in theirs]
