"""What an experiment is: a value that names its configuration, profiles and grid; and the experiments by name.

Nothing here needs torch: what an experiment trains with and publishes is imported when it is asked for.
"""

import dataclasses
import importlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from hyperfan.errors import RunError
from hyperfan.experiments.launch import Launch, even_parts
from hyperfan.experiments.training import Training

EXPERIMENTS = ("mnist", "continual", "cifar10", "imagenet", "demonstrations", "conditions", "lora")
"""Packages beside this module, each with an ``EXPERIMENT``. Commands, results and reports all come from here."""
CLASSICAL = "classical"
"""The name, in place of an init method, of the mainnet without a hypernet."""
HYPERFANS, KAIMINGS = ("hyperfan-in", "hyperfan-out"), ("kaiming-fan-in", "kaiming-fan-out")
"""The paper's init methods, and those that it compares them with."""
CHOOSING_SEED = 1000
"""The first of the seeds on which learning rates are chosen, so that comparisons are made on others."""


class Configuration(ABC):
    """The configuration of a run: a frozen dataclass that fixes every number of it.

    Numbers are positive and finite, apart from those that may be zero.
    """

    experiment: ClassVar[str]
    """The name of the experiment."""
    UNTITLED: ClassVar[Collection[str]] = ()
    """Fields that say how a run is observed, or where it is, not what it does; its title leaves them out."""
    MAY_BE_ZERO: ClassVar[Collection[str]] = ("seed",)

    device: str = "cpu"
    """Where nets are trained; a field where that can be chosen."""
    seed: int
    """For all that is random; of several seeds the first."""
    log_every: int
    checkpoint_every: int
    threads: int

    def __post_init__(self) -> None:
        for name, value in self._values().items():
            least = 0 if name in self.MAY_BE_ZERO else 1
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int) and not isinstance(number, bool) and number < least:
                    raise RunError(f"{option(name)} {number}: at least {least} is needed")
                if isinstance(number, float) and not (0 < number < math.inf or number == least == 0):
                    wanted = "positive" if least else "at least 0"
                    raise RunError(f"{option(name)} {number:g}: it must be {wanted} and finite")

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
        """Build net, optimiser and data from the seed; among several processes, this one's part of it."""
        kind = resolve_name(experiment(self.experiment).training)
        world = Launch.of_environment().world
        parts = self.share(world) if world > 1 else None
        if parts is None:
            training: Training = kind(self, data_dir)
            return training
        from hyperfan.experiments.split_grid import SplitGrid

        return SplitGrid(parts, kind, data_dir)

    def share(self, ranks: int) -> "list[tuple[Configuration, int]] | None":
        """The part of a grid that each process has, and its members; ``None`` if processes share each batch."""
        return None

    def _values(self) -> dict[str, Any]:
        assert dataclasses.is_dataclass(self)
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        found: dict[str, Any] = json.loads(json.dumps({"experiment": self.experiment, **self._values()}))
        return found

    def changes(self, *, omit: Collection[str]) -> dict[str, Any]:
        """Fields that do not have their default, but for those that titles leave out and those to omit."""
        assert dataclasses.is_dataclass(self)
        usual, hidden = {f.name: f.default for f in dataclasses.fields(self)}, {*self.UNTITLED, *omit}
        return {name: value for name, value in self._values().items() if name not in hidden and value != usual[name]}

    def changes_as_text(self, *, omit: Collection[str]) -> list[str]:
        """Fields that do not have their default, as they are in a title."""

        def text(value: object) -> str:
            if isinstance(value, tuple):
                return "+".join(map(text, value))
            return f"{value:g}" if isinstance(value, float) else str(value)

        return [f"{name}-{text(value)}" for name, value in self.changes(omit=omit).items()]

    def check_each_once(self, name: str) -> None:
        """Raise if a field that lists values is empty, or has a value twice."""
        values = getattr(self, name)
        if not values or len(set(values)) < len(values):
            raise RunError(f"{option(name)} {' '.join(map(str, values))}: name at least one, and each once")


