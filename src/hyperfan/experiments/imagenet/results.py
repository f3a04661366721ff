"""What is read from runs of the Bayesian MobileNet, decided, drawn and published: losses, scores and uncertainty."""

import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hyperfan.charts.palette import looks
from hyperfan.errors import HyperfanWarning, RunError
from hyperfan.experiments.folder import PLAN_FILE
from hyperfan.experiments.imagenet import (
    FEWER_SEEDS,
    INITS,
    LASTS,
    NOISE_INIT,
    NOISES,
    PLAIN_INITS,
    PLAIN_SEEDS,
    PROFILES,
    SEEDS,
    SEPARATION,
    Imagenet,
    Last,
    full_width,
    without_norm,
)
from hyperfan.experiments.imagenet.claims import (
    CHANCE,
    CLAIMS,
    EQUAL_SHARE,
    FAR_FACTOR,
    USEFUL_SEPARATION,
)
from hyperfan.experiments.imagenet.training import parts
from hyperfan.experiments.results.classifier import ClassifierResults, mean_of
from hyperfan.experiments.results.runs import OVERFLOWED_LOSS, ClassifierRun, NamedFigure
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER
from hyperfan.experiments.scores import CALIBRATION_BINS
from hyperfan.files import read_json
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import Kind, Row
from hyperfan.report import (
    RunData,
    Section,
    loss_and_accuracy,
    losses_and_accuracies,
    settings,
    training_losses,
    uncertainty,
    uncertainty_panels,
)
from hyperfan.text import markdown_table

TITLE = "Training a Bayesian MobileNet"
UNCERTAINTY_TITLE = "Does it know what it does not know?"
UNCERTAINTY_CAPTION = (
    "Where a net is honest, its accuracy is its confidence; what it does not know should have a high entropy."
)
LAST_LABELS: dict[Last, str] = {"generated": "all generated", "plain": "last layer plain"}
PICTURES = {
    "width": "Training loss and test accuracy by init at full width",
    "start": "Training loss by init without batch norm",
    "uncertainty": "Reliability, and entropy on known and unknown classes, by noise",
}
"""The figures that a page has if their runs are there, and what they show."""
SCORES = {"nll": Estimate.ratio, "brier": Estimate.ratio, "ece": Estimate.mean_share}
"""What predictions are scored by beside accuracy, each with how it is averaged over seeds."""


