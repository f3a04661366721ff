"""What is read from runs of the demonstrations experiment, drawn and published."""

import functools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from hyperfan.charts.palette import init_label
from hyperfan.data.curves import DEVIATION
from hyperfan.experiments.demonstrations import (
    COMPARED,
    DEMONSTRATIONS,
    KAIMING,
    MAX_TASKS,
    PROFILES,
    SETTINGS,
    THEIR_RATE,
    THEIRS,
    WINDOW,
    Demonstrations,
    on_lasa,
    setting,
)
from hyperfan.experiments.demonstrations.claims import (
    CLAIMS,
    DURING,
    END,
    LEARNT,
    MEASURES,
    NEEDED,
    START,
    MainnetStart,
    start,
    weight_ratios,
)
from hyperfan.experiments.demonstrations.training import KEPT_POINTS, demonstrated, shapes
from hyperfan.experiments.results.runs import NamedFigure
from hyperfan.experiments.results.side_by_side import (
    SideBySide,
    edge_sentences,
    forgetting,
    nan_to_inf,
    quartile_cells,
    right_after,
)
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER, Results
from hyperfan.experiments.stack import EPS
from hyperfan.metrics import Kind
from hyperfan.report import Drawn, RunData, Section, losses_by_task, paths, task_panels
from hyperfan.text import markdown_table, table, two_digits

LASA_FIGURE = "loss-lasa"
HEADER = ["rate", "finite", *MEASURES.values()]
CAPTION = "Medians over seeds. Errors are mean squares of whole paths from their start, losses those of subsequences."
LOSS_CAPTION = "The median over seeds at each rate, with a band from lower to upper quartile where rates are few."
FULL_SIZE = PROFILES[PAPER]
"""The configuration of untrained nets: their widths."""


@dataclass(frozen=True)
class DemonstrationsRun(SideBySide[Demonstrations]):
    """The finished runs of one init."""

    @functools.cached_property
    def losses(self) -> Tensor:
        """Loss of the task that is being learnt, (rate, seed, task, measurement)."""
        return self.read_losses(self.config.tasks)

    @functools.cached_property
    def errors(self) -> Tensor:
        """Mean squared error of whole paths, (rate, seed, tasks learnt, task)."""
        return self._after("errors", self.config.tasks)

    @functools.cached_property
    def first_paths(self) -> Tensor:
        """Paths of the first seed from the start of a demonstration, (rate, tasks learnt, task, point, 2)."""
        return replace(self, part=slice(None))._after("paths", self.config.tasks, KEPT_POINTS, 2)[:, 0]

    def _after(self, key: str, *shape: int) -> Tensor:
        """What was measured after each task, and before the first."""
        every = self.config.tasks + 1, *shape
        return self.read(Kind.ERRORS, key, lambda row: (row["learnt"],), every)

    @property
    def shape(self) -> tuple[int]:
        """How many rates there are."""
        return (len(self.config.rates),)

    def to_dict(self) -> dict[str, Any]:
        """The content of a record; of the paths, which are most of it, only those of the first seed."""
        found, seeds = super().to_dict(), self.config.seeds
        for row in found["rows"]:
            if row["kind"] == Kind.ERRORS:
                row["paths"] = [path if i % seeds == 0 else None for i, path in enumerate(row["paths"])]
        return found

    def ends(self, lr: float, start: str = "") -> list[float]:
        """The error of all tasks at the end, of each seed."""
        return self.scores(END, lr)

    @property
    def at_best(self) -> int:
        """Where the runs at the best rate are in the tensors."""
        return self.config.rates.index(self.best())

    def scores(self, measure: str, lr: float | None = None) -> list[float]:
        """A measure of each seed's run at a rate, by default the best; infinite after a divergence."""
        rate = self.config.rates.index(self.best() if lr is None else lr)
        after = self.errors[rate]
        found = {
            START: lambda: after[:, 0].mean(1),
            DURING: lambda: self.losses[rate][:, :, 1:].mean((1, 2)),
            LEARNT: lambda: right_after(after).mean(1),
            END: lambda: after[:, -1].mean(1),
        }[measure]()
        return nan_to_inf(found).tolist()

    def forgetting(self) -> Estimate:
        """The error of earlier tasks at the end over their error when they were learnt, at the best rate."""
        return Estimate.median(nan_to_inf(forgetting(self.errors[self.at_best])).tolist())

    def cells(self) -> list[list[str]]:
        """The medians at each rate, under :data:`HEADER`."""
        rows = []
        for lr in self.config.rates:
            medians = [two_digits(statistics.median(self.scores(measure, lr))) for measure in MEASURES]
            rows.append([f"{lr:g}", f"{self.finite(lr)} of {len(self.seeds)}", *medians])
        return rows

    def sentence(self) -> str:
        """The error at the end at the best rate."""
        c, error = self.config, two_digits(statistics.median(self.scores(END)))
        runs = f"{c.tasks} shapes, one after another, {len(c.rates)} rates with {c.seeds} seeds"
        return f"{runs}: at the best rate, {self.best():g}, the median error of all shapes at the end is {error}."

    def text(self) -> str:
        """The table of rates."""
        return f"{table(HEADER, self.cells())}\n\n{CAPTION}"

    def data(self) -> RunData:
        """The runs as their page shows them, with the table and the losses of each task."""
        switches = [f"setting-{lr:g}" for lr in self.config.rates]
        panels = task_panels(self._curves(), self.measured_at, _task_names(self.config), switches)
        section = Section("Loss, task by task", LOSS_CAPTION, panels)
        return replace(super().data(), sections=[section])

    def figures(self) -> Iterator[NamedFigure]:
        """Losses by task at each rate."""
        title = f"{init_label(self.config.init)}: {len(self.seeds)} runs at each rate"
        yield "loss", losses_by_task(self._curves(), self.measured_at, _task_names(self.config), title)

    def _curves(self) -> dict[str, Tensor]:
        return {f"rate {lr:g}": losses for lr, losses in zip(self.config.rates, self.losses, strict=True)}


