"""Finished runs, and what is read from their metrics."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, Self, TypeVar

from hyperfan.errors import RunError
from hyperfan.experiments.environment import COMMIT, fingerprint
from hyperfan.experiments.experiment import (
    CHOOSING_SEED,
    ClassifierConfiguration,
    Configuration,
    Experiment,
    experiment,
    read_configuration,
)
from hyperfan.experiments.folder import CONFIG_FILE, ENV_FILE, TIMES_FILE, has_checkpoint, verify
from hyperfan.experiments.results.record import RECORD_FILE, read_record, rounded_row
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.files import read_json
from hyperfan.metrics import METRICS_FILE, Kind, Row, describe_divergence, divergence, is_over, of_kind, read_metrics
from hyperfan.report import RunData
from hyperfan.text import capitalise

NamedFigure = tuple[str, str]
"""A figure's file, without its suffix, and the figure, an SVG."""
C = TypeVar("C", bound=Configuration)
K = TypeVar("K", bound=ClassifierConfiguration)


@dataclass(frozen=True)
class Run(ABC, Generic[C]):
    """One run that is over: its configuration, its metrics line by line, what it ran in, and its folder."""

    config: C
    rows: Sequence[Row]
    environment: Mapping[str, Any] = field(default_factory=dict)
    path: Path = Path()

    @cached_property
    def setting(self) -> str:
        """The title that it has in common with the runs of other seeds."""
        config: Any = self.config
        return str(replace(config, seed=0).title)

    @property
    def diverged(self) -> bool:
        """Whether it ended with a loss that was not finite."""
        return divergence(self.rows) is not None

    def diverged_by(self, step: int) -> bool:
        """Whether it had diverged after so many batches."""
        found = divergence(self.rows)
        return found is not None and bool(found["step"] < step)  # the batch after those steps is the one that failed

    def of(self, kind: Kind) -> Iterator[Row]:
        """The lines of one kind."""
        return of_kind(self.rows, kind)

    def last(self, kind: Kind) -> Row | None:
        """The last line of a kind, if there is one."""
        return next(of_kind(self.rows[::-1], kind), None)

    @property
    def chooses(self) -> bool:
        """Whether it is there to choose a learning rate, and not to be compared."""
        return self.config.seed >= CHOOSING_SEED

    def half(self, odd: bool) -> "Run[C] | None":
        """The run with even seeds alone, or with odd ones; ``None`` if none is left."""
        return self if self.config.seed % 2 == odd else None

    def to_dict(self) -> dict[str, Any]:
        """What a page needs of the run, as a record keeps it; the diagnosis is left to the run's own page."""
        rows = [rounded_row(row) for row in self.rows if row["kind"] != Kind.DIAGNOSIS]
        return {"config": self.config.to_dict(), "environment": self.environment, "rows": rows}

    def undrawn(self) -> Self:
        """The run without what a page only draws of the first run of a setting."""
        return self

    @abstractmethod
    def sentence(self) -> str:
        """What came out, in a sentence."""

    @abstractmethod
    def figures(self) -> Iterator[NamedFigure]:
        """The figures of this run alone."""

    def text(self) -> str:
        """A table of it, if there is one."""
        return ""

    def data(self) -> RunData:
        """The run as its page shows it."""
        c, content = self.config, read_json(self.path / CONFIG_FILE)
        name = f"{experiment(c.experiment).heading}: {c.title}"
        sentence, text = self.sentence(), self.text()
        return RunData(name, self.rows, content, self.environment, sentence=sentence, text=text, stage=c.stage)


OVERFLOWED_LOSS = 1e30
"""The value of a loss that overflowed, where losses are averaged or compared."""


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

    def training_loss(self, last: int | None = None, epoch: int | None = None) -> float:
        """Mean over the last batches until the end of an epoch; of a run that diverged by then, that of guessing.

        By default over all batches of the last epoch.
        """
        end = self.config.total if epoch is None else epoch * self.config.epoch_batches
        if self.diverged_by(end):
            return math.log(self.classes)
        begin = end - (last or self.config.epoch_batches)
        losses = [row["loss"] for row in self.of(Kind.TRAIN) if begin < row["step"] <= end]
        return float(sum(losses) / len(losses))

    def outcome(self) -> str:
        """How it ended, as the beginning of a sentence."""
        if self.diverged:
            return capitalise(describe_divergence(self.rows[-1]))
        epochs = self.config.total / self.config.epoch_batches
        return f"{self.accuracy():.2%} of the test images right after {epochs:.3g} epochs"


