"""What is read from grids of the continual-learning experiment, drawn and published."""

import functools
import math
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hyperfan.charts.palette import LABELS
from hyperfan.charts.panel import Panel
from hyperfan.errors import RunError
from hyperfan.experiments.continual import OPTIMISER_NAMES, PAPER_INITS, TASKS, Continual, grid
from hyperfan.experiments.continual.claims import CLAIMS, GROWTH_SEEDS, LOSS_MARGIN, MIN_PAIRS, growths
from hyperfan.experiments.continual.training import points
from hyperfan.experiments.results.claims import markdown_table
from hyperfan.experiments.results.runs import NamedFigure, Run
from hyperfan.experiments.results.write import Results
from hyperfan.metrics import Kind
from hyperfan.report import Fit, RunData, Section, fits, losses_by_task, quartiles, task_panels
from hyperfan.text import table

CAPTION = (
    "Each init at its best rate, by the median over seeds of the mean final loss of the tasks, where a run that "
    "diverged counts as infinite. Medians over seeds: training loss at the end of each task, and the error on clean "
    "points of each task after the last."
)
CAPTION_WIDTH = 110
LOSS_CAPTION = (
    "Each init at its best rate: the median over seeds; of few inits also a band from lower to upper quartile."
)
FORGOTTEN_FACTOR = 10.0
"""A task counts as forgotten if its error grew by such a factor since it was learnt."""
TASK_LOSSES = [f"loss, task {i + 1}" for i in range(TASKS)]
BEST_HEADER = ["init", "best rate", "finite", *TASK_LOSSES, *(f"error at the end, task {i + 1}" for i in range(TASKS))]


