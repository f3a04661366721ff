"""What is read from CIFAR-10 runs, decided, drawn and published: who trains, and at which learning rates."""

import functools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hyperfan.charts.palette import init_label
from hyperfan.experiments.cifar10 import (
    BEST,
    LONG_EPOCHS,
    PROFILES,
    SEARCH_BATCHES,
    SEARCH_TEST_IMAGES,
    START_SEEDS,
    Cifar10,
    at_the_papers_rate,
    baselines,
    compared,
    grid,
    long_run,
    neighbours,
    search,
)
from hyperfan.experiments.cifar10.training import build
from hyperfan.experiments.experiment import CLASSICAL, HYPERFANS, KAIMINGS
from hyperfan.experiments.results.claims import Claim, Claims, Fact
from hyperfan.experiments.results.classifier import ClassifierResults, mean_of
from hyperfan.experiments.results.pairs import opposite
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure, mean
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import PAPER
from hyperfan.hypernet import HyperNet
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
LAST_BATCHES = 100
"""Batches at the end whose training loss is averaged; of a shorter run, all."""
OVERFLOWED_LOSS = 1e30
"""The value of a loss that overflowed, where losses are averaged."""
TRAINED_ACCURACY = 0.15
"""A net above this has begun to train; guessing has 10 %."""
FAR_FACTOR = 2.0
"""Kernels whose variance is so many times too large explode."""
KERNEL_HEAD = "96x3x3"
"""The output layer that makes all 3×3 kernels."""
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

    def last_loss(self, epoch: int | None = None) -> float:
        """Mean training loss of the last batches of an epoch, by default the last, or of a search of all."""
        return self.training_loss(min(LAST_BATCHES, self.config.total), epoch)


