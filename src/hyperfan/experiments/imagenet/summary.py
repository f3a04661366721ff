"""What a single run shows when it is over: loss, accuracy and how sure it is, as figures and on a page."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyperfan.charts.palette import looks
from hyperfan.experiments.files import whole
from hyperfan.experiments.imagenet.runs import Run, read_run
from hyperfan.experiments.loop import Summary
from hyperfan.report import (
    RunData,
    Section,
    loss_and_accuracy,
    run_page,
    save,
    settings,
    uncertainty,
    uncertainty_panels,
)

TITLE = "Training a Bayesian MobileNet"
KNOWS = "Does it know what it does not know?"


def write_summary(path: Path) -> Summary:
    """Draw the run in this folder. Drawing again gives the same files."""
    run = read_run(path)
    folder = path / "figures"
    folder.mkdir(exist_ok=True)
    figures = {"loss": loss_and_accuracy(settings({run.config.init: [run.rows]}), 1, TITLE, "batch")}
    told = run.uncertainty()
    if told is not None:
        figures["uncertainty"] = uncertainty({run.config.init: [told]}, told["classes"], KNOWS)
    for name, figure in figures.items():
        save(figure, folder / name)
    with whole(path / "report.html") as partial:
        partial.write_text(run_page([run_data(path)]), encoding="utf-8")
    return Summary(path / "report.html", _sentence(run))


def run_data(path: Path) -> RunData:
    """The run in this folder, which is over, for a page."""
    run = read_run(path)
    told = run.uncertainty()
    data = replace(run.data(path, "Bayesian MobileNet", _sentence(run)), stage=("batch", 1))
    return data if told is None else replace(data, sections=[_uncertainty(told, run.config.init)])


def _uncertainty(told: Mapping[str, Any], init: str) -> Section:
    """Confidence against accuracy, and the entropy of predictions for classes known and unknown."""
    [look] = looks([init])
    caption = "Where a net is honest, its accuracy is its confidence; what it does not know should have a high entropy."
    return Section(KNOWS, caption, uncertainty_panels([told], told["classes"], look, (390, 250)))


def _sentence(run: Run) -> str:
    c, scores = run.config, run.scores()
    told = run.told()
    if scores is not None and not run.diverged:
        named = {"NLL": scores["nll"], "Brier": scores["brier"], "ECE": scores["ece"]}
        told += "".join(f", {name} {'not finite' if v is None else f'{v:.3g}'}" for name, v in named.items())
        told += f", {scores['skipped']} pictures or classes skipped" if scores["skipped"] else ""
    norm = "batch norm" if c.norm else "no batch norm"
    return f"{told}; {c.init}, {norm}, last layer {c.last}, SGD at {c.lr:g}, seed {c.seed}."