class Grid(Run[Continual]):
    """A finished grid. In its tensors a run that diverged has NaN from then on."""

    @functools.cached_property
    def losses(self) -> Tensor:
        """Training loss, (init, rate, seed, task, measurement)."""
        per_task = self.config.iterations // self.config.log_every + 1
        found = self._empty(TASKS, per_task)
        for row in self.of(Kind.LOSSES):
            self._fill(found[:, row["task"], row["iteration"] // self.config.log_every], row["losses"])
        return self._by_setting(found)

    @functools.cached_property
    def errors(self) -> Tensor:
        """Mean squared error on clean points, (init, rate, seed, after, task)."""
        found = self._empty(TASKS, TASKS)
        for row in self.of(Kind.ERRORS):
            self._fill(found[:, row["after"]], row["errors"])
        return self._by_setting(found)

    @functools.cached_property
    def fits(self) -> Tensor:
        """Outputs on clean points, (init, rate, seed, after, task, point)."""
        found = self._empty(TASKS, TASKS, len(self.points[0].test_x))
        for row in self.of(Kind.ERRORS):
            self._fill(found[:, row["after"]], row["fits"])
        return self._by_setting(found)

    @functools.cached_property
    def points(self) -> Any:
        """The tasks of the first seed."""
        return points(self.config, self.config.seed)

    def _empty(self, *shape: int) -> Tensor:
        return torch.full((len(self.config.runs), *shape), math.nan, dtype=torch.float64)

    def _fill(self, target: Tensor, values: Sequence[Any]) -> None:
        try:
            target.copy_(torch.tensor(_none_to_nan(values), dtype=torch.float64))
        except (RuntimeError, TypeError, ValueError) as error:
            raise RunError(f"{self.path} does not hold the metrics of its grid: {error}") from error

    def _by_setting(self, values: Tensor) -> Tensor:
        shape = (len(self.config.inits), len(self.config.rates), self.config.seeds)
        return values.view(*shape, *values.shape[1:])

    def at(self, init: str, lr: float) -> tuple[int, int]:
        """Where the runs of an init at a rate are in the tensors."""
        if init not in self.config.inits or lr not in self.config.rates:
            raise RunError(f"the grid '{self.config.title}' has no runs of {init} at {lr:g}")
        return self.config.inits.index(init), self.config.rates.index(lr)

    def final(self, init: str, lr: float) -> Tensor:
        """Training loss at the end of each task, (seed, task); infinite after a divergence."""
        return self.losses[self.at(init, lr)][:, :, -1].nan_to_num(math.inf, math.inf)

    def initial(self, init: str, lr: float) -> Tensor:
        """Training loss before the first step on each task, (seed, task)."""
        return self.losses[self.at(init, lr)][:, :, 0].nan_to_num(math.inf, math.inf)

    def finite(self, init: str, lr: float) -> int:
        """How many runs went through all tasks."""
        return int(self.final(init, lr)[:, -1].isfinite().sum())

    def score(self, init: str, lr: float) -> float:
        """The median over seeds of the mean final loss of the tasks, by which rates are compared."""
        scores: list[float] = self.final(init, lr).mean(1).tolist()
        return statistics.median(scores)

    def best(self, init: str) -> float:
        """The rate with the smallest score, in which a run that diverged counts as infinite."""
        found: float = min(self.config.rates, key=lambda lr: (self.score(init, lr), lr))
        return found

    def trained(self, init: str, lr: float) -> int:
        """How many runs ended every task closer to it than the best constant is."""
        return int((self.final(init, lr) < self._constants).all(1).sum())

    @functools.cached_property
    def _constants(self) -> Tensor:
        """The loss of the best constant, (seed, task)."""
        seeds = range(self.config.seed, self.config.seed + self.config.seeds)
        return torch.tensor([[t.train_y.var(correction=0) for t in points(self.config, s)] for s in seeds])

    def median_seed(self, init: str, lr: float) -> int:
        """The seed whose mean error on all tasks is the median at the end, of an even number the better."""
        scores = self.errors[self.at(init, lr)][:, -1].nan_to_num(math.inf, math.inf).mean(1)
        return int(scores.argsort()[(len(scores) - 1) // 2])

    def best_errors(self, init: str) -> Tensor:
        """Errors at the init's best rate, (seed, after, task); infinite after a divergence."""
        return self.errors[self.at(init, self.best(init))].nan_to_num(math.inf, math.inf)

    def table(self) -> list[dict[str, Any]]:
        """The numbers of each init at its best rate."""
        return [self._row(init, self.best(init)) for init in self.config.inits]

    def _row(self, init: str, lr: float) -> dict[str, Any]:
        losses, errors = self.final(init, lr), self.best_errors(init)
        return {
            "init": init,
            "rate": lr,
            "finite": self.finite(init, lr),
            "trained": self.trained(init, lr),
            "runs": self.config.seeds,
            "loss": [statistics.median(column) for column in losses.T.tolist()],
            "error": [statistics.median(column) for column in errors[:, -1].T.tolist()],
            "errors by task after each task": quartiles(errors)[1].tolist(),
        }

    def cells(self) -> list[list[str]]:
        """The same as text under :data:`BEST_HEADER`."""

        def text(value: float) -> str:
            return f"{value:.2g}" if math.isfinite(value) else "diverged"

        return [
            [r["init"], f"{r['rate']:g}", f"{r['finite']} of {r['runs']}", *map(text, [*r["loss"], *r["error"]])]
            for r in self.table()
        ]

    def sentence(self) -> str:
        """The init with the lowest loss."""
        c = self.config
        best = min(c.inits, key=lambda init: self.score(init, self.best(init)))
        score = self.score(best, self.best(best))
        lowest = f"lowest for {best} at {self.best(best):g}: {score:.2g}" if math.isfinite(score) else "finite for none"
        runs = f"{len(c.inits)} inits at {len(c.rates)} rates with {c.seeds} seeds, {c.optimiser}"
        return f"{runs}: the median final loss of three tasks learnt one after another is {lowest}."

    def text(self) -> str:
        """The table of best rates."""
        return f"{table(BEST_HEADER, self.cells())}\n{CAPTION}"

    def data(self, heading: str) -> RunData:
        """The grid as its page shows it, with the table and the losses of each task."""
        text = f"{table(BEST_HEADER, self.cells())}\n\n{textwrap.fill(CAPTION, CAPTION_WIDTH)}"
        losses = Section("Training loss, task by task", LOSS_CAPTION, self._panels())
        return replace(super().data(heading), text=text, sections=[losses])

    def _panels(self) -> list[Panel]:
        best = {init: self.best(init) for init in self.config.inits}
        curves = {f"{init} at {lr:g}": self.losses[self.at(init, lr)] for init, lr in best.items()}
        return task_panels(curves, self._iterations, self._task_names, [f"setting-{init}" for init in best])

    @property
    def _iterations(self) -> range:
        return range(0, self.config.iterations + 1, self.config.log_every)

    @property
    def _task_names(self) -> list[str]:
        return [task.name for task in self.points]

    def figures(self) -> Iterator[NamedFigure]:
        """Losses by task as in the paper, and what a median run has learnt: every init at its best rate."""
        config, best = self.config, {init: self.best(init) for init in self.config.inits}
        labels = {init: f"{LABELS.get(init, init)} at {lr:g}" for init, lr in best.items()}
        names = self._task_names
        title = f"Continual Learning Loss on a Sequence of Regression Tasks: {config.seeds} runs of each init"
        # More than a handful of curves cannot be told apart, so inits that the paper does not show have another figure.
        shown = {
            "loss": [i for i in best if i in PAPER_INITS],
            "loss-others": [i for i in best if i not in PAPER_INITS],
        }
        for name, inits in shown.items():
            curves = {}
            for init in inits:
                finite = self.finite(init, best[init])
                note = "" if finite == config.seeds else f" ({finite} of {config.seeds} finite)"
                curves[labels[init] + note] = self.losses[self.at(init, best[init])]
            if curves:
                yield name, losses_by_task(curves, self._iterations, names, title)
        median_runs = []
        for init, lr in best.items():
            at = (*self.at(init, lr), self.median_seed(init, lr))
            median_runs.append(Fit(labels[init], self.fits[at], self.errors[at]))
        x = torch.stack([t.test_x.squeeze(-1) for t in self.points])
        y = torch.stack([t.test_y.squeeze(-1) for t in self.points])
        yield (
            "fits",
            fits(median_runs, x, y, names, "What the median run has learnt, and what it keeps, after each task"),
        )


def _none_to_nan(value: Any) -> Any:
    return [_none_to_nan(v) for v in value] if isinstance(value, list) else math.nan if value is None else value


class ContinualResults(Results[Continual, Grid]):
    """The grids with SGD and with Adam, and four claims."""

    claims = CLAIMS

    def check(self) -> None:
        """The grid with SGD must be there; without Adam's, its claim is not decided."""
        self.runs.need(grid(self.base)[0])

    @functools.cached_property
    def sgd(self) -> Grid:
        """The grid with SGD."""
        return self.runs.need(grid(self.base)[0])[0]

    def need_adam(self) -> Grid:
        """The grid with Adam; raises if there is none."""
        return self.runs.need(grid(self.base)[1])[0]

    @property
    def grids(self) -> list[Grid]:
        """The grids that are there."""
        return [found for config in grid(self.base) for found in self.runs.seeds(config, 1)]

    def growths(self, init: str, width: int) -> Sequence[float]:
        """The growth of activations from layer to layer in untrained nets."""
        self.log(f"measuring {GROWTH_SEEDS} untrained nets of width {width}: {init}")
        return growths(init, width)

    def figures(self) -> Iterator[NamedFigure]:
        """Those of the grid with SGD."""
        return self.sgd.figures()

    def summary(self) -> dict[str, Any]:
        """The numbers of each grid at best rates, and all final losses."""
        return {"grids": [_numbers(found) for found in self.grids]}

    def fields(self) -> dict[str, Any]:
        """The tables."""
        config = self.sgd.config
        return {
            "iterations": config.iterations,
            "seeds": config.seeds,
            "beta": config.beta,
            "constant": _constant(self.sgd),
            "forgotten": FORGOTTEN_FACTOR,
            "forgetting": forgetting(self.grids),
            "best": self._tables(lambda g: markdown_table(BEST_HEADER, g.cells())),
            "margin": LOSS_MARGIN,
            "enough": MIN_PAIRS,
            "all": self._tables(_all_rates),
        }

    def _tables(self, draw: Any) -> str:
        return "\n\n".join(f"With {OPTIMISER_NAMES[g.config.optimiser]}:\n\n{draw(g)}" for g in self.grids)


def _numbers(found: Grid) -> dict[str, Any]:
    config = found.config
    finals = {init: {f"{lr:g}": found.final(init, lr).tolist() for lr in config.rates} for init in config.inits}
    return {"optimiser": config.optimiser, "best": found.table(), "final losses by seed and task": finals}


def _constant(found: Grid) -> float:
    """The error of the best constant on the first task."""
    return float(found.points[0].test_y.var(correction=0))


def forgetting(grids: Sequence[Grid]) -> str:
    """A table of what each init keeps of the first task."""
    rows = []
    for found in grids:
        for init in found.config.inits:
            errors = found.best_errors(init)[:, :, 0]
            learnt, kept = errors[:, 0], errors[:, -1]
            had = (learnt < _constant(found)) & kept.isfinite()
            forgot = int((kept[had] > FORGOTTEN_FACTOR * learnt[had]).sum())
            medians = [_text(m) for m in quartiles(errors)[1].tolist()]
            rows.append([OPTIMISER_NAMES[found.config.optimiser], init, *medians, f"{forgot} of {int(had.sum())}"])
    header = ["optimiser", "init", *(f"error after task {i + 1}" for i in range(TASKS)), "forgotten"]
    return markdown_table(header, rows)


def _all_rates(found: Grid) -> str:
    rows = []
    for init in found.config.inits:
        for lr in found.config.rates:
            losses = found.final(init, lr)
            counts = str(found.finite(init, lr)), str(found.trained(init, lr))
            rows.append([init, f"{lr:g}", *counts, *(_spread(losses[:, task]) for task in range(TASKS))])
    return markdown_table(["init", "rate", "finite", "trained", *TASK_LOSSES], rows)


def _spread(values: Tensor) -> str:
    low, middle, high = (_text(q.item()) for q in quartiles(values))
    return f"{middle} [{low}, {high}]"


def _text(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "∞"
