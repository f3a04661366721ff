"""Finished runs, and what is read from their metrics."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import ClassifierConfiguration, Configuration, Experiment
from hyperfan.experiments.folder import CONFIG_FILE, ENV_FILE, TIMES_FILE
from hyperfan.experiments.registry import experiment_of, read_configuration
from hyperfan.files import read_json
from hyperfan.metrics import (
    METRICS_FILE,
    Kind,
    Row,
    Rows,
    describe_divergence,
    divergence,
    is_over,
    of_kind,
    read_metrics,
)
from hyperfan.report import RunData
from hyperfan.text import capitalise

NamedFigure = tuple[str, str]
"""A figure's file, without its suffix, and the figure, an SVG."""
C = TypeVar("C", bound=Configuration)
K = TypeVar("K", bound=ClassifierConfiguration)


@dataclass(frozen=True)
class Run(ABC, Generic[C]):
    """One run that is over.

    Args:
        config: its configuration.
        rows: its metrics, line by line.
        environment: what it ran in.
        path: its folder.
    """

    config: C
    rows: Rows
    environment: Mapping[str, Any] = field(default_factory=dict)
    path: Path = Path()

    @property
    def diverged(self) -> bool:
        """Whether it ended with a loss that was not finite."""
        return divergence(self.rows) is not None

    def of(self, kind: Kind) -> Iterator[Row]:
        """The lines of one kind."""
        return of_kind(self.rows, kind)

    def first(self, kind: Kind) -> Row | None:
        """The first line of a kind, if there is one."""
        return next(self.of(kind), None)

    def last(self, kind: Kind) -> Row | None:
        """The last line of a kind, if there is one."""
        return next(of_kind(self.rows[::-1], kind), None)

    @abstractmethod
    def sentence(self) -> str:
        """What came out, in a sentence."""

    @abstractmethod
    def figures(self) -> Iterator[NamedFigure]:
        """The figures of this run alone."""

    def text(self) -> str:
        """What a terminal shows when it is over."""
        return self.sentence()

    def data(self, heading: str) -> RunData:
        """The run as its page shows it."""
        content, name = read_json(self.path / CONFIG_FILE), f"{heading}: {self.config.title}"
        return RunData(name, self.rows, content, self.environment, sentence=self.sentence(), stage=self.config.stage)


class ClassifierRun(Run[K]):
    """One run of a classifier that is over."""

    config: K

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.config.classes

    def accuracy(self, epoch: int | None = None) -> float:
        """On the test images after an epoch, by default the last; of a run that diverged, that of guessing."""
        step = self.config.total if epoch is None else epoch * self.config.epoch_batches
        for row in self.of(Kind.TEST):
            if row["step"] == step:
                return float(row["accuracy"])
        if self.diverged:
            return 1 / self.classes
        raise RunError(f"'{self.config.title}' was not tested after batch {step}")

    def training_loss(self, last: int | None = None) -> float:
        """Mean over the last batches, by default an epoch's; of a run that diverged, that of guessing."""
        if self.diverged:
            return math.log(self.classes)
        first = self.config.total - (last or self.config.epoch_batches)
        losses = [row["loss"] for row in self.of(Kind.TRAIN) if row["step"] > first]
        return float(sum(losses) / len(losses))

    def outcome(self) -> str:
        """How it ended, as the beginning of a sentence."""
        if self.diverged:
            return capitalise(describe_divergence(self.rows[-1]))
        epochs = self.config.total / self.config.epoch_batches
        return f"{self.accuracy():.2%} of the test images right after {epochs:.3g} epochs"


def read_run(path: Path) -> tuple[Experiment[Any], Run[Any]]:
    """The run in a folder, and its experiment."""
    content = read_json(path / CONFIG_FILE)
    try:
        config = read_configuration(content)
    except RunError as error:
        raise RunError(f"{path / CONFIG_FILE}: {error}") from error
    found = experiment_of(content)
    assert found is not None
    return found, found.run_type()(config, read_metrics(path), _read_optional(path / ENV_FILE), path)


def read_data(path: Path) -> RunData:
    """The run in a folder as a page shows it, with what its experiment adds if it is over and we know it."""
    if not (path / METRICS_FILE).exists():
        raise RunError(f"{path} has no {METRICS_FILE} yet: it has only just begun")
    rows, content = read_metrics(path), read_json(path / CONFIG_FILE)
    if not isinstance(content, dict) or not all(isinstance(row, dict) and "kind" in row for row in rows):
        raise RunError(f"{path} is damaged: {CONFIG_FILE} should hold names and values, {METRICS_FILE} lines of them")
    times, environment = _read_optional(path / TIMES_FILE), _read_optional(path / ENV_FILE)
    try:
        config = read_configuration(content)
    except RunError:  # of another program, or of a later version
        return RunData(path.name, rows, content, environment, times)
    if not is_over(rows):
        return RunData(path.name, rows, content, environment, times, stage=config.stage)
    experiment, run = read_run(path)
    return replace(run.data(experiment.heading), times=times)


def _read_optional(file: Path) -> Any:
    return read_json(file) if file.exists() else {}


R = TypeVar("R", bound=Run[Any])


class Runs(Generic[R]):
    """All finished runs of an experiment under a folder, by what they do.

    Args:
        root: the folder.
        experiment: of which the runs are.
    """

    def __init__(self, root: Path, experiment: Experiment[Any]) -> None:
        self.experiment = experiment
        self._found: dict[str, R] = {}
        for file in sorted(root.glob(f"*/{CONFIG_FILE}")):
            if not (file.parent / METRICS_FILE).exists():
                continue  # it has only just begun
            its_experiment, run = read_run(file.parent)
            if its_experiment != experiment:
                raise RunError(f"{file.parent} is a run of {its_experiment.name}, not of {experiment.name}")
            if is_over(run.rows):
                self._found[run.config.title] = run  # type: ignore[assignment]  # the experiment's, as checked

    def __contains__(self, config: Configuration) -> bool:
        """Whether there is a run of this configuration."""
        return config.title in self._found

    def __iter__(self) -> Iterator[R]:
        return iter(self._found.values())

    def seeds(self, config: Any, n: int) -> list[R]:
        """The runs of a setting that are there, for up to n seeds from that of the configuration."""
        wanted = (replace(config, seed=config.seed + i) for i in range(n))
        return [self._found[c.title] for c in wanted if c in self]

    def need(self, config: Any, n: int = 1) -> list[R]:
        """The same, at least one; raises if there is none."""
        found = self.seeds(config, n)
        if not found:
            raise RunError(
                f"there is no finished run '{config.title}': hyperfan run {self.experiment.name} --all --resume makes "
                "it, with the --profile and --run-dir of the other runs"
            )
        return found


def pairs(a: Sequence[R], b: Sequence[R]) -> list[tuple[R, R]]:
    """Runs of equal seed, which have the same embeddings and data order."""
    others = {r.config.seed: r for r in b}
    return [(r, others[r.config.seed]) for r in a if r.config.seed in others]
