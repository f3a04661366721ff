"""The paper's claim about CIFAR-10, taken apart into facts that an interval can decide."""

import math
from dataclasses import replace

from hyperfan.experiments.cifar10.config import BASELINES, HYPERFANS, MOST_SEEDS, RATES, Cifar10
from hyperfan.experiments.cifar10.runs import LAST, Run, Runs
from hyperfan.experiments.claims import Claim, Fact, all_of, decide_all, within
from hyperfan.experiments.runs import CLASSES
from hyperfan.experiments.statistics import Estimate

TRAINS = 0.15
"""Who has more of the test images right than this has begun to train; guessing has 10 %."""
GUESS = math.log(CLASSES)
"""The loss of guessing."""


def decide(runs: Runs, base: Cifar10) -> list[Claim]:
    """The claim, from finished runs."""
    return decide_all(CLAIMS, runs, base)


def _trains(c: Claim, runs: Runs, base: Cifar10) -> None:
    best = {init: runs.best(base, init) for init in (*HYPERFANS, *BASELINES)}
    found = {init: runs.need(config, MOST_SEEDS) for init, config in best.items()}
    for init, mine in found.items():
        at = f"{init}, best rate {best[init].rate:g}"
        c.measure(f"{at}: test loss of an image before training", Estimate.median([r.first_loss() for r in mine]))
        c.measure(f"{at}: training loss in the last {LAST} batches", _loss(mine))
        c.measure(f"{at}: test accuracy", _accuracy(mine), ".1%")
    for init in HYPERFANS:
        trains = f"{init} trains at once: after {base.total} batches"
        c.facts[f"{trains} it has more than {TRAINS:.0%} right"] = within(_accuracy(found[init]), TRAINS)
        c.facts[f"{trains} its training loss is below that of guessing"] = within(_loss(found[init]), 0, GUESS)
    for init in BASELINES:
        tried = [runs.need(replace(base, init=init, lr=lr), MOST_SEEDS) for lr in RATES[init]]
        does_not = f"{init} does not, at any of {len(tried)} rates from {_span(init)}:"
        c.facts[f"{does_not} it never has more than {TRAINS:.0%} right"] = all_of(
            within(_accuracy(mine), high=TRAINS) for mine in tried
        )
        c.facts[f"{does_not} its loss never is below that of guessing"] = all_of(_stays_above(mine) for mine in tried)
    c.remark = (
        f"Tested: the first {base.total} batches of {base.batch} images. Not tested: what comes after them. In the "
        "paper fan-out begins to train at epoch 270, after 135,000 batches of 100; whether it does, and whether fan-in "
        "never does, only a full run can tell."
    )
    c.remark += _at_the_papers_rate(runs, base)


def _at_the_papers_rate(runs: Runs, base: Cifar10) -> str:
    """What to say if hyperfan does not train at the rate that the paper gives."""
    paper = Cifar10().rate
    found = {init: runs.seeds(replace(base, init=init, lr=paper), MOST_SEEDS) for init in HYPERFANS}
    not_so = [init for init, mine in found.items() if mine and within(_accuracy(mine), TRAINS) is not True]
    if not not_so:
        return ""
    return f" At the paper's own rate, {paper:g}, {' and '.join(not_so)} cannot be said to train here."


def _stays_above(runs: list[Run]) -> Fact:
    """Whether a rate does not bring the loss below that of guessing. Runs that diverge certainly do not."""
    whole = [r for r in runs if not r.diverged]
    return within(_loss(whole), GUESS, math.inf) if whole else True


def _loss(runs: list[Run]) -> Estimate:
    return Estimate.ratio([r.training_loss(LAST) for r in runs])


def _accuracy(runs: list[Run]) -> Estimate:
    return Estimate.of([r.accuracy() for r in runs])


def _span(init: str) -> str:
    return f"{max(RATES[init]):g} to {min(RATES[init]):g}"


CLAIMS = {
    "C9": ("on CIFAR-10 Kaiming fan-in never trains, fan-out only late, and hyperfan at once", _trains),
}
