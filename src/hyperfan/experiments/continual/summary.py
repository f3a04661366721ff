"""What a grid shows when it is over: its figures, a table, and a page with them."""

from pathlib import Path

from hyperfan.experiments.continual.figures import figures
from hyperfan.experiments.continual.outcome import read_outcome
from hyperfan.experiments.continual.table import HEADER, cells
from hyperfan.experiments.files import read_json, whole
from hyperfan.experiments.loop import Summary
from hyperfan.report import page, save
from hyperfan.text import table

CAPTION = (
    "Each init at its best rate, by the median over seeds of the mean final loss of the tasks, where a run that "
    "diverged counts as infinite. Medians over seeds: training loss at the end of each task, and the error on clean "
    "points of each task after the last."
)


def write_summary(path: Path) -> Summary:
    """Draw the grid in this folder. Drawing again gives the same files."""
    outcome = read_outcome(path)
    folder = path / "figures"
    folder.mkdir(exist_ok=True)
    shown = []
    for name, figure in figures(outcome):
        save(figure, folder / name)
        shown.append((name, folder / f"{name}.png"))
    results = table(HEADER, cells(outcome))
    tables = {
        "Configuration": read_json(path / "config.json"),
        "Environment": read_json(path / "env.json"),
    }
    with whole(path / "report.html") as partial:
        text = page(f"Continual learning: {outcome.config.title}", CAPTION, shown, tables, results)
        partial.write_text(text, encoding="utf-8")
    return Summary(path / "report.html", f"{results}\n{CAPTION}")