def read_run(path: Path) -> Run[Any]:
    """The run in a folder."""
    try:
        config = read_configuration(read_json(path / CONFIG_FILE))
    except RunError as error:
        raise RunError(f"{path / CONFIG_FILE}: {error}") from error
    verify(path, config)
    kind: type[Run[Any]] = resolve_name(experiment(config.experiment).run)
    return kind(config, read_metrics(path), _read_optional(path / ENV_FILE), path)


def read_data(path: Path) -> RunData:
    """The run in a folder as a page shows it, with what its experiment adds if it is over and we know it."""
    if not (path / METRICS_FILE).exists():
        raise RunError(f"{path} has no {METRICS_FILE} yet: it has only just begun")
    rows, content = read_metrics(path), read_json(path / CONFIG_FILE)
    if not isinstance(content, dict) or not all(isinstance(row, dict) and "kind" in row for row in rows):
        raise RunError(f"{path} is damaged: {CONFIG_FILE} should hold names and values, {METRICS_FILE} lines of them")
    plain = RunData(path.name, rows, content, _read_optional(path / ENV_FILE), _read_optional(path / TIMES_FILE))
    try:
        config = read_configuration(content)
    except RunError:  # of another program, or of a later version
        return plain
    return replace(read_run(path).data(), times=plain.times) if is_over(rows) else replace(plain, stage=config.stage)


def recorded_titles(root: Path, experiment: str) -> set[str]:
    """The titles of an experiment's runs whose metrics a record in this folder has; raises if other code made them."""
    if not (root / RECORD_FILE).exists():
        return set()
    lines, code = read_record(root / RECORD_FILE), fingerprint(experiment)
    others = sorted({str(line["environment"].get("code")) for line in lines} - {code})
    if others:
        raise RunError(
            f"the runs of {root / RECORD_FILE} were made by code {', '.join(others)}, and this is {code}: go on with "
            "the version that made them, or name another --run-dir to start anew"
        )
    return {read_configuration(line["config"]).title for line in lines}


def _read_optional(file: Path) -> Any:
    return read_json(file) if file.exists() else {}


def _from_record(line: Mapping[str, Any], experiment: Experiment[Any]) -> Any:
    config = read_configuration(line["config"])
    if config.experiment != experiment.name:
        raise RunError(f"it holds runs of {config.experiment}, not of {experiment.name}")
    return resolve_name(experiment.run)(config, line["rows"], line["environment"])


R = TypeVar("R", bound=Run[Any])
Key = TypeVar("Key")


