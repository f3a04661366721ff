"""What a grid shows when it is over: its figures, a table, and a page."""

import math
import textwrap
from pathlib import Path

from hyperfan.experiments.continual.build import points
from hyperfan.experiments.continual.figures import figures
from hyperfan.experiments.continual.outcome import Outcome, read_outcome
from hyperfan.experiments.continual.table import HEADER, cells
from hyperfan.experiments.files import read_json, whole
from hyperfan.experiments.folder import read_metrics
from hyperfan.experiments.loop import Summary
from hyperfan.report import RunData, run_page, save
from hyperfan.report.axis import linear_axis, log_axis
from hyperfan.report.panel import Curve, Panel
from hyperfan.report.run_data import Section
from hyperfan.report.tasks import quartiles
from hyperfan.text import table

CAPTION = (
    "Each init at its best rate, by the median over seeds of the mean final loss of the tasks, where a run that "
    "diverged counts as infinite. Medians over seeds: training loss at the end of each task, and the error on clean "
    "points of each task after the last."
)
WIDTH = 110
LOSSES = "Each init at its best rate: the median over seeds; of few inits also a band from lower to upper quartile."
FEW = 5
"""More bands than that hide each other."""


def write_summary(path: Path) -> Summary:
    """Draw the grid in this folder. Drawing again gives the same files."""
    outcome = read_outcome(path)
    folder = path / "figures"
    folder.mkdir(exist_ok=True)
    for name, figure in figures(outcome):
        save(figure, folder / name)
    with whole(path / "report.html") as partial:
        partial.write_text(run_page([run_data(path)]), encoding="utf-8")
    return Summary(path / "report.html", f"{table(HEADER, cells(outcome))}\n{CAPTION}")


def run_data(path: Path) -> RunData:
    """The grid in this folder, which is over, for a page."""
    outcome = read_outcome(path)
    config = outcome.config
    return RunData(
        f"Continual learning: {config.title}",
        read_metrics(path),
        read_json(path / "config.json"),
        outcome.environment,
        sentence=_sentence(outcome),
        text=f"{table(HEADER, cells(outcome))}\n\n{textwrap.fill(CAPTION, WIDTH)}",
        stage=config.stage,
        sections=[Section("Training loss, task by task", LOSSES, _panels(outcome))],
    )


def _sentence(outcome: Outcome) -> str:
    c = outcome.config
    best = min(c.inits, key=lambda init: outcome.score(init, outcome.best(init)))
    score = outcome.score(best, outcome.best(best))
    told = f"lowest for {best} at {outcome.best(best):g}: {score:.2g}" if math.isfinite(score) else "finite for none"
    runs = f"{len(c.inits)} inits at {len(c.rates)} rates with {c.seeds} seeds, {c.optimiser}"
    return f"{runs}: the median final loss of three tasks learnt one after another is {told}."


def _panels(outcome: Outcome) -> list[Panel]:
    config = outcome.config
    x = linear_axis(0, config.iterations)
    steps = range(0, config.iterations + 1, config.log_every)
    panels = []
    for j, task in enumerate(points(config, config.seed)):
        curves = []
        for look, init in enumerate(config.inits):
            lr = outcome.best(init)
            low, middle, high = (q.tolist() for q in quartiles(outcome.losses[outcome.at(init, lr)][:, j]))
            band = list(zip(low, high, strict=True)) if len(config.inits) <= FEW else ()
            seen = list(zip(steps, middle, strict=True))
            curves.append(Curve(f"{init} at {lr:g}", seen, look, band=band, switches=(f"setting-{init}",)))
        y = log_axis(v for curve in curves for _, v in curve.points)
        panels.append(Panel(f"Task {j + 1}: {task.name}", curves, x, y, "iteration", size=(390, 250)))
    return panels