class ImagenetRun(ClassifierRun[Imagenet]):
    """One run that is over."""

    @property
    def classes(self) -> int:
        """The number of classes trained on, which the data may decide; then a run that diverged has it in its plan."""
        row, c = self.uncertainty(), self.config
        if row is not None:
            return int(row["classes"])
        if (self.path / PLAN_FILE).exists():
            return len(read_json(self.path / PLAN_FILE)["data"]["classes"])
        if c.first_classes is None:
            raise RunError(f"'{c.title}' diverged, and nothing tells how many classes its data had")
        return c.first_classes - c.held_out

    def first_loss(self) -> float:
        """The training loss of the first batch, or of the batches in the first line; infinite if it overflowed."""
        first = next(self.of(Kind.TRAIN), None)
        return math.inf if first is None else float(first["loss"])

    def last_loss(self) -> float:
        """The mean training loss over the last quarter; infinite if it diverged."""
        return math.inf if self.diverged else self.training_loss(-(-self.config.total // 4))

    def learnt(self) -> float:
        """How far the training loss of the last quarter is below that of guessing; 0 if it diverged."""
        return 0.0 if self.diverged else math.log(self.classes) - self.last_loss()

    def uncertainty(self) -> Row | None:
        """The line about its uncertainty, if it came to its end."""
        return self.last(Kind.UNCERTAINTY)

    def separation(self) -> float:
        """How well the entropy tells held-out classes from the others (AUROC); of a run that diverged, not at all."""
        row = self.uncertainty()
        if row is not None and SEPARATION not in row:
            raise RunError(f"'{self.config.title}' has no held-out classes: --held-out 10 holds out ten")
        return CHANCE if row is None else float(row[SEPARATION])

    def sentence(self) -> str:
        """How it ended, its scores, and what it was."""
        c, scores = self.config, self.last(Kind.TEST)
        text = self.outcome()
        if scores is not None and not self.diverged:
            named = {"NLL": scores["nll"], "Brier": scores["brier"], "ECE": scores["ece"]}
            text += "".join(f", {name} {'not finite' if v is None else f'{v:.3g}'}" for name, v in named.items())
            text += f", {scores['skipped']} pictures or classes skipped" if scores["skipped"] else ""
        norm = "batch norm" if c.norm else "no batch norm"
        return f"{text}; {c.init}, {norm}, last layer {c.last}, noise {c.noise:g}, SGD at {c.lr:g}, seed {c.seed}."

    def figures(self) -> Iterator[NamedFigure]:
        """Loss and accuracy, and uncertainty."""
        init, row = self.config.init, self.uncertainty()
        yield "loss", loss_and_accuracy(settings({init: [self.rows]}), 1, TITLE, "batch")
        if row is not None:
            yield "uncertainty", uncertainty({init: [row]}, UNCERTAINTY_TITLE)

    def data(self) -> RunData:
        """The run as its page shows it, with its uncertainty."""
        row, sections = self.uncertainty(), []
        if row is not None:
            panels = uncertainty_panels([row], looks([self.config.init])[0])
            sections = [Section(UNCERTAINTY_TITLE, UNCERTAINTY_CAPTION, panels)]
        return replace(super().data(), stage=("batch", 1), sections=sections)


def logit_variances(config: Imagenet, classes: int) -> dict[str, float]:
    """Variance of a logit at the start for features of mean square 1, d_j·Var(W), by init, from the nets' plans."""
    mainnet, hypernet = parts(replace(config, last="generated"), classes)
    found = {}
    for init in INITS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HyperfanWarning)
            rows = HyperNet(mainnet, init=init, fidelity="paper", **hypernet).plan.rows
        last = [row for row in rows if row.made_by == "head"][-1]
        assert last.fan_in is not None
        assert last.variance is not None
        assert last.moment is not None
        found[init] = last.fan_in * last.variance * last.moment
    return found


class ImagenetResults(ClassifierResults[Imagenet, ImagenetRun]):
    """Losses and accuracies of all variants, scores of all settings, and four claims."""

    claims = CLAIMS
    data_set = "tiny-imagenet"
    columns = (
        ("init", "init", ""),
        ("last layer", "last", ""),
        ("batch norm", "norm", ""),
        ("width", "width", "g"),
        ("noise", "noise", "g"),
        ("batches", "batches", ""),
        ("seeds", "seeds", ""),
        ("diverged", "diverged", ""),
        ("accuracy", "accuracy", ".1%"),
        ("NLL", "nll", ".3g"),
        ("Brier", "brier", ".3g"),
        ("ECE", "ece", ".2g"),
        ("unknown", "unknown", ".2f"),
    )

    def by_init(self, base: Imagenet, last: Last) -> dict[str, list[ImagenetRun]]:
        """The runs of each init; raises if one has none."""
        return {init: self.runs.need(replace(base, init=init, last=last)) for init in INITS}

    def at_noise(self, noise: float) -> list[ImagenetRun]:
        """The runs at a noise; raises if there are none."""
        return self.runs.need(replace(self.base, init=NOISE_INIT, noise=noise))

    def check(self) -> None:
        """Every init must have a run with batch norm, with the last layer generated and plain."""
        for last in LASTS:
            self.by_init(self.base, last)

    @functools.cached_property
    def tested(self) -> list[Row]:
        """The lines about uncertainty of all runs, at least one."""
        if rows := [row for r in self.runs if (row := r.uncertainty())]:
            return rows
        raise RunError("no run came to its end without diverging, so that there is nothing to tell")

    @property
    def classes(self) -> int:
        """The number of classes trained on."""
        return int(self.tested[0]["classes"])

    def uncertainties(self) -> dict[str, list[Row]]:
        """Lines about uncertainty by noise, as far as there are runs."""
        base = replace(self.base, init=NOISE_INIT)
        runs = {f"{NOISE_INIT}, noise {noise:g}": self.runs.seeds(replace(base, noise=noise)) for noise in NOISES}
        found = {label: [row for r in its if (row := r.uncertainty())] for label, its in runs.items()}
        return {label: rows for label, rows in found.items() if rows}

    def _panels(self, base: Imagenet) -> dict[str, Any]:
        """What a figure compares: every init, in a panel for each kind of last layer; none where runs are missing."""
        try:
            found = {label: self.by_init(base, last) for last, label in LAST_LABELS.items()}
        except RunError:
            return {}
        return {label: settings({i: [r.rows for r in runs] for i, runs in f.items()}) for label, f in found.items()}

    def figures(self) -> Iterator[NamedFigure]:
        """Losses and accuracies at both widths, losses without batch norm, and the uncertainty by noise."""
        title = f"{TITLE}: who starts at the right scale?"
        yield "loss", losses_and_accuracies(self._panels(self.base), title)
        if panels := self._panels(full_width(self.base)):
            yield "width", losses_and_accuracies(panels, f"{TITLE} at full width")
        if panels := self._panels(without_norm(self.base)):
            yield "start", training_losses(panels, f"{TITLE} without batch norm")
        if rows := self.uncertainties():
            yield "uncertainty", uncertainty(rows, UNCERTAINTY_TITLE, dict.fromkeys(rows, NOISE_INIT))

    def numbers(self, runs: Sequence[ImagenetRun]) -> dict[str, Any]:
        """Scores and losses of a setting."""
        config, finished = runs[0].config, [r for r in runs if not r.diverged]
        scores = [s for r in finished if (s := r.last(Kind.TEST))]
        return {
            **{name: getattr(config, name) for name in ("init", "last", "norm", "width", "noise")},
            "batches": config.total,
            "accuracy": mean_of([s["accuracy"] for s in scores], Estimate.mean_share),
            **{name: mean_of([s[name] for s in scores if s[name] is not None], over) for name, over in SCORES.items()},
            "unknown": mean_of(
                [u[SEPARATION] for r in finished if (u := r.uncertainty()) and SEPARATION in u], Estimate.mean_share
            ),
            "first loss": [r.first_loss() for r in runs],
            "training loss, last quarter": [r.last_loss() for r in runs],
        }

    def fields(self) -> dict[str, Any]:
        """The scale of the runs, a row for every setting, and the variances of logits."""
        base = self.base
        rows = self.tested
        classes, tested = self.classes, max(sum(n for n, _, _ in row["reliability"]) for row in rows)
        return {
            "set": rows[0]["data"],
            "images": f"{base.images:,}",
            "classes": f"the first {classes} classes in its list" if base.first_classes else f"{classes} classes",
            "not_trained": f"the {base.held_out} after these are" if base.held_out else "no class is",
            "tested": f"{tested:,}",
            "tested_unknown": f"{max(sum(row['unknown']['entropy']) if 'unknown' in row else 0 for row in rows):,}",
            "interim": f"{min(base.interim_images or tested, tested):,}",
            "epochs": f"{base.total / base.epoch_batches:.3g}",
            "batches": base.total,
            "bare": without_norm(base).total,
            "seeds": SEEDS,
            "plain_seeds": PLAIN_SEEDS,
            "plain_inits": " and ".join(PLAIN_INITS),
            "fewer_seeds": FEWER_SEEDS,
            "noises": ", ".join(f"{noise:g}" for noise in NOISES),
            "guess": math.log(classes),
            "bins": CALIBRATION_BINS,
            "rows": self.table(),
            "logits": self._logits(classes),
            **self.pictures(PICTURES),
            "far": FAR_FACTOR,
            "useful": USEFUL_SEPARATION,
            "share": f"{EQUAL_SHARE:.0%}",
            "most": OVERFLOWED_LOSS,
            "time": "on GPUs" if base.total == PROFILES[PAPER].total else "some hours on 2 cores",
        }

    def _logits(self, classes: int) -> str:
        """A table of the variances of logits, here and at the paper's sizes."""
        paper, paper_classes = PROFILES[PAPER], 1000
        here, there = logit_variances(self.base, classes), logit_variances(paper, paper_classes)
        header = ("init", f"here, {classes} classes", f"the paper's net, {paper_classes} classes")
        return markdown_table(header, [(init, f"{here[init]:.3g}", f"{there[init]:.3g}") for init in INITS])
