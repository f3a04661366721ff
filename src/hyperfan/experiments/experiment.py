"""What an experiment is: a value that names its configuration, profiles, grid, training and results."""

import dataclasses
import importlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from hyperfan.errors import RunError
from hyperfan.experiments.registry import experiment
from hyperfan.metrics import Row

if TYPE_CHECKING:
    from torch import Tensor

    from hyperfan.experiments.results.runs import Run
    from hyperfan.experiments.results.write import Results

CLASSICAL = "classical"
"""In place of an init method: the mainnet without a hypernet."""


class Training(Protocol):
    """A net that is being trained: what the loop asks of an experiment."""

    plan: Any
    """What the init wrote, as JSON."""

    def step(self, step: int) -> float:
        """Train on one batch, of which ``step`` came before; returns its loss."""

    def tests(self, step: int) -> Iterator[Row]:
        """The lines of metrics that are due after so many batches, apart from those of the probe."""

    def probes(self, step: int) -> Iterator[Row]:
        """The lines of the probe that are due after so many batches."""

    def first_overflow(self, step: int) -> str | None:
        """The first layer that is not finite on the batch after so many batches."""

    def state(self) -> "dict[str, Tensor]":
        """All that changes in training."""

    def load(self, state: "dict[str, Tensor]") -> None:
        """Restore such a state."""

    def synchronise(self, step: int) -> int:
        """Give all processes that share the batches the state of the first one; returns its step."""


class Configuration(ABC):
    """The configuration of a run: a frozen dataclass that fixes every number of it."""

    experiment: ClassVar[str]
    """The name of the experiment."""
    UNTITLED: ClassVar[Collection[str]] = ()
    """Fields that say how a run is observed, or where it is, not what it does; its title leaves them out."""

    log_every: int
    checkpoint_every: int
    threads: int

    @property
    @abstractmethod
    def total(self) -> int:
        """Batches in the run."""

    @property
    @abstractmethod
    def stage(self) -> tuple[str, int]:
        """What a run goes through several of, as epochs, and how many batches each has."""

    @property
    @abstractmethod
    def title(self) -> str:
        """A name that tells runs apart which do different things."""

    @property
    def folder(self) -> Path:
        """Where the run goes by default, under a folder for the experiment."""
        return Path(self.title.replace(" ", "_"))

    def start(self, data_dir: Path | None) -> Training:
        """Build net, optimiser and data from the seed."""
        return experiment(self.experiment).start(self, data_dir)

    def _fields(self) -> tuple[dataclasses.Field[Any], ...]:
        assert dataclasses.is_dataclass(self)
        return dataclasses.fields(self)

    def to_dict(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        values = {f.name: getattr(self, f.name) for f in self._fields()}
        return {"experiment": self.experiment, **_as_json(values)}

    def defaults(self) -> dict[str, Any]:
        """What a ``config.json`` from before a field existed is read as."""
        values = {f.name: f.default for f in self._fields()}
        known = {name: value for name, value in values.items() if value is not dataclasses.MISSING}
        return {"experiment": self.experiment, **_as_json(known)}

    def changes(self, *, omit: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Fields that do not have their default, but for those that titles leave out and those to omit."""
        for f in self._fields():
            if f.name not in (*self.UNTITLED, *omit) and getattr(self, f.name) != f.default:
                yield f.name, getattr(self, f.name)


class ClassifierConfiguration(Configuration):
    """The configuration of a run that goes through its images several times."""

    classes: ClassVar[int]
    """The number of classes, where the experiment fixes it."""

    init: str
    seed: int
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
        """An epoch."""
        return "epoch", self.epoch_batches

    @property
    def total(self) -> int:
        """Batches in the run."""
        every = self.epochs * self.epoch_batches
        return every if self.batches is None else min(every, self.batches)

    @property
    def title(self) -> str:
        """Init and seed, and every field that is not as in the paper's profile."""
        others = [f"{name}-{value}" for name, value in self.changes(omit=("init", "seed"))]
        return " ".join([self.init, f"seed-{self.seed}", *others])

    def check_batch(self) -> None:
        """Raise if there are not enough images to fill a batch."""
        if self.batch > self.images:
            raise RunError(f"--batch {self.batch}: a batch has no more than the {self.images} training images")


C = TypeVar("C", bound=Configuration)


@dataclass(frozen=True)
class Experiment(Generic[C]):
    """An experiment of the paper.

    Args:
        config: its configurations, each a frozen dataclass whose fields are the options of its command.
        heading: its name for people, on pages.
        summary: what it is, in a line of the command line's help; ``help`` is the rest of it.
        example: options of an example in that help.
        profiles: configurations to start from: "paper", "laptop" and "smoke".
        grid: from a profile to all runs that the results rest on.
        varied: the fields that the grid sets.
        training, run, results: "module:class" in its package, imported when needed: how it trains (a ``Training``),
            what is read from a finished run (a ``Run``), what is published (a ``Results``).
        distributed: whether torchrun's processes may share its batches.
    """

    config: type[C]
    heading: str
    summary: str
    example: str
    profiles: Mapping[str, C]
    grid: Callable[[C], list[C]]
    varied: tuple[str, ...]
    training: str
    run: str
    results: str
    help: str = ""
    distributed: bool = False

    @property
    def name(self) -> str:
        """Its name in commands and folders."""
        return self.config.experiment

    @property
    def package(self) -> str:
        """Where its modules and its page are."""
        return self.config.__module__

    def start(self, config: C, data_dir: Path | None) -> Training:
        """Build a run."""
        training: Training = self._load(self.training)(config, data_dir)
        return training

    def run_type(self) -> "type[Run[C]]":
        """The class of its finished runs."""
        found: type[Run[C]] = self._load(self.run)
        return found

    def results_type(self) -> "type[Results[C, Any]]":
        """The class of its results."""
        found: type[Results[C, Any]] = self._load(self.results)
        return found

    def _load(self, reference: str) -> Any:
        module, _, name = reference.partition(":")
        return getattr(importlib.import_module(f"{self.package}.{module}"), name)


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


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(values))
    return found
