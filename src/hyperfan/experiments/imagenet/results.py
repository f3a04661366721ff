"""What is read from runs of the Bayesian MobileNet, decided, drawn and published: losses, scores and uncertainty."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hyperfan.charts.palette import LABELS, looks
from hyperfan.experiments.folder import PLAN_FILE
from hyperfan.experiments.imagenet import INITS, PROFILES, Imagenet
from hyperfan.experiments.results.claims import Claim, Claims
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure, ratio
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER, Results, mean_of
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
VARIANTS: dict[str, dict[str, Any]] = {
    "batch norm, all generated": {"norm": True, "last": "generated"},
    "batch norm, last layer plain": {"norm": True, "last": "plain"},
    "no batch norm, all generated": {"norm": False, "last": "generated"},
    "no batch norm, last layer plain": {"norm": False, "last": "plain"},
}
"""The label of each panel, and how its runs differ from the base."""
SCORES = ("accuracy", "nll", "brier", "ece")
SEPARATION = "separation by entropy"
FAN_IN, FAN_OUT, HYPERFANS = INITS[0], INITS[1], INITS[2:]
FAR_FACTOR = 2.0
"""A factor between two losses that is far."""
EQUAL_FACTOR = 1.25
"""A factor within which two losses are about equal."""
OVERFLOWED_LOSS = 1e30
"""The value of a loss that overflowed, where losses are compared."""


class ImagenetRun(ClassifierRun[Imagenet]):
    """One run that is over."""

    @property
    def classes(self) -> int:
        """The number of classes trained on, which depends on the data; the run's plan lists them."""
        return len(read_json(self.path / PLAN_FILE)["data"]["classes"])

    def first_loss(self) -> float:
        """The training loss of the first batch, or of the batches in the first line; infinite if it overflowed."""
        first = next(self.of(Kind.TRAIN), None)
        return math.inf if first is None else float(first["loss"])

    def last_loss(self) -> float:
        """The mean training loss over the last quarter; infinite if it diverged."""
        return math.inf if self.diverged else self.training_loss(-(-self.config.total // 4))

    def uncertainty(self) -> Row | None:
        """The line about its uncertainty, if it came to its end."""
        return self.last(Kind.UNCERTAINTY)

    def sentence(self) -> str:
        """How it ended, its scores, and what it was."""
        c, scores = self.config, self.last(Kind.TEST)
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

    def data(self) -> RunData:
        """The run as its page shows it, with its uncertainty."""
        row, sections = self.uncertainty(), []
        if row is not None:
            panels = uncertainty_panels([row], row["classes"], looks([self.config.init])[0], (390, 250))
            sections = [Section(UNCERTAINTY_TITLE, UNCERTAINTY_CAPTION, panels)]
        return replace(super().data(), stage=("batch", 1), sections=sections)


def _first(run: ImagenetRun) -> float:
    return min(run.first_loss(), OVERFLOWED_LOSS)


def _last(run: ImagenetRun) -> float:
    return min(run.last_loss(), OVERFLOWED_LOSS)


LOSSES = {"loss of the first batch": _first, "training loss, last quarter": _last}


def _compare(c: Claim, results: "ImagenetResults", last: str) -> None:
    base, found = results.base, results.need_each(INITS, last=last, norm=True)
    for init, runs in found.items():
        for when, loss in LOSSES.items():
            c.measure(f"{init}: {when}", Estimate.ratio([loss(r) for r in runs]))
    for init in HYPERFANS:
        start, end = (
            c.measure(f"{FAN_IN} over {init}: {when}", ratio(found[FAN_IN], found[init], loss))
            for when, loss in LOSSES.items()
        )
        c.decide(f"fan-in starts more than {FAR_FACTOR:g} times as high as {init}", start.within(FAR_FACTOR))
        c.decide(f"fan-in learns more slowly than {init}: its loss is still higher at the end", end.within(1))
    for init in HYPERFANS:
        for when, loss in LOSSES.items():
            about = c.measure(f"{FAN_OUT} over {init}: {when}", ratio(found[FAN_OUT], found[init], loss))
            c.decide(f"fan-out is about equal to {init}: {when}", about.within(1 / EQUAL_FACTOR, EQUAL_FACTOR))
    c.remark = (
        f"Tested: {base.total} batches of {base.batch} pictures of {base.size} pixels, at one learning rate. Not "
        "tested: ImageNet itself, and other rates."
    )


def _without_norm(c: Claim, results: "ImagenetResults") -> None:
    for last in ("generated", "plain"):
        bare, normed = (results.need_each(INITS, last=last, norm=norm) for norm in (False, True))
        for init, runs in bare.items():
            setting = f"{init}, last layer {last}"
            c.measure(f"{setting}, no batch norm: loss of the first batch", Estimate.ratio([_first(r) for r in runs]))
            diverged = Estimate.share(sum(r.diverged for r in runs), len(runs))
            c.measure(f"{setting}, no batch norm: share of runs that diverge", diverged)
            higher = ratio(runs, normed[init], _first)
            c.measure(f"{setting}: first loss without batch norm over with it", higher)
            if init == FAN_IN:
                c.decide(f"{setting}: without batch norm it starts far higher", higher.within(FAR_FACTOR))
            else:
                c.decide(f"{setting}: without batch norm it starts no higher", higher.within(high=EQUAL_FACTOR))


CLAIMS: Claims = {
    "C10": (
        "on a Bayesian MobileNet Kaiming fan-in starts far higher and learns more slowly, even with batch norm; "
        "fan-out is about equal to hyperfan",
        functools.partial(_compare, last="generated"),
    ),
    "C11": ("the same with the last layer not generated", functools.partial(_compare, last="plain")),
    "BN": (
        "(not the paper's) batch norm hides that fan-in explodes: without it fan-in alone starts higher",
        _without_norm,
    ),
}


class ImagenetResults(Results[Imagenet, ImagenetRun]):
    """Losses of all variants, scores of all settings, and three claims."""

    claims = CLAIMS
    columns = (
        ("init", "init", ""),
        ("last layer", "last", ""),
        ("batch norm", "norm", ""),
        ("seeds", "seeds", ""),
        ("diverged", "diverged", ""),
        ("accuracy", "accuracy", ".1%"),
        ("NLL", "nll", ".3g"),
        ("Brier", "brier", ".3g"),
        ("ECE", "ece", ".2g"),
        ("unknown", "unknown", ".2f"),
    )

    def check(self) -> None:
        """Every setting must have a run."""
        for changes in VARIANTS.values():
            self.need_each(INITS, **changes)

    def uncertainties(self) -> dict[str, list[Row]]:
        """Lines about uncertainty of the first variant, by label."""
        found = {
            LABELS.get(init, init): [row for r in runs if (row := r.uncertainty())]
            for init, runs in self.need_each(INITS, **next(iter(VARIANTS.values()))).items()
        }
        return {label: rows for label, rows in found.items() if rows}

    def figures(self) -> Iterator[NamedFigure]:
        """Losses of each variant, and the uncertainty of the first."""
        found = {label: self.need_each(INITS, **changes) for label, changes in VARIANTS.items()}
        panels = {
            label: settings({init: [r.rows for r in runs] for init, runs in by_init.items()})
            for label, by_init in found.items()
        }
        yield "loss", training_losses(panels, f"{TITLE}: who starts at the right scale?")
        if rows := self.uncertainties():
            title = f"{UNCERTAINTY_TITLE} Batch norm, all generated"
            yield "uncertainty", uncertainty(rows, next(iter(rows.values()))[0]["classes"], title)

    def numbers(self, runs: Sequence[ImagenetRun]) -> dict[str, Any]:
        """Scores and losses of a setting."""
        config, finished = runs[0].config, [r for r in runs if not r.diverged]
        scores = [s for r in finished if (s := r.last(Kind.TEST))]
        return {
            "init": config.init,
            "last": config.last,
            "norm": config.norm,
            **{name: mean_of([s[name] for s in scores if s[name] is not None]) for name in SCORES},
            "unknown": mean_of([u[SEPARATION] for r in finished if (u := r.uncertainty()) and SEPARATION in u]),
            "first loss": [r.first_loss() for r in runs],
            "training loss, last quarter": [r.last_loss() for r in runs],
        }

    def fields(self) -> dict[str, Any]:
        """The scale of the runs, and a row for every setting."""
        base = self.base
        first = next((rows[0] for rows in self.uncertainties().values()), None)
        return {
            "samples": base.samples,
            "scale": f"{base.total} batches of {base.batch} pictures of {base.size} pixels, {base.images} in all, at a "
            f"learning rate of {base.lr:g}.",
            "tested": 0 if first is None else sum(n for n, _, _ in first["reliability"]),
            "guess": 0.0 if first is None else math.log(first["classes"]),
            "picture": "" if first is None else UNCERTAINTY_PICTURE,
            "bins": BINS,
            "held_out": base.held_out or "no",
            "rows": self.table(),
            "far": FAR_FACTOR,
            "near": EQUAL_FACTOR,
            "most": OVERFLOWED_LOSS,
            "width": base.width,
            "time": "on GPUs" if base.total == PROFILES[PAPER].total else "under two hours on 2 cores",
        }
