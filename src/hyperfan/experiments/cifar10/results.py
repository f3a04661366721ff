"""What is read from CIFAR-10 runs, decided, drawn and published: who trains, and at which learning rates."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hyperfan.charts.palette import LABELS
from hyperfan.experiments.cifar10 import BASELINES, HYPERFANS, PROFILES, RATES, Cifar10
from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.results.claims import Claim, Claims, Fact, all_of
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure, mean
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER, Results, mean_of
from hyperfan.metrics import Kind
from hyperfan.report import accuracy_by_rate, loss_and_accuracy, settings

TITLE = "Loss and Test Accuracy Plots on CIFAR-10"
"""The paper's."""
LAST_BATCHES = 100
"""Batches at the end whose training loss is averaged."""
TRAINED_ACCURACY = 0.15
"""A net above this has begun to train; guessing has 10 %."""
GUESSING_LOSS = math.log(Cifar10.classes)


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


def _trains(c: Claim, results: "Cifar10Results") -> None:
    base = results.base
    best = {init: results.best(init) for init in (*HYPERFANS, *BASELINES)}
    found = {init: results.at(init, config.rate) for init, config in best.items()}
    for init, runs in found.items():
        at = f"{init}, best rate {best[init].rate:g}"
        first = Estimate.median([r.first_loss() for r in runs])
        c.measure(f"{at}: test loss of an image before training", first)
        c.measure(f"{at}: training loss in the last {LAST_BATCHES} batches", _loss(runs))
        c.measure(f"{at}: test accuracy", _accuracy(runs), ".1%")
    for init in HYPERFANS:
        trains = f"{init} trains at once: after {base.total} batches"
        accuracy, loss = _accuracy(found[init]), _loss(found[init])
        c.decide(f"{trains} it has more than {TRAINED_ACCURACY:.0%} right", accuracy.within(TRAINED_ACCURACY))
        c.decide(f"{trains} its training loss is below that of guessing", loss.within(0, GUESSING_LOSS))
    for init in BASELINES:
        tried = [results.runs.need(replace(base, init=init, lr=lr)) for lr in RATES[init]]
        span = f"{max(RATES[init]):g} to {min(RATES[init]):g}"
        does_not = f"{init} does not, at any of {len(tried)} rates from {span}:"
        never = all_of(_accuracy(runs).within(high=TRAINED_ACCURACY) for runs in tried)
        c.decide(f"{does_not} it never has more than {TRAINED_ACCURACY:.0%} right", never)
        c.decide(f"{does_not} its loss never is below that of guessing", all_of(map(_stays_above, tried)))
    c.remark = (
        f"Tested: the first {base.total} batches of {base.batch} images. Not tested: what comes after them. In the "
        "paper fan-out begins to train at epoch 270, after 135,000 batches of 100; whether it does, and whether fan-in "
        "never does, only a full run can tell."
    )
    paper = Cifar10().rate
    at_paper = {init: runs for init in HYPERFANS if (runs := results.at(init, paper))}
    unsure = [i for i, runs in at_paper.items() if not _accuracy(runs).within(TRAINED_ACCURACY)]
    if unsure:
        c.remark += f" At the paper's own rate, {paper:g}, {' and '.join(unsure)} cannot be said to train here."


def _stays_above(runs: list[Cifar10Run]) -> Fact:
    """Whether a rate does not bring the loss below that of guessing. Runs that diverge certainly do not."""
    finished = [r for r in runs if not r.diverged]
    return _loss(finished).within(GUESSING_LOSS) if finished else True


def _loss(runs: list[Cifar10Run]) -> Estimate:
    return Estimate.ratio([r.last_loss() for r in runs])


def _accuracy(runs: list[Cifar10Run]) -> Estimate:
    return mean(runs, lambda r: r.accuracy())


CLAIMS: Claims = {"C9": ("on CIFAR-10 Kaiming fan-in never trains, fan-out only late, and hyperfan at once", _trains)}


class Cifar10Results(Results[Cifar10, Cifar10Run]):
    """Accuracy at every learning rate, and one claim."""

    claims = CLAIMS
    columns = (
        ("init", "init", ""),
        ("rate", "rate", "g"),
        ("seeds", "seeds", ""),
        ("diverged", "diverged", ""),
        ("test loss of an image, start", "first loss", ".3g"),
        ("training loss, end", "training loss", ".4g"),
        ("accuracy", "accuracy", ".1%"),
    )

    def best(self, init: str) -> Cifar10:
        """The init at the rate with the smallest training loss at the end, by the first seed alone.

        A run that diverged is the worst, and of several such the one with the smallest rate is taken.
        """
        tried = [self.runs.one(replace(self.base, init=init, lr=lr)) for lr in RATES[init]]
        return min(tried, key=lambda r: (math.inf if r.diverged else r.last_loss(), r.config.rate)).config

    def at(self, init: str, lr: float) -> list[Cifar10Run]:
        """The runs of an init at a rate."""
        return self.runs.seeds(replace(self.base, init=init, lr=lr))

    def check(self) -> None:
        """The first seed must be there at every rate."""
        for init in RATES:
            self.best(init)  # which needs them

    def figures(self) -> Iterator[NamedFigure]:
        """Curves at the best rates, and accuracy by rate."""
        best = {init: self.best(init).rate for init in RATES}
        compared = {f"{LABELS.get(i, i)}, {lr:g}": [r.rows for r in self.at(i, lr)] for i, lr in best.items()}
        yield "loss", loss_and_accuracy(settings(compared), 1, f"{TITLE}: each at its best rate", "batch")
        accuracies = {
            LABELS.get(init, init): {
                lr: [None if r.diverged else r.accuracy() for r in self.at(init, lr)] for lr in RATES[init]
            }
            for init in (*BASELINES, *HYPERFANS)
        }
        title = f"Who trains? Test accuracy after {self.base.total} batches of {self.base.batch}"
        yield "rates", accuracy_by_rate(accuracies, 1 / self.base.classes, title)

    def numbers(self, runs: Sequence[Cifar10Run]) -> dict[str, Any]:
        """Losses and accuracy of an init at a rate."""
        finished = [r for r in runs if not r.diverged]
        accuracies = [r.accuracy() for r in runs]
        return {
            "init": runs[0].config.init,
            "rate": runs[0].config.rate,
            "first loss": statistics.fmean(r.first_loss() for r in runs),
            "training loss": statistics.fmean(r.last_loss() for r in finished) if finished else None,
            "accuracy": mean_of(accuracies),
            "accuracies": accuracies,
        }

    def fields(self) -> dict[str, Any]:
        """The scale of the runs, and a row for every rate."""
        base = self.base
        full, epochs = base.total == PROFILES[PAPER].total, base.total / base.epoch_batches
        begins = "Each run has" if full else "This is the beginning of training only:"
        return {
            "scale": f"{begins} {base.total} batches of {base.batch} images, {epochs:.{3 if full else 2}g} epochs.",
            "last": LAST_BATCHES,
            "rows": self.table(),
            "time": "on a GPU" if full else "some hours on 2 cores",
        }
