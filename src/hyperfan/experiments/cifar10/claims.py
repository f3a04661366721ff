"""The paper's claim about CIFAR-10, taken apart into facts that an interval can decide."""

from dataclasses import replace

from hyperfan.experiments.cifar10.config import BASELINES, HYPERFANS, RATES, SEEDS, Cifar10
from hyperfan.experiments.cifar10.runs import LAST, Run, Runs
from hyperfan.experiments.claims import Claim, Fact, all_of, decide_all, within
from hyperfan.experiments.statistics import Estimate

TRAINS = 0.15
"""Who has more of the test images right than this has begun to train; guessing has 10 %."""


def decide(runs: Runs, base: Cifar10) -> list[Claim]:
    """The claim, from finished runs."""
    return decide_all(CLAIMS, runs, base)


def _trains(c: Claim, runs: Runs, base: Cifar10) -> None:
    best = {init: runs.best(base, init) for init in (*HYPERFANS, *BASELINES)}
    found = {init: runs.need(config, SEEDS) for init, config in best.items()}
    for init, mine in found.items():
        at = f"{init}, best rate {best[init].rate:g}"
        c.measure(f"{at}: test loss of an image before training", Estimate.ratio([r.first_loss() for r in mine]))
        last = Estimate.ratio([r.training_loss(LAST) for r in mine])
        c.measure(f"{at}: training loss in the last {LAST} batches", last)
        c.measure(f"{at}: test accuracy", _accuracy(mine), ".1%")
    for init in HYPERFANS:
        c.facts[f"{init} trains at once: more than {TRAINS:.0%} right after {base.total} batches"] = within(
            _accuracy(found[init]), TRAINS
        )
    for init in BASELINES:
        right = [_accuracy(runs.need(replace(base, init=init, lr=lr), SEEDS)) for lr in RATES[init]]
        c.facts[f"{init} does not, at any of {len(right)} rates from {_span(init)}"] = _none_trains(right)
    c.remark = (
        f"Tested: the first {base.total} batches of {base.batch} images. Not tested: what comes after them. In the "
        "paper fan-out begins to train at epoch 270, after 135,000 batches of 100; whether it does, and whether fan-in "
        "never does, only a full run can tell."
    )
    c.remark += _at_the_papers_rate(runs, base)


def _at_the_papers_rate(runs: Runs, base: Cifar10) -> str:
    """What to say if hyperfan does not train at the rate that the paper gives."""
    paper = Cifar10().rate
    found = {init: runs.seeds(replace(base, init=init, lr=paper), SEEDS) for init in HYPERFANS}
    not_so = [init for init, mine in found.items() if mine and within(_accuracy(mine), TRAINS) is not True]
    if not not_so:
        return ""
    return f" At the paper's own rate, {paper:g}, {' and '.join(not_so)} cannot be said to train here."


def _none_trains(right: list[Estimate]) -> Fact:
    return all_of(within(accuracy, high=TRAINS) for accuracy in right)


def _accuracy(runs: list[Run]) -> Estimate:
    return Estimate.of([r.accuracy() for r in runs])


def _span(init: str) -> str:
    return f"{max(RATES[init]):g} to {min(RATES[init]):g}"


CLAIMS = {
    "C9": ("on CIFAR-10 Kaiming fan-in never trains, fan-out only late, and hyperfan at once", _trains),
}
