"""What a single run shows when it is over: loss, accuracy and how sure it is, on a page."""

from pathlib import Path

from hyperfan.experiments.files import read_json, whole
from hyperfan.experiments.imagenet.runs import Run, read_run
from hyperfan.experiments.loop import Summary
from hyperfan.report import loss_and_accuracy, page, save, settings, uncertainty

TITLE = "Training a Bayesian MobileNet"


def write_summary(path: Path) -> Summary:
    """Draw the run in this folder. Drawing again gives the same files."""
    run = read_run(path)
    folder = path / "figures"
    folder.mkdir(exist_ok=True)
    figures = {"loss": loss_and_accuracy(settings({run.config.init: [run.rows]}), 1, TITLE, "batch")}
    told = run.uncertainty()
    if told is not None:
        title = "Does it know what it does not know?"
        figures["uncertainty"] = uncertainty({run.config.init: [told]}, told["classes"], title)
    for name, figure in figures.items():
        save(figure, folder / name)
    tables = {"Configuration": read_json(path / "config.json"), "Environment": read_json(path / "env.json")}
    with whole(path / "report.html") as partial:
        shown = [(name, folder / f"{name}.png") for name in figures]
        text = page(f"Bayesian MobileNet: {run.config.title}", _sentence(run), shown, tables)
        partial.write_text(text, encoding="utf-8")
    return Summary(path / "report.html", _sentence(run))


def _sentence(run: Run) -> str:
    c, scores = run.config, run.scores()
    told = run.told()
    if scores is not None and not run.diverged:
        named = {"NLL": scores["nll"], "Brier": scores["brier"], "ECE": scores["ece"]}
        told += "".join(f", {name} {'not finite' if v is None else f'{v:.3g}'}" for name, v in named.items())
        told += f", {scores['skipped']} pictures or classes skipped" if scores["skipped"] else ""
    norm = "batch norm" if c.norm else "no batch norm"
    return f"{told}; {c.init}, {norm}, last layer {c.last}, SGD at {c.lr:g}, seed {c.seed}."
