"""What a grid shows when it is over: its figures, a table, and a page."""

import math
import textwrap
from pathlib import Path

from hyperfan.charts.panel import Panel
from hyperfan.experiments.continual.build import points
from hyperfan.experiments.continual.figures import figures
from hyperfan.experiments.continual.outcome import Outcome, read_outcome
from hyperfan.experiments.continual.table import HEADER, cells
from hyperfan.experiments.files import read_json, whole
from hyperfan.experiments.folder import read_metrics
from hyperfan.experiments.loop import Summary
from hyperfan.report import RunData, Section, run_page, save, task_panels
from hyperfan.text import table

CAPTION = (
    "Each init at its best rate, by the median over seeds of the mean final loss of the tasks, where a run that "
    "diverged counts as infinite. Medians over seeds: training loss at the end of each task, and the error on clean "
    "points of each task after the last."
)
WIDTH = 110
LOSSES = "Each init at its best rate: the median over seeds; of few inits also a band from lower to upper quartile."


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
    best = {init: outcome.best(init) for init in config.inits}
    curves = {f"{init} at {lr:g}": outcome.losses[outcome.at(init, lr)] for init, lr in best.items()}
    steps = range(0, config.iterations + 1, config.log_every)
    names = [task.name for task in points(config, config.seed)]
    return task_panels(curves, steps, names, [f"setting-{init}" for init in best])
