"""What a single run shows when it is over: loss and accuracy, as a figure and on a page."""

from pathlib import Path

from hyperfan.experiments.cifar10.runs import Run, read_run
from hyperfan.experiments.files import whole
from hyperfan.experiments.loop import Summary
from hyperfan.experiments.settings import CLASSICAL
from hyperfan.report import RunData, loss_and_accuracy, run_page, save, settings

TITLE = "Loss and Test Accuracy Plots on CIFAR-10"
"""The paper's."""


def write_summary(path: Path) -> Summary:
    """Draw the run in this folder. Drawing again gives the same files."""
    run = read_run(path)
    folder = path / "figures"
    folder.mkdir(exist_ok=True)
    save(loss_and_accuracy(settings({run.config.init: [run.rows]}), run.config.epoch_batches, TITLE), folder / "loss")
    with whole(path / "report.html") as partial:
        partial.write_text(run_page([run_data(path)]), encoding="utf-8")
    return Summary(path / "report.html", _sentence(run))


def run_data(path: Path) -> RunData:
    """The run in this folder, which is over, for a page."""
    run = read_run(path)
    return run.data(path, "CIFAR-10", _sentence(run))


def _sentence(run: Run) -> str:
    c = run.config
    made = "a plain net" if c.init == CLASSICAL else "weights made in chunks by a hypernet"
    return f"{run.told()}; {made}, {c.init}, SGD from {c.rate:g}, batches of {c.batch}, seed {c.seed}."
