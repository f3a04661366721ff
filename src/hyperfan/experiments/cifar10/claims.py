"""The paper's claim about CIFAR-10, taken apart into facts that an interval can decide."""

import functools
import math
import statistics
from typing import TYPE_CHECKING

import torch

from hyperfan.experiments.cifar10 import BEST, Cifar10, short_settings
from hyperfan.experiments.cifar10.training import build
from hyperfan.experiments.experiment import CLASSICAL, HYPERFANS, KAIMINGS
from hyperfan.experiments.results.claims import Claim, Claims, Fact
from hyperfan.experiments.results.pairs import opposite
from hyperfan.experiments.results.runs import OVERFLOWED_LOSS, mean_share
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.hypernet import HyperNet

if TYPE_CHECKING:
    from hyperfan.experiments.cifar10.results import Cifar10Results, Cifar10Run

LAST_BATCHES = 100
"""Batches at the end whose training loss is averaged; of a shorter run, all."""
TRAINED_ACCURACY = 0.15
"""A net above this has begun to train; guessing has 10 %."""
FAR_FACTOR = 2.0
"""Kernels whose variance is so many times too large explode."""
FAN_OUT = KAIMINGS[1]
KERNEL_HEAD = "96x3x3"
"""The output layer that makes all 3×3 kernels."""
GUESSING_LOSS = math.log(Cifar10.classes)


def _trains(c: Claim, results: "Cifar10Results") -> None:
    found = {init: results.trained(init) for init in (*HYPERFANS, *KAIMINGS)}
    excesses = {init: _measure_before_training(c, init, runs) for init, runs in found.items()}
    trained = [results.at_a_tenth(init) for init in HYPERFANS]
    for runs in (*found.values(), *trained):
        _decide_first_epoch(c, runs)
    for config in short_settings(results.base):
        _decide_first_batches(c, config, results.begun(config))
    c.headline = f"{_accuracy(trained[0], 1).format('.0%')} right at {trained[0][0].config.rate:g}, Kaiming fan-out "
    c.headline += _accuracy(found[FAN_OUT], 1).format(".0%")
    c.remark = _scope(results)
    if diverged := [run.config for init in HYPERFANS for run in found[init] if run.diverged]:
        c.remark += _why_at_the_edge(diverged[0])
    if excesses[FAN_OUT].within(FAR_FACTOR):
        c.remark += _why_fan_out_explodes(found[FAN_OUT][0].config)
    for init, rate in BEST.items():
        if (best := results.best(init)) != rate:
            c.remark += f" In the search the loss of {init} is smallest at {best:g}, not at {rate:g}, which was taken."


def _measure_before_training(c: Claim, init: str, runs: list["Cifar10Run"]) -> Estimate:
    """Record how many times too large the generated kernels' variance is, and the test loss; returns the former."""
    first = Estimate.ratio([min(r.first_loss(), OVERFLOWED_LOSS) for r in runs])
    excess = Estimate.ratio([kernel_excess(run.config) for run in runs])
    c.measure(f"{init}: variance of generated kernels over the classical net's, before training", excess)
    c.measure(f"{init}: test loss of an image before training", first)
    return excess


def _decide_first_epoch(c: Claim, runs: list["Cifar10Run"]) -> None:
    """Decide whether an init trains in the first epoch, by accuracy and by loss; the epochs after it are measured."""
    config = runs[0].config
    for epoch in range(1, config.total // config.epoch_batches + 1):
        after = f"{_name(config)}, after {'the first epoch' if epoch == 1 else f'{epoch} epochs'}"
        c.measure(f"{after}: training loss in the last {LAST_BATCHES} batches", _loss(runs, epoch))
        c.measure(f"{after}: test accuracy", _accuracy(runs, epoch), ".1%")
    _decide_by_accuracy(c, config, "after the first epoch", _accuracy(runs, 1))
    finished = [r for r in runs if not r.diverged_by(config.epoch_batches)]
    if config.init in HYPERFANS:
        label = "trains at once: after the first epoch its training loss is below that of guessing"
        c.decide(f"{_name(config)} {label}", _beats_guessing(runs))
    else:
        label = "does not: after the first epoch its training loss is not below that of guessing"
        c.decide(f"{_name(config)} {label}", opposite(_beats_guessing(finished or runs)))


def _decide_first_batches(c: Claim, config: Cifar10, runs: list["Cifar10Run"]) -> None:
    """Decide whether an init trains in its first batches, by accuracy; without runs that is open."""
    when, accuracy = f"after {config.total} batches", None
    if runs:
        diverged = Estimate.share(sum(r.diverged for r in runs), len(runs))
        c.measure(f"{_name(config)}: share of runs that diverge in {config.total} batches", diverged, ".0%")
        accuracy = mean_share(runs, lambda r: r.accuracy())
        c.measure(f"{_name(config)}, {when}: test accuracy", accuracy, ".1%")
    _decide_by_accuracy(c, config, when, accuracy)


def _decide_by_accuracy(c: Claim, config: Cifar10, when: str, accuracy: Estimate | None) -> None:
    """Decide whether hyperfan is above the bound, or Kaiming init is not."""
    trains = accuracy.within(TRAINED_ACCURACY) if accuracy else None
    if config.init in HYPERFANS:
        c.decide(f"{_name(config)} trains at once: {when} it has more than {TRAINED_ACCURACY:.0%} right", trains)
    else:
        label = f"does not: {when} it has no more than {TRAINED_ACCURACY:.0%} right"
        c.decide(f"{_name(config)} {label}", opposite(trains))


def _name(config: Cifar10) -> str:
    return f"{config.init} at {config.rate:g}"


def _scope(results: "Cifar10Results") -> str:
    base, short = results.base, short_settings(results.base)[0]
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


def _beats_guessing(runs: list["Cifar10Run"]) -> Fact:
    """Whether runs bring the loss below that of guessing, which is what one that diverges counts as.

    If all diverge they do not, but one alone decides nothing.
    """
    if all(r.diverged_by(r.config.epoch_batches) for r in runs):
        return False if len(runs) > 1 else None
    return _loss(runs, 1).within(high=GUESSING_LOSS)


def _loss(runs: list["Cifar10Run"], epoch: int) -> Estimate:
    return Estimate.ratio([r.last_loss(epoch) for r in runs])


def _accuracy(runs: list["Cifar10Run"], epoch: int) -> Estimate:
    return mean_share(runs, lambda r: r.accuracy(epoch))


CLAIMS: Claims = {
    "C9": (
        "CIFAR-10: hyperfan trains at once",
        "on CIFAR-10 hyperfan trains at once, and Kaiming init does not (in the paper fan-in never, fan-out from epoch "
        "270)",
        _trains,
    )
}
