"""Runs that were trained side by side, with several seeds, and left one file of metrics."""

import math
import statistics
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.experiments.results.pairs import ChosenBy
from hyperfan.experiments.results.runs import Run
from hyperfan.metrics import Kind, Row
from hyperfan.report import quartiles
from hyperfan.text import two_digits


def edge(rate: float, rates: Sequence[float]) -> Literal["smallest", "largest"] | None:
    """The end of a range of rates that one lies at, if it does: a rate beyond it might be better still.

    >>> [edge(rate, (0.1, 0.2, 0.3)) for rate in (0.1, 0.2, 0.3)]
    ['smallest', None, 'largest']
    """
    return "smallest" if rate == min(rates) else "largest" if rate == max(rates) else None


def edge_sentences(best: Mapping[str, tuple[float, Sequence[float]]]) -> str:
    """A sentence for each name whose best rate lies at an end of the rates that were tried."""
    found = []
    for name, (rate, rates) in best.items():
        if end := edge(rate, rates):
            found.append(f"For {name} the {end} rate is the best, so one beyond it may suit it better.")
    return " ".join(found)


def nan_to_inf(scores: Tensor) -> Tensor:
    """Scores of which those of runs that diverged are infinite."""
    return scores.nan_to_num(math.inf, math.inf)


def right_after(errors: Tensor) -> Tensor:
    """The error of each task right after it, (seed, task).

    Args:
        errors: of all tasks, before the first and after each, (seed, tasks learnt, task).
    """
    return errors[:, 1:].diagonal(dim1=1, dim2=2)


def forgetting(errors: Tensor) -> Tensor:
    """The error of earlier tasks at the end over that right after each, (seed), of :func:`right_after`'s errors."""
    return errors[:, -1, :-1].mean(1) / right_after(errors)[:, :-1].mean(1)


def quartile_cells(losses: Tensor) -> list[str]:
    """Median and quartiles over the first dimension, as cells of a table."""
    low, middle, high = ([two_digits(q) for q in part.tolist()] for part in quartiles(losses))
    return [f"{m} [{a}, {b}]" for a, m, b in zip(low, middle, high, strict=True)]


C = TypeVar("C", bound=Any)
"""A configuration with several rates and several seeds, which its runs count fastest."""


@dataclass(frozen=True)
class SideBySide(Run[C]):
    """Finished runs of several seeds. In their tensors a run that diverged has NaN from then on.

    A start is what its runs differ in beside rate and seed, as an init. Where they differ in nothing else, it has no
    name.

    Args:
        part: which of the seeds are looked at.
        chooser: the same on other seeds, which choose the best rates; without it these choose.
    """

    part: slice = field(default_factory=lambda: slice(None))
    chooser: Self | None = None

    @property
    def seeds(self) -> range:
        """The seeds that are looked at."""
        seeds: range = self.config.seed_range[self.part]
        return seeds

    def half(self, odd: bool) -> Self | None:
        """The runs with even seeds alone, or with odd ones; ``None`` if none is left."""
        half = replace(self, part=slice((self.config.seed + odd) % 2, None, 2))
        return half if half.seeds else None

    @abstractmethod
    def ends(self, lr: float, start: str = "") -> Sequence[float]:
        """How each seed's run from a start ends at a rate, by which rates are chosen; infinite after a divergence."""

    def best(self, start: str = "") -> float:
        """The rate of a start that was chosen on other seeds; if there are none, the one where these end lowest."""
        return (self.chooser or self).lowest(start)

    def lowest(self, start: str = "") -> float:
        """The rate of a start at which the median of these seeds ends lowest."""
        rates: Sequence[float] = self.config.rates
        return min(rates, key=lambda lr: (statistics.median(self.ends(lr, start)), lr))

    def rate(self, chosen_by: ChosenBy, start: str = "") -> float:
        """The rate of a start that is best on some of the seeds."""
        return self.best(start) if chosen_by is ChosenBy.OTHERS else self.lowest(start)

    def finite(self, lr: float, start: str = "") -> int:
        """How many runs from a start went through to the end at a rate."""
        return sum(map(math.isfinite, self.ends(lr, start)))

    @property
    def measured_at(self) -> list[int]:
        """Iterations of a task after which its loss was measured."""
        return sorted({row["iteration"] for row in self.of(Kind.LOSSES)})

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Numbers of starts, if they have names, and of rates."""

    def read_losses(self, tasks: int, key: str = "losses") -> Tensor:
        """The losses under a key of each setting, (*shape, seed, task, measurement)."""
        index = {iteration: i for i, iteration in enumerate(self.measured_at)}
        return self.read(Kind.LOSSES, key, lambda row: (row["task"], index[row["iteration"]]), (tasks, len(index)))

    def read(self, kind: Kind, key: str, place: Callable[[Row], tuple[int, ...]], shape: tuple[int, ...]) -> Tensor:
        """The values of every run, each line of metrics at its place: (*shape of the runs, seed, *shape)."""
        found = np.full((math.prod(self.shape) * self.config.seeds, *shape), math.nan)
        for row in self.of(kind):
            at: Any = (slice(None), *place(row))
            nothing = np.full(found[at].shape[1:], math.nan)
            try:
                values = [nothing if value is None else value for value in row[key]]
                found[at] = np.array(values, dtype=float)  # where None is NaN
            except (TypeError, ValueError) as error:
                raise RunError(f"'{self.config.title}' does not hold the metrics of its runs: {error}") from error
        every = torch.from_numpy(found).view(*self.shape, self.config.seeds, *shape)
        return every[(*[slice(None)] * len(self.shape), self.part)]
