"""What is read from runs of the Bayesian MobileNet, drawn and published: losses, scores and uncertainty."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from hyperfan.charts.palette import LABELS, looks
from hyperfan.experiments.folder import PLAN_FILE
from hyperfan.experiments.imagenet import INITS, PROFILES, SEEDS, Imagenet
from hyperfan.experiments.imagenet.claims import CLAIMS, EQUAL_FACTOR, FAR_FACTOR, OVERFLOWED_LOSS
from hyperfan.experiments.results.claims import markdown_table
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER, Results
from hyperfan.experiments.scores import BINS
from hyperfan.files import read_json
from hyperfan.metrics import Kind, Row
from hyperfan.report import (
    RunData,
    Section,
    loss_and_accuracy,
    settings,
    training_losses,
    uncertainty,
    uncertainty_panels,
)

TITLE = "Training a Bayesian MobileNet"
UNCERTAINTY_TITLE = "Does it know what it does not know?"
UNCERTAINTY_CAPTION = (
    "Where a net is honest, its accuracy is its confidence; what it does not know should have a high entropy."
)
UNCERTAINTY_PICTURE = "![Reliability, and entropy on known and unknown classes](figures/uncertainty.svg)\n\n"
VARIANTS: dict[str, tuple[bool, Literal["generated", "plain"]]] = {
    "batch norm, all generated": (True, "generated"),
    "batch norm, last layer plain": (True, "plain"),
    "no batch norm, all generated": (False, "generated"),
    "no batch norm, last layer plain": (False, "plain"),
}
"""The label of each panel, and whether its runs have batch norm, and which last layer."""
SCORE_FORMATS = {"accuracy": ".1%", "nll": ".3g", "brier": ".3g", "ece": ".2g"}
SEPARATION = "separation by entropy"


class ImagenetRun(ClassifierRun[Imagenet]):
    """One run that is over."""

    @property
    def classes(self) -> int:
        """The number of classes trained on, which depends on the data; the run's plan lists them."""
        return len(read_json(self.path / PLAN_FILE)["data"]["classes"])

    def first_loss(self) -> float:
        """The training loss of the first batch, or of the batches in the first line; infinite if it overflowed."""
        first = self.first(Kind.TRAIN)
        return math.inf if first is None else float(first["loss"])

    def last_loss(self) -> float:
        """The mean training loss over the last quarter; infinite if it diverged."""
        return math.inf if self.diverged else self.training_loss(-(-self.config.total // 4))

    def scores(self) -> Row | None:
        """The last test, if it came to one."""
        return self.last(Kind.TEST)

    def uncertainty(self) -> Row | None:
        """The line about its uncertainty, if it came to its end."""
        return self.first(Kind.UNCERTAINTY)

    def sentence(self) -> str:
        """How it ended, its scores, and what it was."""
        c, scores = self.config, self.scores()
        text = self.outcome()
        if scores is not None and not self.diverged:
            named = {"NLL": scores["nll"], "Brier": scores["brier"], "ECE": scores["ece"]}
            text += "".join(f", {name} {'not finite' if v is None else f'{v:.3g}'}" for name, v in named.items())
            text += f", {scores['skipped']} pictures or classes skipped" if scores["skipped"] else ""
        norm = "batch norm" if c.norm else "no batch norm"
        return f"{text}; {c.init}, {norm}, last layer {c.last}, SGD at {c.lr:g}, seed {c.seed}."

    def figures(self) -> Iterator[NamedFigure]:
        """Loss and accuracy, and uncertainty."""
        init, row = self.config.init, self.uncertainty()
        yield "loss", loss_and_accuracy(settings({init: [self.rows]}), 1, TITLE, "batch")
        if row is not None:
            yield "uncertainty", uncertainty({init: [row]}, row["classes"], UNCERTAINTY_TITLE)

    def data(self, heading: str) -> RunData:
        """The run as its page shows it, with its uncertainty."""
        row = self.uncertainty()
        sections = [] if row is None else [_uncertainty_section(row, self.config.init)]
        return replace(super().data(heading), stage=("batch", 1), sections=sections)


def _uncertainty_section(row: Row, init: str) -> Section:
    """Confidence against accuracy, and the entropy of predictions for classes known and unknown."""
    [look] = looks([init])
    return Section(UNCERTAINTY_TITLE, UNCERTAINTY_CAPTION, uncertainty_panels([row], row["classes"], look, (390, 250)))


class ImagenetResults(Results[Imagenet, ImagenetRun]):
    """Losses of all variants, scores of all settings, and three claims."""

    claims = CLAIMS

    def check(self) -> None:
        """Every setting must have a run."""
        for norm, last in VARIANTS.values():
            for init in INITS:
                self.need(init, norm, last)

    def need(self, init: str, norm: bool, last: Literal["generated", "plain"]) -> list[ImagenetRun]:
        """The runs of a setting; raises if there are none."""
        return self.runs.need(replace(self.base, init=init, norm=norm, last=last), SEEDS)

    @functools.cached_property
    def found(self) -> dict[str, dict[str, list[ImagenetRun]]]:
        """The runs of each variant and init."""
        return {
            label: {init: self.need(init, norm, last) for init in INITS} for label, (norm, last) in VARIANTS.items()
        }

    def uncertainties(self) -> dict[str, list[Row]]:
        """Lines about uncertainty of the first variant, by label."""
        first = next(iter(self.found.values()))
        found = {
            LABELS.get(init, init): [row for r in runs if (row := r.uncertainty())] for init, runs in first.items()
        }
        return {label: rows for label, rows in found.items() if rows}

    def figures(self) -> Iterator[NamedFigure]:
        """Losses of each variant, and the uncertainty of the first."""
        panels = {
            label: settings({init: [r.rows for r in runs] for init, runs in by_init.items()})
            for label, by_init in self.found.items()
        }
        yield "loss", training_losses(panels, f"{TITLE}: who starts at the right scale?")
        if rows := self.uncertainties():
            title = f"{UNCERTAINTY_TITLE} Batch norm, all generated"
            yield "uncertainty", uncertainty(rows, next(iter(rows.values()))[0]["classes"], title)

    def summary(self) -> dict[str, Any]:
        """Scores and losses of every setting."""
        return {"settings": self.rows}

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The numbers of every setting."""
        return [_row(runs) for by_init in self.found.values() for runs in by_init.values()]

    def fields(self) -> dict[str, Any]:
        """The scale of the runs, and a row for every setting."""
        base = self.base
        first = next((rows[0] for rows in self.uncertainties().values()), None)
        full = base.total == PROFILES[PAPER].total
        header = "init|last layer|batch norm|seeds|diverged|accuracy|NLL|Brier|ECE|unknown".split("|")
        return {
            "samples": base.samples,
            "scale": f"{base.total} batches of {base.batch} pictures of {base.size} pixels, {base.images} in all, at a "
            f"learning rate of {base.lr:g}.",
            "tested": 0 if first is None else sum(n for n, _, _ in first["reliability"]),
            "guess": 0.0 if first is None else math.log(first["classes"]),
            "picture": "" if first is None else UNCERTAINTY_PICTURE,
            "bins": BINS,
            "held_out": base.held_out or "no",
            "rows": markdown_table(header, map(_cells, self.rows)),
            "far": FAR_FACTOR,
            "near": EQUAL_FACTOR,
            "most": OVERFLOWED_LOSS,
            "width": base.width,
            "time": "on GPUs" if full else "under two hours on 2 cores",
        }


def _row(runs: Sequence[ImagenetRun]) -> dict[str, Any]:
    config, finished = runs[0].config, [r for r in runs if not r.diverged]
    scores = [s for r in finished if (s := r.scores())]
    separations = [u[SEPARATION] for r in finished if (u := r.uncertainty()) and SEPARATION in u]

    def mean(values: list[float]) -> dict[str, Any] | None:
        return asdict(Estimate.of(values)) if values else None

    return {
        "init": config.init,
        "last": config.last,
        "norm": config.norm,
        "seeds": [r.config.seed for r in runs],
        "diverged": len(runs) - len(finished),
        **{name: mean([s[name] for s in scores if s[name] is not None]) for name in SCORE_FORMATS},
        "unknown": mean(separations),
        "first loss": [r.first_loss() for r in runs],
        "training loss, last quarter": [r.last_loss() for r in runs],
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    norm = "yes" if row["norm"] else "no"
    scores = {name: row[name] and Estimate(**row[name]).format(form) for name, form in SCORE_FORMATS.items()}
    unknown = row["unknown"] and Estimate(**row["unknown"]).format(".2f")
    diverged = str(row["diverged"] or "")
    return [
        row["init"],
        row["last"],
        norm,
        str(len(row["seeds"])),
        diverged,
        *(c or "" for c in (*scores.values(), unknown)),
    ]
