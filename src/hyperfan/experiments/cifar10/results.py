"""What is read from CIFAR-10 runs, drawn and published: who trains, and at which learning rates."""

import functools
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from hyperfan.charts.palette import LABELS
from hyperfan.experiments.cifar10 import BASELINES, HYPERFANS, MAX_SEEDS, PROFILES, RATES, Cifar10
from hyperfan.experiments.cifar10.claims import CLAIMS, LAST_BATCHES
from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.results.claims import markdown_table
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER, Results
from hyperfan.metrics import Kind
from hyperfan.report import accuracy_by_rate, loss_and_accuracy, settings

TITLE = "Loss and Test Accuracy Plots on CIFAR-10"
"""The paper's."""
INITS = (CLASSICAL, *BASELINES, *HYPERFANS)


class Cifar10Run(ClassifierRun[Cifar10]):
    """One run that is over."""

    def sentence(self) -> str:
        """How it ended, and what it was."""
        c = self.config
        net = "a plain net" if c.init == CLASSICAL else "weights made in chunks by a hypernet"
        return f"{self.outcome()}; {net}, {c.init}, SGD from {c.rate:g}, batches of {c.batch}, seed {c.seed}."

    def figures(self) -> Iterator[NamedFigure]:
        """Loss and accuracy."""
        yield "loss", loss_and_accuracy(settings({self.config.init: [self.rows]}), self.config.epoch_batches, TITLE)

    def first_loss(self) -> float:
        """Mean over the test images before training; infinite if that overflowed."""
        loss = next(self.of(Kind.TEST))["loss"]
        return math.inf if loss is None else float(loss) / self.config.test_images

    def last_loss(self) -> float:
        """Mean training loss of the last batches."""
        return self.training_loss(LAST_BATCHES)


class Cifar10Results(Results[Cifar10, Cifar10Run]):
    """Accuracy at every learning rate, and one claim."""

    claims = CLAIMS

    def best(self, init: str) -> Cifar10:
        """The init at the rate with the smallest training loss at the end, by the first seed alone.

        A run that diverged is the worst, and of several such the one with the smallest rate is taken.
        """
        tried = [self.runs.need(replace(self.base, init=init, lr=lr))[0] for lr in RATES[init]]
        return min(tried, key=lambda r: (math.inf if r.diverged else r.last_loss(), r.config.rate)).config

    def at(self, init: str, lr: float) -> list[Cifar10Run]:
        """The runs of an init at a rate."""
        return self.runs.seeds(replace(self.base, init=init, lr=lr), MAX_SEEDS)

    def check(self) -> None:
        """The first seed must be there at every rate."""
        for init in INITS:
            self.best(init)  # which needs them

    def figures(self) -> Iterator[NamedFigure]:
        """Curves at the best rates, and accuracy by rate."""
        best = {init: self.runs.need(self.best(init), MAX_SEEDS) for init in INITS}
        compared = {f"{LABELS.get(i, i)}, {runs[0].config.rate:g}": [r.rows for r in runs] for i, runs in best.items()}
        yield "loss", loss_and_accuracy(settings(compared), 1, f"{TITLE}: each at its best rate", "batch")
        accuracies = {
            LABELS.get(init, init): {
                lr: [None if r.diverged else r.accuracy() for r in self.at(init, lr)] for lr in RATES[init]
            }
            for init in (*BASELINES, *HYPERFANS)
        }
        title = f"Who trains? Test accuracy after {self.base.total} batches of {self.base.batch}"
        yield "rates", accuracy_by_rate(accuracies, 1 / self.base.classes, title)

    def summary(self) -> dict[str, Any]:
        """Losses and accuracy of every init at every rate."""
        return {"settings": self.rows}

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The numbers of every init at every rate."""
        return [_row(found) for init in INITS for lr in RATES[init] if (found := self.at(init, lr))]

    def fields(self) -> dict[str, Any]:
        """The scale of the runs, and a row for every rate."""
        base = self.base
        full = base.total == PROFILES[PAPER].total
        epochs = base.total / base.epoch_batches
        scale = f"{base.total} batches of {base.batch} images"
        header = "init|rate|seeds|diverged|test loss of an image, start|training loss, end|accuracy".split("|")
        return {
            "scale": f"Each run has {scale}, {epochs:.3g} epochs."
            if full
            else f"This is the beginning of training only: {scale}, {epochs:.2g} epochs.",
            "last": LAST_BATCHES,
            "rows": markdown_table(header, map(_cells, self.rows)),
            "time": "on a GPU" if full else "some hours on 2 cores",
        }


def _row(runs: list[Cifar10Run]) -> dict[str, Any]:
    config, finished = runs[0].config, [r for r in runs if not r.diverged]
    accuracies = [r.accuracy() for r in runs]
    return {
        "init": config.init,
        "rate": config.rate,
        "seeds": [r.config.seed for r in runs],
        "diverged": len(runs) - len(finished),
        "first loss": statistics.fmean(r.first_loss() for r in runs),
        "training loss": statistics.fmean(r.last_loss() for r in finished) if finished else None,
        "accuracy": asdict(Estimate.of(accuracies)),
        "accuracies": accuracies,
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    accuracy = Estimate(**row["accuracy"]).clipped()
    end = "" if row["training loss"] is None else f"{row['training loss']:.4g}"
    first, diverged = f"{row['first loss']:.3g}", str(row["diverged"] or "")
    return [row["init"], f"{row['rate']:g}", str(accuracy.n), diverged, first, end, accuracy.format(".1%")]
