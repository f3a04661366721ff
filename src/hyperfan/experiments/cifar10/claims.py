"""The paper's claim about CIFAR-10, taken apart into facts that an interval can decide."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from hyperfan.experiments.cifar10 import BASELINES, HYPERFANS, MAX_SEEDS, RATES, Cifar10
from hyperfan.experiments.results.claims import Claim, Claims, Fact, all_of
from hyperfan.experiments.results.statistics import Estimate

if TYPE_CHECKING:
    from hyperfan.experiments.cifar10.results import Cifar10Results, Cifar10Run

LAST_BATCHES = 100
"""Batches at the end whose training loss is averaged."""
TRAINED_ACCURACY = 0.15
"""A net above this has begun to train; guessing has 10 %."""
GUESSING_LOSS = math.log(Cifar10.classes)


def _trains(c: Claim, results: "Cifar10Results") -> None:
    runs, base = results.runs, results.base
    best = {init: results.best(init) for init in (*HYPERFANS, *BASELINES)}
    found = {init: runs.need(config, MAX_SEEDS) for init, config in best.items()}
    for init, its_runs in found.items():
        at = f"{init}, best rate {best[init].rate:g}"
        first = Estimate.median([r.first_loss() for r in its_runs])
        c.measure(f"{at}: test loss of an image before training", first)
        c.measure(f"{at}: training loss in the last {LAST_BATCHES} batches", _loss(its_runs))
        c.measure(f"{at}: test accuracy", _accuracy(its_runs), ".1%")
    for init in HYPERFANS:
        trains = f"{init} trains at once: after {base.total} batches"
        accuracy, loss = _accuracy(found[init]), _loss(found[init])
        c.decide(f"{trains} it has more than {TRAINED_ACCURACY:.0%} right", accuracy.within(TRAINED_ACCURACY))
        c.decide(f"{trains} its training loss is below that of guessing", loss.within(0, GUESSING_LOSS))
    for init in BASELINES:
        tried = [runs.need(replace(base, init=init, lr=lr), MAX_SEEDS) for lr in RATES[init]]
        span = f"{max(RATES[init]):g} to {min(RATES[init]):g}"
        does_not = f"{init} does not, at any of {len(tried)} rates from {span}:"
        never = all_of(_accuracy(its_runs).within(high=TRAINED_ACCURACY) for its_runs in tried)
        c.decide(f"{does_not} it never has more than {TRAINED_ACCURACY:.0%} right", never)
        c.decide(f"{does_not} its loss never is below that of guessing", all_of(map(_stays_above, tried)))
    c.remark = (
        f"Tested: the first {base.total} batches of {base.batch} images. Not tested: what comes after them. In the "
        "paper fan-out begins to train at epoch 270, after 135,000 batches of 100; whether it does, and whether fan-in "
        "never does, only a full run can tell."
    )
    paper = Cifar10().rate
    at_paper = {init: its_runs for init in HYPERFANS if (its_runs := results.at(init, paper))}
    unsure = [i for i, its_runs in at_paper.items() if _accuracy(its_runs).within(TRAINED_ACCURACY) is not True]
    if unsure:
        c.remark += f" At the paper's own rate, {paper:g}, {' and '.join(unsure)} cannot be said to train here."


def _stays_above(runs: list["Cifar10Run"]) -> Fact:
    """Whether a rate does not bring the loss below that of guessing. Runs that diverge certainly do not."""
    finished = [r for r in runs if not r.diverged]
    return _loss(finished).within(GUESSING_LOSS) if finished else True


def _loss(runs: list["Cifar10Run"]) -> Estimate:
    return Estimate.ratio([r.last_loss() for r in runs])


def _accuracy(runs: list["Cifar10Run"]) -> Estimate:
    return Estimate.of([r.accuracy() for r in runs])


CLAIMS: Claims = {
    "C9": ("on CIFAR-10 Kaiming fan-in never trains, fan-out only late, and hyperfan at once", _trains),
}
