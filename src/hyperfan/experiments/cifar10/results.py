"""What is read from CIFAR-10 runs, decided, drawn and published: who trains, and at which learning rates."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hyperfan.charts.palette import LABELS
from hyperfan.experiments.cifar10 import (
    BASELINES,
    BEST,
    HYPERFANS,
    PROFILES,
    SEARCH_BATCHES,
    SEARCHED,
    Cifar10,
    at_the_papers_rate,
    baselines,
    neighbours,
    search,
)
from hyperfan.experiments.classifier import build
from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.results.claims import Claim, Claims, Fact
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure, mean
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER, Results, mean_of
from hyperfan.generators import Chunks
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import Kind
from hyperfan.models import all_cnn
from hyperfan.report import accuracy_by_rate, loss_and_accuracy, settings

TITLE = "Loss and Test Accuracy Plots on CIFAR-10"
"""The paper's."""
LAST_BATCHES = 100
"""Batches at the end whose training loss is averaged; of a search, the last half."""
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
        return self.training_loss(min(LAST_BATCHES, self.config.total // 2))


def _trains(c: Claim, results: "Cifar10Results") -> None:
    found = {init: results.trained(init) for init in (*HYPERFANS, *BASELINES)}
    for init, runs in found.items():
        config = runs[0].config
        at = f"{init} at {config.rate:g}, {config.total} batches"
        excess = Estimate.ratio([kernel_excess(run.config) for run in runs])
        c.measure(f"{init}: variance of generated kernels over the classical net's, before training", excess)
        first = Estimate.median([r.first_loss() for r in runs])
        c.measure(f"{at}: test loss of an image before training", first)
        c.measure(f"{at}: training loss in the last {LAST_BATCHES} batches", _loss(runs))
        c.measure(f"{at}: test accuracy", _accuracy(runs), ".1%")
        trains = f"{init} {'trains' if init in HYPERFANS else 'does not train'} from the start: after {config.total}"
        low, high = (TRAINED_ACCURACY, 1.0) if init in HYPERFANS else (0.0, TRAINED_ACCURACY)
        more = "more" if init in HYPERFANS else "no more"
        c.decide(f"{trains} batches it has {more} than {TRAINED_ACCURACY:.0%} right", _accuracy(runs).within(low, high))
        if init in HYPERFANS:
            c.decide(
                f"{trains} batches its training loss is below that of guessing", _loss(runs).within(0, GUESSING_LOSS)
            )
        else:
            c.decide(f"{trains} batches its training loss is not below that of guessing", _stays_above(runs))
    c.headline = f"hyperfan-in at the paper's rate: {_accuracy(found['hyperfan-in']).format('.1%')} right"
    c.remark = _remark(results)


def _remark(results: "Cifar10Results") -> str:
    base = results.base
    said = (
        f"Tested: {base.total} batches of {base.batch} for hyperfan at the paper's rate, and an epoch for Kaiming init "
        "at its best. Not tested: what comes after. In the paper fan-out begins to train at epoch 270; whether it "
        "does, and whether fan-in never does, only a full run can tell. Kaiming fan-out explodes here, where the "
        "paper's section 3 expects it to vanish: the output layer makes a chunk of 96×9 values for each channel, so "
        "its fan-out is 864, as large as the fan-in of the kernels that it makes. It draws with the variance that the "
        "kernels should have, and the codes, whose squares sum up to about 100, multiply it."
    )
    other = [f"{init} {rate:g}" for init, rate in BEST.items() if results.best(init) != rate]
    if other:
        said += f" The search would have chosen other rates than those taken: not {' and '.join(other)}."
    return said


def kernel_excess(config: Cifar10) -> float:
    """How many times too large the variance of the generated kernels is before training: the mean of all layers.

    That is in relation to Kaiming init of the mainnet, 2/fan-in. The last layers count too, which hyperfan-out makes
    with another variance.
    """
    with torch.device("meta"):
        mainnet = all_cnn()
    net, _ = build(mainnet, config, config.embedding, heads=Chunks(one_head=True))
    assert isinstance(net, HyperNet)
    with torch.no_grad():
        kernels = net.generate().values()
    return statistics.geometric_mean(k.square().mean().item() * k[0].numel() / 2 for k in kernels)


def _stays_above(runs: list[Cifar10Run]) -> Fact:
    """Whether runs do not bring the loss below that of guessing. Those that diverge certainly do not."""
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

    def trained(self, init: str) -> list[Cifar10Run]:
        """The longer runs of an init: at the paper's rate, or for Kaiming init at its best."""
        configs = [*at_the_papers_rate(self.base), *baselines(self.base)]
        return self.runs.need(next(c for c in configs if c.init == init))

    def check(self) -> None:
        """The search and the first seed must be there."""
        for init in (*SEARCHED, CLASSICAL):
            self.trained(init)
        for init in SEARCHED:
            self.best(init)

    def figures(self) -> Iterator[NamedFigure]:
        """Curves of the longer runs, at the paper's rate and beside it, and accuracy by rate in the search."""
        inits = (CLASSICAL, *HYPERFANS, *BASELINES)
        found = {init: self.trained(init) for init in inits}
        compared = {f"{LABELS.get(i, i)}, {runs[0].config.rate:g}": [r.rows for r in runs] for i, runs in found.items()}
        batches = self.base.epoch_batches
        yield (
            "loss",
            loss_and_accuracy(settings(compared), batches, f"{TITLE}: at the paper's rate, Kaiming at its best"),
        )
        beside = {f"{LABELS.get(c.init, c.init)}, {c.rate:g}": self.runs.seeds(c) for c in neighbours(self.base)}
        if any(beside.values()):
            shown = {label: [r.rows for r in runs] for label, runs in beside.items() if runs}
            yield "neighbours", loss_and_accuracy(settings(shown), batches, f"{TITLE}: a tenth and ten times the rate")
        accuracies = {
            LABELS.get(init, init): {
                c.rate: [None if r.diverged else r.accuracy() for r in self.runs.seeds(c)]
                for c in search(self.base)
                if c.init == init
            }
            for init in (*BASELINES, *HYPERFANS)
        }
        title = f"Where does it train? Test accuracy after {min(self.base.total, SEARCH_BATCHES)} batches"
        yield "rates", accuracy_by_rate(accuracies, 1 / self.base.classes, title)

    def numbers(self, runs: Sequence[Cifar10Run]) -> dict[str, Any]:
        """Losses and accuracy of an init at a rate."""
        finished = [r for r in runs if not r.diverged]
        accuracies = [r.accuracy() for r in runs]
        return {
            "init": runs[0].config.init,
            "rate": runs[0].config.rate,
            "batches": runs[0].config.total,
            "first loss": statistics.fmean(r.first_loss() for r in runs),
            "training loss": statistics.fmean(r.last_loss() for r in finished) if finished else None,
            "accuracy": mean_of(accuracies),
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
            "batch": base.batch,
            "tested": base.test_images,
            "last": LAST_BATCHES,
            "search": min(base.total, SEARCH_BATCHES),
            "rows": self.table(),
            "time": "on a GPU" if full else "a day on 2 cores",
        }