class ClassifierConfiguration(Configuration):
    """The configuration of a run that goes through its images several times."""

    AVAILABLE: ClassVar[Mapping[str, int]] = {}
    """How many there are of what fields count, where the experiment fixes it."""
    classes: ClassVar[int]
    """The number of classes, where the experiment fixes it."""

    init: str
    epochs: int
    lr: float | None
    images: int
    batch: int
    batches: int | None
    test_every: int | None = None
    optimiser: Literal["sgd", "adam"] = "sgd"
    """The optimiser's name; a field where that can be chosen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, count in self.AVAILABLE.items():
            if getattr(self, name) > count:
                raise RunError(f"{option(name)} {getattr(self, name)}: there are {count}")
        if self.batch > self.images:
            raise RunError(f"--batch {self.batch}: a batch has no more than the {self.images} training images")

    @property
    def rate(self) -> float:
        """The learning rate at the start; by default the paper's on MNIST and CIFAR-10."""
        return self.lr or (0.01 if self.init == CLASSICAL else 0.0005)

    @property
    def epoch_batches(self) -> int:
        """Batches in an epoch; images that do not fill one are left out of it."""
        return self.images // self.batch

    @property
    def tested_every(self) -> int:
        """Batches between two tests."""
        return self.test_every or self.epoch_batches

    @property
    def stage(self) -> tuple[str, int]:
        """An epoch."""
        return "epoch", self.epoch_batches

    @property
    def total(self) -> int:
        """Batches in the run."""
        every = self.epochs * self.epoch_batches
        return min(every, self.batches or every)

    @property
    def title(self) -> str:
        """Init and seed, and every field that is not as in the paper's profile."""
        others = [f"{name}-{value}" for name, value in self.changes(omit=("init", "seed")).items()]
        return " ".join([self.init, f"seed-{self.seed}", *others])


class SeedsConfiguration(Configuration):
    """The configuration of many runs side by side, with several seeds."""

    COMPARED_PER_CHOOSING: ClassVar[int] = 4
    """One seed to choose rates on for so many to compare on."""

    seeds: int

    @property
    def seed_range(self) -> range:
        """All seeds, in the order in which runs count them."""
        return range(self.seed, self.seed + self.seeds)

    def choosing(self) -> Self:
        """The same runs on the seeds that learning rates are chosen on."""
        config: Any = self
        seeds = math.ceil(self.seeds / self.COMPARED_PER_CHOOSING)
        changed: Self = replace(config, seed=self.seed + CHOOSING_SEED, seeds=seeds)
        return changed

    def share(self, ranks: int) -> list[tuple[Configuration, int]]:
        """Each process has some of the seeds."""
        config: Any = self
        parts = [self.seed_range[part] for part in even_parts(self.seeds, ranks, f"--seeds {self.seeds}")]
        return [(replace(config, seed=part.start, seeds=len(part)), len(part)) for part in parts]


class TaskConfiguration(SeedsConfiguration):
    """The configuration of many runs side by side that learn one task after another."""

    iterations: int
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations % self.log_every:
            raise RunError(f"--iterations {self.iterations} is no multiple of --log-every {self.log_every}")
        self.check_each_once("rates")

    @property
    def stage(self) -> tuple[str, int]:
        """A task."""
        return "task", self.iterations


C = TypeVar("C", bound=Configuration)


@dataclass(frozen=True)
class Experiment(Generic[C]):
    """An experiment: its configurations, and which of them are run.

    Args:
        config: its configurations, each a frozen dataclass whose fields are the options of its command.
        training: its :class:`Training` as an entry point, "module:class", so that help comes without torch.
        run: the entry point of what is read from a finished run, a :class:`hyperfan.experiments.results.runs.Run`.
        results: the entry point of what is published, a :class:`hyperfan.experiments.results.write.Results`.
        heading: its name for people, on pages.
        summary: what it is, in a line of the command line's help; ``help`` is the rest of it.
        example: options of an example in that help.
        profiles: configurations to start from: "paper", "laptop" and "smoke".
        grid: from a profile to all runs that the results rest on.
        varied: the fields that the grid sets.
    """

    config: type[C]
    training: str
    run: str
    results: str
    heading: str
    summary: str
    example: str
    profiles: Mapping[str, C]
    grid: Callable[[C], list[C]]
    varied: tuple[str, ...]
    help: str = ""

    @property
    def name(self) -> str:
        """Its name in commands and folders."""
        return self.config.experiment


def experiment(name: str) -> Experiment[Any]:
    """The experiment of this name."""
    found: Experiment[Any] = importlib.import_module(f"hyperfan.experiments.{name}").EXPERIMENT
    return found


def read_configuration(content: Mapping[str, Any]) -> Configuration:
    """The configuration that a ``config.json`` holds; fields that did not exist when it was written have defaults."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    name = values.pop("experiment", None)
    if name not in EXPERIMENTS:
        raise RunError("it is not the configuration of a known experiment")
    try:
        config: Configuration = experiment(name).config(**values)
    except TypeError as error:
        raise RunError(f"it is not the configuration of a run of {name}: {error}") from error
    return config


def option(name: str) -> str:
    """A field as the command line's option."""
    return f"--{name.replace('_', '-')}"
