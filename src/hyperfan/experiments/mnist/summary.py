"""What a single run shows when it is over: its figures, and a page."""

from pathlib import Path

from hyperfan.experiments.files import whole
from hyperfan.experiments.loop import Summary
from hyperfan.experiments.mnist.config import Mnist
from hyperfan.experiments.mnist.figures import figures
from hyperfan.experiments.mnist.runs import Run, read_run
from hyperfan.report import RunData, run_page, save, settings


def write_summary(path: Path) -> Summary:
    """Draw the run in this folder. Drawing again gives the same files."""
    run = read_run(path)
    folder = path / "figures"
    folder.mkdir(exist_ok=True)
    drawn = figures(
        settings({run.config.init: [run.rows]}), run.config.epoch_batches, run.config.generate, run.config.activation
    )
    for name, figure in drawn:
        save(figure, folder / name)
    with whole(path / "report.html") as partial:
        partial.write_text(run_page([run_data(path)]), encoding="utf-8")
    return Summary(path / "report.html", _sentence(run))


def run_data(path: Path) -> RunData:
    """The run in this folder, which is over, for a page."""
    run = read_run(path)
    return run.data(path, "MNIST", _sentence(run))


def _sentence(run: Run) -> str:
    return f"{run.told()}." if run.diverged else f"{run.told()}; {_start(run.config)}."


def _start(config: Mnist) -> str:
    made = "a plain net" if config.init == "classical" else f"{config.generate} made by a hypernet"
    return f"{made}, {config.init}, {config.activation}, {config.optimiser} at {config.rate:g}, seed {config.seed}"
