"""What is read from grids of the continual-learning experiment, drawn and published."""

import functools
import itertools
import math
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hyperfan.charts.palette import init_label
from hyperfan.data.regression import NOISE, Task
from hyperfan.errors import RunError
from hyperfan.experiments.continual import (
    PAPER_INITS,
    TASKS,
    Continual,
    GridRun,
    grid,
)
from hyperfan.experiments.continual.claims import CLAIMS, GROWTH_SEEDS
from hyperfan.experiments.continual.training import points
from hyperfan.experiments.optimisers import OPTIMISER_NAMES
from hyperfan.experiments.results.runs import NamedFigure
from hyperfan.experiments.results.side_by_side import SideBySide, edge, nan_to_inf, quartile_cells
from hyperfan.experiments.results.write import Results
from hyperfan.metrics import Kind, Row
from hyperfan.report import Fit, RunData, Section, fits, losses_by_task, quartiles, task_panels
from hyperfan.text import markdown_table, table, two_digits

CAPTION = textwrap.fill(
    "Each init at its best rate, by the median over seeds of the mean final loss of the tasks, where a run that "
    "diverged counts as infinite. Medians over seeds: training loss at the end of each task, and the error on clean "
    "points of each task after the last.",
    width=110,
)
LOSS_CAPTION = (
    "Each init at its best rate: the median over seeds; of few inits also a band from lower to upper quartile."
)
FORGOTTEN_FACTOR = 10.0
"""A task counts as forgotten if its error grew by such a factor since it was learnt."""
KEPT_EVERY = 3
"""A record keeps the loss at so many of its measurements only."""
TASK_LOSSES = [f"loss, task {i + 1}" for i in range(TASKS)]
BEST_HEADER = ["init", "best rate", "finite", *TASK_LOSSES, *(f"error at the end, task {i + 1}" for i in range(TASKS))]