class DemonstrationsResults(Results[Demonstrations, DemonstrationsRun]):
    """The runs of all settings on shapes that code draws, those on LASA's, and the claim about either."""

    claims = CLAIMS

    def check(self) -> None:
        """The runs with which the others are compared must be there."""
        self.run(KAIMING)

    def run(self, name: str) -> DemonstrationsRun:
        """The runs of a setting, at a rate that was chosen on other seeds; raises if there are none."""
        return self.runs.with_chooser(setting(self.base, name))

    @functools.cached_property
    def found(self) -> dict[str, DemonstrationsRun]:
        """The runs that are there, by setting."""
        return self.runs.with_choosers({name: setting(self.base, name) for name in SETTINGS})

    @functools.cached_property
    def recorded(self) -> Self:
        """The runs on the shapes that LASA recorded."""
        return type(self)(self.runs, on_lasa(self.base), self.data_dir, self.log)

    @functools.cached_property
    def starts(self) -> dict[str, MainnetStart]:
        """How every setting starts a net of their widths."""
        return self._measure(FULL_SIZE)

    def _measure(self, config: Demonstrations) -> dict[str, MainnetStart]:
        self.log(f"measuring untrained nets, {_widths(config.hidden)}")
        return {name: start(setting(config, name)) for name in SETTINGS}

    def figures(self) -> Iterator[NamedFigure]:
        """Losses by task, and what the first seed draws at the end: every setting at its best rate."""
        compared = {name: run for name, run in self.found.items() if name in (KAIMING, *COMPARED)}
        others = {name: run for name, run in self.found.items() if name not in compared}
        each = {"loss": compared, "loss-zero-biases": others, LASA_FIGURE: self.recorded.found}
        for figure, shown in each.items():
            if shown:
                curves = {_at_best(n, r): r.losses[r.at_best] for n, r in shown.items()}
                inits = {_at_best(n, r): r.config.init for n, r in shown.items()}
                run = next(iter(shown.values()))
                shapes_of = "LASA's shapes" if run.config.curves == "lasa" else "shapes"
                title = f"Loss on {shapes_of} learnt one after another: {len(run.seeds)} runs of each init"
                yield figure, losses_by_task(curves, run.measured_at, _task_names(self.base), title, inits)
        drawn = [Drawn(_at_best(n, r), r.first_paths[r.at_best][-1], r.config.init) for n, r in self.found.items()]
        demonstrations, names = demonstrated(self.base, self.base.seed), shapes(self.base, self.base.seed)
        title = f"What the first seed draws at the end, of the shapes learnt in this order: {', '.join(names)}"
        yield "paths", paths(drawn, demonstrations, names, title)

    def summary(self) -> dict[str, Any]:
        """The numbers of each setting, and how it starts."""
        starts = {name: asdict(found) for name, found in self.starts.items()}
        numbers, lasa = ([_numbers(run) for run in each.found.values()] for each in (self, self.recorded))
        return {"settings": numbers, "settings on LASA": lasa, "starts": starts}

    def fields(self) -> dict[str, Any]:
        """The settings and tables."""
        c, paper = self.base, FULL_SIZE
        return {
            "choosing": c.choosing().seeds,
            "window": WINDOW,
            "demonstrations": DEMONSTRATIONS,
            "hidden": _widths(c.hidden),
            "target": _widths(c.target),
            "their_embedding": paper.embedding,
            "their_hidden": _widths(paper.hidden),
            "their_target": _widths(paper.target),
            "width_ratios": self._width_ratios(),
            "their_rate": THEIR_RATE,
            "rates": ", ".join(f"{lr:g}" for lr in c.rates),
            "eps": EPS,
            "best": self._best(),
            "all": self._all_rates(),
            "squares": self._squares(),
            "shares": self._shares(),
            "trained_ratios": weight_ratios(self._measure(c)),
            "theirs_over_kaiming": f"{self._theirs_over_kaiming():.2g}",
            "shapes": MAX_TASKS[c.curves],
            "lasa_shapes": MAX_TASKS["lasa"],
            "on_lasa": self._on_lasa(),
            "deviation": DEVIATION,
            "edges": self._edges(),
            "gradients": self._gradients(),
            "needed": NEEDED,
            "time": "many days on one core" if c.total == paper.total else "about an hour on one core",
        }

    def _width_ratios(self) -> str:
        """From the smallest to the largest ratio of a width to theirs."""
        ours, theirs = ([[c.embedding], c.hidden, c.target] for c in (self.base, FULL_SIZE))
        ratios = [a / b for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=False)]
        return " to ".join(f"{ratio:.2g}" for ratio in dict.fromkeys((min(ratios), max(ratios))))

    def _best(self) -> str:
        rows = []
        for name, run in self.found.items():
            cells = quartile_cells(torch.tensor([run.scores(measure) for measure in MEASURES]).T)
            finite = f"{run.finite(run.best())} of {len(run.seeds)}"
            rows.append([name, f"{run.best():g}", finite, *cells, run.forgetting().format(".2g")])
        return markdown_table(["init", "best rate", "finite", *MEASURES.values(), "forgetting"], rows)

    def _on_lasa(self) -> str:
        """The table and the figure of the runs on LASA's shapes, if there are any."""
        if not self.recorded.found:
            return "There are no runs on them here: they need the set."
        picture = f"![Loss by task on recorded handwriting](figures/{LASA_FIGURE}.svg)"
        return "\n\n".join(filter(None, (self.recorded._edges(), self.recorded._best(), picture)))

    def _edges(self) -> str:
        """Which inits are best at the end of the range of rates, where another might be better still."""
        return edge_sentences({name: (run.best(), run.config.rates) for name, run in self.found.items()})

    def _all_rates(self) -> str:
        rows = [[name, *cells] for name, run in self.found.items() for cells in run.cells()]
        return markdown_table(["init", *HEADER], rows)

    def _squares(self) -> str:
        needed = self.starts[NEEDED].targets
        others = [name for name in SETTINGS if name != NEEDED]
        rows = [
            [tensor, f"{v:.2g}", *(f"{self.starts[name].squares[tensor] / v:.1g}" for name in others)]
            for tensor, v in needed.items()
        ]
        return markdown_table(["tensor", "variance needed", *others], rows)

    def _gradients(self) -> str:
        rows = [
            [tensor, *(f"{self.starts[name].gradients[tensor]:.1g}" for name in SETTINGS)]
            for tensor in self.starts[NEEDED].gradients
        ]
        return markdown_table(["tensor", *SETTINGS], rows)

    def _theirs_over_kaiming(self) -> float:
        """The mean square of weights at the start with their init over that with Kaiming's: the mean of all tensors."""
        theirs, kaiming = (self.starts[name].squares for name in (THEIRS, KAIMING))
        return statistics.geometric_mean(v / kaiming[name] for name, v in theirs.items() if name.endswith("weight"))

    def _shares(self) -> str:
        rows = [[f"{min(s.values()):.1g} to {max(s.values()):.1g}" for s in (f.shares for f in self.starts.values())]]
        return markdown_table(list(SETTINGS), rows)


def _at_best(name: str, run: DemonstrationsRun) -> str:
    """What a setting is called beside its best rate."""
    return f"{name} at {run.best():g}"


def _numbers(run: DemonstrationsRun) -> dict[str, Any]:
    """The best rate of a setting, and its measures at every rate by seed."""
    c = run.config
    measures = {words: {f"{lr:g}": run.scores(measure, lr) for lr in c.rates} for measure, words in MEASURES.items()}
    return {"init": c.init, "biases": c.biases, "best rate": run.best(), **measures}


def _task_names(config: Demonstrations) -> list[str]:
    """Each seed has shapes of its own, so tasks are numbered only."""
    return [f"the seed's {word} shape" for word in ORDINALS[: config.tasks]]


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def _widths(widths: Sequence[int]) -> str:
    return "-".join(map(str, widths))