class Runs(Generic[R]):
    """Finished runs of an experiment, by what they do; of the runs given, those that are over."""

    def __init__(self, experiment: Experiment[Any], runs: Iterable[R] = (), unverified: int = 0) -> None:
        self.experiment = experiment
        self._found = {run.config.title: run for run in runs if is_over(run.rows)}
        self._with_choosers: dict[str, R] = {}
        self.unverified = unverified
        """Runs in folders without their checkpoint, which has the checksum of their metrics."""

    @classmethod
    def read(cls, root: Path, experiment: Experiment[Any]) -> "Runs[R]":
        """Read the runs in folders under a root, and those of a record there."""
        runs: list[Any] = []
        unverified = 0
        for file in sorted(root.glob(f"*/{CONFIG_FILE}")):
            if not (file.parent / METRICS_FILE).exists():
                continue  # it has only just begun
            run: Any = read_run(file.parent)
            if run.config.experiment != experiment.name:
                raise RunError(f"{file.parent} is a run of {run.config.experiment}, not of {experiment.name}")
            unverified += not has_checkpoint(file.parent)
            runs.append(run)
        if (record := root / RECORD_FILE).exists():
            for line in read_record(record):
                try:
                    runs.append(_from_record(line, experiment))
                except RunError as error:
                    raise RunError(f"{record}: {error}") from error
        return cls(experiment, runs, unverified)

    def recorded(self, configs: Iterable[Configuration]) -> "tuple[Runs[R], list[dict[str, Any]]]":
        """The runs of some configurations that are there, as they are read again from a record, and its lines."""
        found = [self._found[c.title] for c in configs if c in self]
        first = {run.setting: run for run in reversed(found)}
        lines = [(run if run is first[run.setting] else run.undrawn()).to_dict() for run in found]
        kept = [_from_record(line, self.experiment) for line in lines]
        return Runs(self.experiment, kept, self.unverified), lines

    def code_versions(self) -> dict[str, str | None]:
        """The fingerprints of the code that made the runs, each with a commit that has it, if one is known."""
        found: dict[str, str | None] = {}
        for run in self:
            code, known = str(run.environment.get("code")), run.environment.get(COMMIT)
            found[code] = found.get(code) or known
        return dict(sorted(found.items()))

    def processors(self) -> list[str]:
        """The processors on which the runs were made, the most used first."""
        return [name for name, _ in Counter(str(run.environment.get("processor")) for run in self).most_common()]

    def half(self, odd: bool) -> "Runs[R]":
        """The runs with even seeds alone, or with odd ones, also of the seeds that choose rates.

        As other seeds would choose anew. But where one seed chooses, both halves have it.
        """
        halves: Any = [half for run in self if (half := run.half(odd)) is not None]
        chosen = {half.setting for half in halves if half.chooses}
        alone = [run for run in self if run.chooses and run.setting not in chosen]
        return Runs(self.experiment, [*halves, *alone], self.unverified)

    def __contains__(self, config: Configuration) -> bool:
        """Whether there is a run of this configuration."""
        return config.title in self._found

    def __iter__(self) -> Iterator[R]:
        return iter(self._found.values())

    def one(self, config: Configuration) -> R:
        """The run of a configuration; raises if there is none."""
        if config not in self:
            raise RunError(
                f"there is no finished run '{config.title}': hyperfan run {self.experiment.name} --all --resume makes "
                "it, with the --profile and --run-dir of the other runs"
            )
        return self._found[config.title]

    def with_chooser(self, config: Any) -> R:
        """The runs of a configuration, at rates that were chosen on other seeds; raises if there are none."""
        if config.title not in self._with_choosers:
            found: Any = self.one(config)
            self._with_choosers[config.title] = replace(found, chooser=self.one(config.choosing()))
        return self._with_choosers[config.title]

    def with_choosers(self, configs: Mapping[Key, Any]) -> dict[Key, R]:
        """The runs of several configurations with their chosen rates, by key; those without runs are left out."""
        return {key: self.with_chooser(c) for key, c in configs.items() if c in self and c.choosing() in self}

    def seeds(self, config: Any) -> list[R]:
        """The runs of a setting that are there, with whichever seeds, in their order."""
        setting = replace(config, seed=0).title
        found = [run for run in self if run.setting == setting]
        return sorted(found, key=lambda run: run.config.seed)

    def need(self, config: Any) -> list[R]:
        """The runs of a setting, with whichever seeds; raises if there is none."""
        return self.seeds(config) or [self.one(config)]


def mean(runs: Sequence[R], value: Callable[[R], float]) -> Estimate:
    """The mean of a value over runs."""
    return Estimate.of([value(run) for run in runs])


def mean_share(runs: Sequence[R], value: Callable[[R], float]) -> Estimate:
    """The mean of a share over runs."""
    return Estimate.mean_share([value(run) for run in runs])


def difference(a: Sequence[R], b: Sequence[R], value: Callable[[R], float]) -> Estimate:
    """How much larger a value is in runs than in others, seed by seed."""
    return Estimate.of([x - y for x, y in _paired(a, b, value)])


def ratio(a: Sequence[R], b: Sequence[R], value: Callable[[R], float]) -> Estimate:
    """How many times as large a value is in runs as in others, seed by seed."""
    return Estimate.ratio([x / y for x, y in _paired(a, b, value)])


def _paired(a: Sequence[R], b: Sequence[R], value: Callable[[R], float]) -> list[tuple[float, float]]:
    """A value of runs of equal seed, which have the same embeddings and data order."""
    others = {run.config.seed: run for run in b}
    return [(value(run), value(others[run.config.seed])) for run in a if run.config.seed in others]
