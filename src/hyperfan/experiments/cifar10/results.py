"""What is read from CIFAR-10 runs, drawn and published: who trains, and at which learning rates."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from hyperfan.charts.palette import init_label
from hyperfan.experiments.cifar10 import (
    LONG_EPOCHS,
    PROFILES,
    SEARCH_BATCHES,
    SEARCH_TEST_IMAGES,
    SHORT_RUN_SEEDS,
    Cifar10,
    at_the_papers_rate,
    baselines,
    grid,
    long_run,
    neighbours,
    search,
)
from hyperfan.experiments.cifar10.claims import CLAIMS, LAST_BATCHES, TRAINED_ACCURACY
from hyperfan.experiments.experiment import CLASSICAL, HYPERFANS, KAIMINGS
from hyperfan.experiments.results.classifier import ClassifierResults, mean_of
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER
from hyperfan.metrics import Kind
from hyperfan.report import accuracy_by_rate, loss_and_accuracy, settings

TITLE = "Loss and Test Accuracy Plots on CIFAR-10"
"""The paper's."""
PICTURES = {
    "loss": "Loss and test accuracy, hyperfan at a tenth of the paper's rate, Kaiming init at its best for an epoch",
    "rates": "Test accuracy after the first batches, by learning rate",
    "neighbours": "Loss and test accuracy, at the paper's rate and ten times that",
    "longest": "Loss and test accuracy of one seed of hyperfan-in for longer, and of Kaiming init for an epoch",
}
"""What each figure shows, for the page; those without runs are left out."""
INITS = (CLASSICAL, *HYPERFANS, *KAIMINGS)


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

    def last_loss(self, epoch: int | None = None) -> float:
        """Mean training loss of the last batches of an epoch, by default the last, or of a search of all."""
        return self.training_loss(min(LAST_BATCHES, self.config.total), epoch)


class Cifar10Results(ClassifierResults[Cifar10, Cifar10Run]):
    """Accuracy at every learning rate, and one claim."""

    claims = CLAIMS
    data_set = "cifar10"
    columns = (
        ("init", "init", ""),
        ("rate", "rate", "g"),
        ("batches", "batches", ""),
        ("seeds", "seeds", ""),
        ("diverged", "diverged", ""),
        ("test loss of an image, start", "first loss", ".3g"),
        ("training loss, end", "training loss", ".4g"),
        ("accuracy", "accuracy", ".1%"),
    )

    def best(self, init: str) -> float:
        """The rate with the smallest training loss at the end of the search.

        A run that diverged is the worst, and of several such the one with the smallest rate is taken.
        """
        tried = [self.runs.one(c) for c in search(self.base) if c.init == init]
        return min(tried, key=lambda r: (math.inf if r.diverged else r.last_loss(), r.config.rate)).config.rate

    def begun(self, config: Cifar10) -> list[Cifar10Run]:
        """The short runs of a setting that are there, but for those of the seed that searches."""
        return [run for run in self.runs.seeds(config) if not run.chooses]

    def trained(self, init: str) -> list[Cifar10Run]:
        """The longer runs of an init: at the paper's rate, or for Kaiming init at its best."""
        configs = [*at_the_papers_rate(self.base), *baselines(self.base)]
        return self.runs.need(next(c for c in configs if c.init == init))

    def at_a_tenth(self, init: str) -> list[Cifar10Run]:
        """The runs of an init at a tenth of the paper's rate."""
        return self.runs.need(self._at_a_tenth(init))

    def _at_a_tenth(self, init: str) -> Cifar10:
        return min((c for c in neighbours(self.base) if c.init == init), key=lambda c: c.rate)

    def check(self) -> None:
        """One run must be there; what the others would show is left out."""
        if not list(self.runs):
            self.runs.one(grid(self.base)[0])

    def figures(self) -> Iterator[NamedFigure]:
        """Curves of the longer runs, at the paper's rate and beside it, and accuracy by rate in the search."""
        papers, beside, kaiming = (
            [c for c in runs(self.base) if c.seed == self.base.seed]
            for runs in (at_the_papers_rate, neighbours, baselines)
        )
        best = [*map(self._at_a_tenth, HYPERFANS), *(c for c in papers if c.init == CLASSICAL), *kaiming]
        others = [c for c in (*papers, *beside) if c not in best]
        longest = [c for c in long_run(self.base) if c in self.runs]
        for name, configs, rates in (
            ("loss", best, "hyperfan at a tenth of the paper's rate, Kaiming at its best"),
            ("neighbours", others, "the paper's rate, and ten times that"),
            ("longest", [*longest, *kaiming] if longest else [], "one seed for longer"),
        ):
            found = [self.runs.seeds(c) for c in sorted(configs, key=lambda c: INITS.index(c.init))]
            shown = {f"{init_label(runs[0].config.init)}, {runs[0].config.rate:g}": runs for runs in found if runs}
            if shown:
                rows = {label: [r.rows for r in runs] for label, runs in shown.items()}
                inits = {label: runs[0].config.init for label, runs in shown.items()}
                yield name, loss_and_accuracy(settings(rows, inits), self.base.epoch_batches, f"{TITLE}: {rates}")
        accuracies: dict[str, dict[float, list[float | None]]] = {}
        inits = {init_label(init): init for init in (*KAIMINGS, *HYPERFANS)}
        for c in sorted(search(self.base), key=lambda c: (*KAIMINGS, *HYPERFANS).index(c.init)):
            if c in self.runs:
                run = self.runs.one(c)
                accuracies.setdefault(init_label(c.init), {})[c.rate] = [None if run.diverged else run.accuracy()]
        if accuracies:
            title = f"Where does it train? Test accuracy after {min(self.base.total, SEARCH_BATCHES)} batches"
            yield "rates", accuracy_by_rate(accuracies, 1 / self.base.classes, title, inits)

    def numbers(self, runs: Sequence[Cifar10Run]) -> dict[str, Any]:
        """Losses and accuracy of an init at a rate."""
        accuracies = [r.accuracy() for r in runs]
        return {
            "init": runs[0].config.init,
            "rate": runs[0].config.rate,
            "batches": runs[0].config.total,
            "first loss": statistics.fmean(r.first_loss() for r in runs),
            "training loss": statistics.fmean(r.last_loss() for r in runs),
            "accuracy": mean_of(accuracies, Estimate.mean_share),
            "accuracies": accuracies,
        }

    def fields(self) -> dict[str, Any]:
        """The scale of the runs, and a row for every rate."""
        base = self.base
        full = base.total == PROFILES[PAPER].total
        begins = "Each run has" if full else "This is the beginning of training only:"
        epochs = base.total / base.epoch_batches
        return {
            "scale": f"{begins} {base.total} batches of {base.batch} images, {epochs:.3g} epochs.",
            "tested": base.test_images,
            "last": LAST_BATCHES,
            "trained": TRAINED_ACCURACY,
            "long": LONG_EPOCHS,
            "search": min(base.total, SEARCH_BATCHES),
            "short_seeds": SHORT_RUN_SEEDS,
            "searched": min(base.test_images, SEARCH_TEST_IMAGES),
            **self.pictures(PICTURES),
            "rows": self.table(),
            "time": "on a GPU" if full else "a day on 2 cores",
        }