@dataclass(frozen=True)
class ContinualRun(SideBySide[Continual]):
    """A finished grid."""

    @functools.cached_property
    def losses(self) -> Tensor:
        """Training loss, (init, rate, seed, task, measurement)."""
        return self.read_losses(TASKS)

    @functools.cached_property
    def errors(self) -> Tensor:
        """Mean squared error on clean points, (init, rate, seed, after, task)."""
        return self.read(Kind.ERRORS, "errors", lambda row: (row["after"],), (TASKS, TASKS))

    @functools.cached_property
    def fits(self) -> Tensor:
        """Outputs on clean points, (init, rate, seed, after, task, point)."""
        shape = TASKS, TASKS, len(self.points[0].test_x)
        return self.read(Kind.ERRORS, "fits", lambda row: (row["after"],), shape)

    @property
    def shape(self) -> tuple[int, int]:
        """How many inits and rates there are."""
        return len(self.config.inits), len(self.config.rates)

    def to_dict(self) -> dict[str, Any]:
        """The content of a record: every third measurement of the loss, and the fits of median runs.

        A figure shows the fits of each init at the rates that other seeds choose; of those seeds it shows none,
        and only how they end.
        """
        found, shown = super().to_dict(), set()
        every = self.config.iterations if self.chooses else KEPT_EVERY * self.config.log_every
        found["rows"] = [row for row in found["rows"] if self._is_kept(row, every)]
        if not self.chooses:
            kept = replace(self, rows=found["rows"])  # rounded, as they will be read
            each = itertools.product(self.config.inits, self.config.rates)
            shown = {GridRun(init, lr, self.seeds[kept.median_seed(init, lr)]) for init, lr in each}
        for row in found["rows"]:
            if row["kind"] == Kind.ERRORS:
                pairs = zip(self.config.runs, row["fits"], strict=True)
                row["fits"] = [fit if run in shown else None for run, fit in pairs]
        return found

    def _is_kept(self, row: Row, every: int) -> bool:
        """Whether a record has a line: of a task's losses the first, the last, and one in so many iterations."""
        if row["kind"] == Kind.LOSSES:
            return int(row["iteration"]) % every == 0 or int(row["iteration"]) == self.config.iterations
        return str(row["kind"]) != Kind.TRAIN  # medians over all runs, which no page shows

    @functools.cached_property
    def points(self) -> Sequence[Task]:
        """The tasks of the first seed."""
        return points(self.config, self.config.seed)

    def at(self, init: str, lr: float) -> tuple[int, int]:
        """Where the runs of an init at a rate are in the tensors."""
        if init not in self.config.inits or lr not in self.config.rates:
            raise RunError(f"the grid '{self.config.title}' has no runs of {init} at {lr:g}")
        return self.config.inits.index(init), self.config.rates.index(lr)

    def final(self, init: str, lr: float) -> Tensor:
        """Training loss at the end of each task, (seed, task); infinite after a divergence."""
        return nan_to_inf(self.losses[self.at(init, lr)][:, :, -1])

    def during(self, init: str, lr: float) -> Tensor:
        """Training loss during each task, the mean of all measurements after the first step, (seed, task)."""
        return nan_to_inf(self.losses[self.at(init, lr)][:, :, 1:].mean(-1))

    def initial(self, init: str, lr: float) -> Tensor:
        """Training loss before the first step on each task, (seed, task)."""
        return nan_to_inf(self.losses[self.at(init, lr)][:, :, 0])

    def ends(self, lr: float, start: str = "") -> list[float]:
        """The mean final loss of the tasks of each seed."""
        found: list[float] = self.final(start, lr).mean(1).tolist()
        return found

    def trained(self, init: str, lr: float) -> int:
        """How many runs ended every task closer to it than the best constant is."""
        return int((self.final(init, lr) < self._constants).all(1).sum())

    @functools.cached_property
    def _constants(self) -> Tensor:
        """The loss of the best constant, (seed, task)."""
        return torch.tensor([[t.train_y.var(correction=0) for t in points(self.config, s)] for s in self.seeds])

    def median_seed(self, init: str, lr: float) -> int:
        """The seed whose mean error on all tasks is the median at the end, of an even number the better."""
        scores = nan_to_inf(self.errors[self.at(init, lr)][:, -1]).mean(1)
        return int(scores.argsort()[(len(scores) - 1) // 2])

    def best_errors(self, init: str) -> Tensor:
        """Errors at the init's best rate, (seed, after, task); infinite after a divergence."""
        return nan_to_inf(self.errors[self.at(init, self.best(init))])

    def table(self) -> list[dict[str, Any]]:
        """The numbers of each init at its best rate."""
        rows = []
        for init in self.config.inits:
            lr, errors = self.best(init), self.best_errors(init)
            rows.append(
                {
                    "init": init,
                    "rate": lr,
                    "finite": self.finite(lr, init),
                    "trained": self.trained(init, lr),
                    "runs": len(self.seeds),
                    "loss": [statistics.median(column) for column in self.final(init, lr).T.tolist()],
                    "error": [statistics.median(column) for column in errors[:, -1].T.tolist()],
                    "errors by task after each task": quartiles(errors)[1].tolist(),
                }
            )
        return rows

    def cells(self) -> list[list[str]]:
        """The numbers of each init at its best rate, as text under :data:`BEST_HEADER`."""
        rows = []
        for r in self.table():
            numbers = [two_digits(value, "diverged") for value in (*r["loss"], *r["error"])]
            rows.append([r["init"], f"{r['rate']:g}", f"{r['finite']} of {r['runs']}", *numbers])
        return rows

    def sentence(self) -> str:
        """The init with the lowest loss."""
        c = self.config
        score, init = min((statistics.median(self.ends(self.best(init), init)), init) for init in c.inits)
        lowest = f"lowest for {init} at {self.best(init):g}: {score:.2g}" if math.isfinite(score) else "finite for none"
        runs = f"{len(c.inits)} inits at {len(c.rates)} rates with {c.seeds} seeds, {c.optimiser}"
        return f"{runs}: the median final loss of three tasks learnt one after another is {lowest}."

    def text(self) -> str:
        """The table of best rates."""
        return f"{table(BEST_HEADER, self.cells())}\n\n{CAPTION}"

    def data(self) -> RunData:
        """The grid as its page shows it, with the table and the losses of each task."""
        best = {init: self.best(init) for init in self.config.inits}
        inits = {f"{init} at {lr:g}": init for init, lr in best.items()}
        curves = {label: self.losses[self.at(init, best[init])] for label, init in inits.items()}
        switches = [f"setting-{init}" for init in best]
        panels = task_panels(curves, self.measured_at, self._task_names, switches, inits=inits)
        section = Section("Training loss, task by task", LOSS_CAPTION, panels)
        return replace(super().data(), sections=[section])

    @property
    def _task_names(self) -> list[str]:
        return [task.name for task in self.points]

    def figures(self) -> Iterator[NamedFigure]:
        """Losses by task as in the paper, and what a median run has learnt: every init at its best rate."""
        seeds, names = len(self.seeds), self._task_names
        # More than a handful of curves cannot be told apart, so inits that the paper does not show have another figure.
        curves: dict[str, dict[str, Tensor]] = {"loss": {}, "loss-others": {}}
        inits: dict[str, str] = {}
        median_runs = []
        for init in self.config.inits:
            lr = self.best(init)
            label, finite = f"{init_label(init)} at {lr:g}", self.finite(lr, init)
            note = "" if finite == seeds else f" ({finite} of {seeds} finite)"
            shown = curves["loss" if init in PAPER_INITS else "loss-others"]
            shown[label + note], inits[label + note] = self.losses[self.at(init, lr)], init
            median = (*self.at(init, lr), self.median_seed(init, lr))
            median_runs.append(Fit(label, self.fits[median], self.errors[median], init))
        title = f"Continual Learning Loss on a Sequence of Regression Tasks: {seeds} runs of each init"
        for name, shown in curves.items():
            if shown:
                yield name, losses_by_task(shown, self.measured_at, names, title, inits)
        x, y = (torch.stack(v).squeeze(-1) for v in zip(*((t.test_x, t.test_y) for t in self.points), strict=True))
        title = "What the median run has learnt, and what it keeps, after each task"
        yield "fits", fits(median_runs, x, y, names, title)


class ContinualResults(Results[Continual, ContinualRun]):
    """The grids with SGD and with Adam, and four claims."""

    claims = CLAIMS

    def check(self) -> None:
        """The grid with SGD must be there; without Adam's, its claim is not decided."""
        self.grid("sgd")

    def grid(self, optimiser: str) -> ContinualRun:
        """The grid with an optimiser, at rates chosen on other seeds; raises if there is none."""
        return self.runs.with_chooser(self._compared[optimiser])

    @functools.cached_property
    def grids(self) -> list[ContinualRun]:
        """The grids that are there."""
        return list(self.runs.with_choosers(self._compared).values())

    @property
    def _compared(self) -> dict[str, Continual]:
        return {c.optimiser: c for c in grid(self.base) if c.seed == self.base.seed}

    def figures(self) -> Iterator[NamedFigure]:
        """The figures of the grid with SGD."""
        return self.grid("sgd").figures()

    def summary(self) -> dict[str, Any]:
        """The numbers of each grid at best rates; those of every run are in the record."""
        return {"grids": [{"optimiser": found.config.optimiser, "best": found.table()} for found in self.grids]}

    def fields(self) -> dict[str, Any]:
        """The tables."""
        sgd = self.grid("sgd")
        return {
            "choosing": self.base.choosing().seeds,
            "growth_seeds": GROWTH_SEEDS,
            "noise": NOISE,
            "tested": len(sgd.points[0].test_x),
            "constant": _constant(sgd),
            "forgotten": FORGOTTEN_FACTOR,
            "forgetting": forgetting_table(self.grids),
            "best": self._tables(lambda found: markdown_table(BEST_HEADER, found.cells())),
            "edges": " ".join(map(_edges, self.grids)),
            "all": self._tables(_all_rates),
            "time": "some minutes",
        }

    def _tables(self, draw: Callable[[ContinualRun], str]) -> str:
        return "\n\n".join(f"With {OPTIMISER_NAMES[g.config.optimiser]}:\n\n{draw(g)}" for g in self.grids)


def _edges(found: ContinualRun) -> str:
    best = {init: (found.best(init), found.config.rates) for init in found.config.inits}
    names = [f"{init} at {rate:g}" for init, (rate, rates) in best.items() if edge(rate, rates)]
    return (
        f"With {OPTIMISER_NAMES[found.config.optimiser]} the best rate lies at an end of those tried, where one beyond "
        f"might suit better: {', '.join(names) or 'none'}."
    )


def _constant(found: ContinualRun) -> float:
    """The error of the best constant on the first task."""
    return float(found.points[0].test_y.var(correction=0))


def forgetting_table(grids: Sequence[ContinualRun]) -> str:
    """A table of what each init keeps of the first task."""
    rows = []
    for found in grids:
        for init in found.config.inits:
            errors = found.best_errors(init)[:, :, 0]
            learnt, kept = errors[:, 0], errors[:, -1]
            had = (learnt < _constant(found)) & kept.isfinite()
            forgot = int((kept[had] > FORGOTTEN_FACTOR * learnt[had]).sum())
            medians = [two_digits(m) for m in quartiles(errors)[1].tolist()]
            rows.append([OPTIMISER_NAMES[found.config.optimiser], init, *medians, f"{forgot} of {int(had.sum())}"])
    header = ["optimiser", "init", *(f"error after task {i + 1}" for i in range(TASKS)), "forgotten"]
    return markdown_table(header, rows)


def _all_rates(found: ContinualRun) -> str:
    rows = []
    for init in found.config.inits:
        for lr in found.config.rates:
            counts = str(found.finite(lr, init)), str(found.trained(init, lr))
            rows.append([init, f"{lr:g}", *counts, *quartile_cells(found.final(init, lr))])
    return markdown_table(["init", "rate", "finite", "trained", *TASK_LOSSES], rows)