def _trains(c: Claim, results: "Cifar10Results") -> None:
    found = {init: results.trained(init) for init in (*HYPERFANS, *KAIMINGS)}
    excesses = {}
    for init, runs in found.items():
        excess = excesses[init] = Estimate.ratio([kernel_excess(run.config) for run in runs])
        c.measure(f"{init}: variance of generated kernels over the classical net's, before training", excess)
        first = Estimate.ratio([min(r.first_loss(), OVERFLOWED_LOSS) for r in runs])
        c.measure(f"{init}: test loss of an image before training", first)
    for runs in (*found.values(), *(results.at_a_tenth(init) for init in HYPERFANS)):
        config = runs[0].config
        name, share = f"{config.init} at {config.rate:g}", f"{TRAINED_ACCURACY:.0%}"
        for epoch in range(1, config.total // config.epoch_batches + 1):
            after = f"{name}, after {'the first epoch' if epoch == 1 else f'{epoch} epochs'}"
            c.measure(f"{after}: training loss in the last {LAST_BATCHES} batches", _loss(runs, epoch))
            c.measure(f"{after}: test accuracy", _accuracy(runs, epoch), ".1%")
        accuracy = _accuracy(runs, 1)
        if config.init in HYPERFANS:
            trains = f"{name} trains at once: after the first epoch"
            c.decide(f"{trains} it has more than {share} right", accuracy.within(TRAINED_ACCURACY))
            c.decide(f"{trains} its training loss is below that of guessing", _beats_guessing(runs))
        else:
            stays = f"{name} does not: after the first epoch"
            c.decide(f"{stays} it has no more than {share} right", accuracy.within(high=TRAINED_ACCURACY))
            finished = [r for r in runs if not r.diverged_by(config.epoch_batches)]
            beats = _beats_guessing(finished or runs)
            c.decide(f"{stays} its training loss is not below that of guessing", opposite(beats))
    for config in compared(results.base):
        _starts(c, config, results.started(config))
    trained = results.at_a_tenth(HYPERFANS[0])
    c.headline = f"{_accuracy(trained, 1).format('.0%')} right at {trained[0].config.rate:g}, Kaiming fan-out "
    c.headline += _accuracy(found[KAIMINGS[1]], 1).format(".0%")
    c.remark = _scope(results)
    if diverged := [run.config for init in HYPERFANS for run in found[init] if run.diverged]:
        c.remark += _why_at_the_edge(diverged[0])
    fan_out = "kaiming-fan-out"
    if excesses[fan_out].within(FAR_FACTOR):
        c.remark += _why_fan_out_explodes(found[fan_out][0].config)
    for init, rate in BEST.items():
        if (best := results.best(init)) != rate:
            c.remark += f" In the search the loss of {init} is smallest at {best:g}, not at {rate:g}, which was taken."


def _starts(c: Claim, config: Cifar10, runs: list[Cifar10Run]) -> None:
    """Decide whether an init trains in its first batches; without runs that is open."""
    name, batches, share = f"{config.init} at {config.rate:g}", config.total, f"{TRAINED_ACCURACY:.0%}"
    trains = config.init in HYPERFANS
    right = (
        "trains at once: after {} batches it has more than {}"
        if trains
        else "does not: after {} batches it has no more than {}"
    )
    so = None
    if runs:
        diverged = Estimate.share(sum(r.diverged for r in runs), len(runs))
        c.measure(f"{name}: share of runs that diverge in {batches} batches", diverged, ".0%")
        accuracy = mean(runs, lambda r: r.accuracy())
        c.measure(f"{name}, after {batches} batches: test accuracy", accuracy, ".1%")
        so = accuracy.within(TRAINED_ACCURACY) if trains else accuracy.within(high=TRAINED_ACCURACY)
    c.decide(f"{name} {right.format(batches, share)} right", so)


def _scope(results: "Cifar10Results") -> str:
    base, short = results.base, compared(results.base)[0]
    return (
        f"Tested: the first {short.total} batches and the first epoch, {base.epoch_batches} batches of {base.batch}, "
        "of hyperfan at the paper's rate and at a tenth of it, and of Kaiming init at its best. Not tested: what comes "
        "after. In the paper fan-out begins to train at epoch 270; whether it does, and whether fan-in never does, "
        "only a full run can tell."
    )


@functools.cache
def _why_at_the_edge(config: Cifar10) -> str:
    """Which rate the classical net would need to move as far."""
    net = _untrained(config)
    head = net.heads.head(KERNEL_HEAD).weight.detach()
    codes, outputs = head.shape
    squares = config.embedding + 1  # ‖e‖² of values of variance 1, and 1 for the bias
    stretch = head.square().sum().item() / codes
    classical = Cifar10(init=CLASSICAL).rate
    return (
        " The paper's rate is near the largest that hyperfan bears here, and some runs diverge at it. Through its "
        f"input layer alone a step at {config.rate:g} moves a chunk in {codes} of its {outputs} directions as a rate "
        f"of {config.rate * squares * stretch:.2g} would: the rate, times ‖e‖² + 1 = {squares}, times the mean "
        f"eigenvalue of HᵀH, {stretch:.3g}. The classical net has {classical:g}."
    )


@functools.cache
def _why_fan_out_explodes(config: Cifar10) -> str:
    """The explanation, in numbers of the plan."""
    net = _untrained(config)
    outputs = net.heads.head(KERNEL_HEAD).weight.shape[-1]
    rows = [row for row in net.plan.rows if row.head == KERNEL_HEAD]
    fans = sorted({row.fan_in for row in rows if row.fan_in and row.fan_in >= outputs})
    moment = statistics.fmean(row.moment or 0 for row in rows)
    too_large = [(row.moment or 0) * (row.variance or 0) * (row.fan_in or 0) / 2 for row in rows]
    return (
        " Kaiming fan-out explodes here, where the paper's section 3 expects it to vanish. The output layer makes only "
        f"{outputs} values at a time, so that its variance, 2/{outputs}, is no smaller than what kernels with a "
        f"fan-in of {' or '.join(f'{fan:g}' for fan in fans)} need. The codes, whose squares sum up to "
        f"{moment:g}, then multiply it: by the plan the 3×3 kernels' variance is {min(too_large):.2g} to "
        f"{max(too_large):.3g} times too large."
    )


@functools.cache
def kernel_excess(config: Cifar10) -> float:
    """How many times too large the variance of the generated kernels is before training: the mean of all layers.

    That is in relation to Kaiming init of the mainnet, 2/fan-in. The last layers count too, which hyperfan-out makes
    with another variance.
    """
    with torch.no_grad():
        kernels = _untrained(config).generate().values()
    return statistics.geometric_mean(k.square().mean().item() * k[0].numel() / 2 for k in kernels)


def _untrained(config: Cifar10) -> HyperNet:
    """The net of a run before training."""
    net, _ = build(config)
    assert isinstance(net, HyperNet)
    return net


def _beats_guessing(runs: list[Cifar10Run]) -> Fact:
    """Whether runs bring the loss below that of guessing, which is what one that diverges counts as.

    If all diverge they do not, but one alone decides nothing.
    """
    if all(r.diverged for r in runs):
        return False if len(runs) > 1 else None
    return _loss(runs, 1).within(high=GUESSING_LOSS)


def _loss(runs: list[Cifar10Run], epoch: int) -> Estimate:
    return Estimate.ratio([r.last_loss(epoch) for r in runs])


def _accuracy(runs: list[Cifar10Run], epoch: int) -> Estimate:
    return mean(runs, lambda r: r.accuracy(epoch))


CLAIMS: Claims = {
    "C9": (
        "CIFAR-10: hyperfan trains at once",
        "on CIFAR-10 hyperfan trains at once, and Kaiming init does not (in the paper fan-in never, fan-out from epoch "
        "270)",
        _trains,
    )
}


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

    def started(self, config: Cifar10) -> list[Cifar10Run]:
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
            "accuracy": mean_of(accuracies),
            "accuracies": accuracies,
        }

    def fields(self) -> dict[str, Any]:
        """The scale of the runs, and a row for every rate."""
        base = self.base
        full = base.total == PROFILES[PAPER].total
        begins = "Each run has" if full else "This is the beginning of training only:"
        epochs, drawn = base.total / base.epoch_batches, dict(self.figures())
        return {
            "scale": f"{begins} {base.total} batches of {base.batch} images, {epochs:.3g} epochs.",
            "tested": base.test_images,
            "last": LAST_BATCHES,
            "trained": TRAINED_ACCURACY,
            "long": LONG_EPOCHS,
            "search": min(base.total, SEARCH_BATCHES),
            "starts": START_SEEDS,
            "searched": min(base.test_images, SEARCH_TEST_IMAGES),
            **{name: f"![{text}](figures/{name}.svg)\n\n" if name in drawn else "" for name, text in PICTURES.items()},
            "rows": self.table(),
            "time": "on a GPU" if full else "a day on 2 cores",
        }
