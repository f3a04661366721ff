"""The paper's claims about MNIST, each taken apart into facts that an interval can decide."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hyperfan.experiments.experiment import CLASSICAL, HYPERFANS
from hyperfan.experiments.mnist import ADAM_BATCHES, ADAM_RATES, MEANS, SGD_RATES, SHORT_EPOCHS
from hyperfan.experiments.mnist.claims.starts import BASELINE, explodes, flow, keeps_scale, relu, weights_beside
from hyperfan.experiments.optimisers import OPTIMISER_NAMES
from hyperfan.experiments.results.claims import Claim, Claims, Fact, all_of, any_of
from hyperfan.experiments.results.runs import difference, mean_share, ratio
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.text import capitalise

if TYPE_CHECKING:
    from hyperfan.experiments.mnist.results import MnistResults, MnistRun

ACCURACY_MARGIN = 0.005
"""A difference in accuracy that nobody would mind."""
TRAINED_ACCURACY = 0.5
"""A net above this trains; guessing has a tenth right."""
LAST_BATCHES = 100
"""Batches at the end of a short run whose training loss is averaged."""
SETTLED_WITHIN = 0.01
"""Weights have settled when their standard deviation stays within so much of its final value."""
LOSS_FACTOR = 1.1
"""A training loss that many times smaller is a benefit."""
MOVES: tuple[Literal["mean", "deviation"], ...] = ("mean", "deviation")
READINGS = {False: "as plotted", True: "relative to the deviation"}
"""Whether movement of weights is measured relative to their deviation at the end, and how that is said."""
SETTLING = {
    relative: f"within {SETTLED_WITHIN:.0%} of {whose} deviation"
    for relative, whose in ((False, "the classical net's"), (True, "its own"))
}
"""What is settled stays so near to its final value, by the classical net's last deviation or, relative, by its own."""


# ── training ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _settles(c: Claim, e: "MnistResults") -> None:
    found = e.need_each((CLASSICAL, BASELINE, *HYPERFANS))
    _measure_settled(c, e, found)
    for init, runs in found.items():
        for of in MOVES:
            for relative, how in READINGS.items():
                moves = Estimate.ratio([r.restless(of, relative) for r in runs])
                c.measure(f"{init}: movement of the {of} in {e.base.probe_every} batches, {how}", moves)
    for init in HYPERFANS:
        runs, others = found[init], found[BASELINE]
        for relative, how in SETTLING.items():
            later = c.measure(
                f"{init} over {BASELINE}: batches until settled, {how}", _settles_later(e, runs, others, relative)
            )
            c.decide(f"{init}: settles sooner, {how}", later.within(high=1))
        for of, (relative, how) in itertools.product(MOVES, READINGS.items()):
            label = f"{BASELINE} over {init}: movement of the {of}, {how}"
            less = c.measure(label, _moves_more(others, runs, of, relative))
            c.decide(f"{init}: the {of} moves less throughout training, {how}", less.within(1))
            if not c.headline:
                c.headline = f"Xavier's {of} moves {less.format()} times as far"
    c.remark = (
        "The paper's figures show movement as it is; relative to the weights' own deviation is the other reading, by "
        "which a net that hardly learns settles too."
    )
    larger = weights_beside(found[BASELINE], found["hyperfan-in"], 2)
    if larger.within(1):
        c.remark += f" The weights of {BASELINE} are also larger, those of layer 3 {larger.format()} times."


def _learns(c: Claim, e: "MnistResults") -> None:
    found = e.need_each((CLASSICAL, BASELINE, *HYPERFANS))
    for init, runs in found.items():
        c.measure(f"{init}: accuracy after one epoch", _accuracy(runs, 1), ".2%")
        c.measure(f"{init}: accuracy at the end", _accuracy(runs), ".2%")
        c.measure(f"{init}: training loss in the last epoch", Estimate.ratio([r.training_loss() for r in runs]))
    for init in HYPERFANS:
        loss = ratio(found[init], found[BASELINE], lambda r: r.training_loss())
        c.measure(f"{init} over {BASELINE}: training loss in the last epoch", loss)
        c.decide(f"{init}: lower training loss in the last epoch than {BASELINE}", loss.within(high=1))
        c.decide(f"{init}: higher accuracy after one epoch", _gain(found[init], found[BASELINE], 1).within(0))
    after_one = (_accuracy(found[init], 1).format(".0%") for init in ("hyperfan-in", BASELINE))
    c.headline = "after an epoch {} right, Xavier {}".format(*after_one)
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    torchs, ours = (e.after(epochs, init=init) for init in ("xavier-harmonic", "hyperfan-in"))
    both = c.measure(f"torch's xavier, both fans: accuracy after {epochs} epochs", _accuracy(torchs, epochs), ".2%")
    gain = c.measure(f"hyperfan-in above it: accuracy after {epochs} epochs", _gain(ours, torchs, epochs), ".4f")
    less = c.measure(
        f"hyperfan-in over it: training loss in epoch {epochs}",
        ratio(ours, torchs, lambda r: r.training_loss(epoch=epochs)),
    )
    if both.within(TRAINED_ACCURACY):
        c.remark = (
            "The paper's baseline is Xavier with fan-in. Not every classical init fails: torch's own, of both fans, "
            f"has {both.format('.1%')} right after {epochs} epochs. Hyperfan-in is {_points(gain)} above that, and its "
            f"training loss {less.format()} times as large."
        )


def _biases(c: Claim, e: "MnistResults") -> None:
    inits = (*HYPERFANS, BASELINE)
    weights, both = e.need_each(inits), e.need_each(inits, generate="weights+biases")
    _measure_settled(c, e, weights)
    _measure_settled(c, e, both, ", weights and biases")
    for init, runs in both.items():
        c.measure(f"{init}, weights and biases: accuracy at the end", _accuracy(runs), ".2%")
    for init in HYPERFANS:
        for relative, how in SETTLING.items():
            later = _settles_later(e, both[init], weights[init], relative)
            c.decide(f"{init}: settles later than with weights alone, {how}", later.within(1))
            later = _settles_later(e, both[init], both[BASELINE], relative)
            c.decide(f"{init}: settles sooner than {BASELINE}, {how}", later.within(high=1))
        for of, (relative, how) in itertools.product(MOVES, READINGS.items()):
            more = c.measure(
                f"{init}: movement of the {of} with generated biases over that without, {how}",
                _moves_more(both[init], weights[init], of, relative),
            )
            c.decide(f"{init}: the {of} moves more than with weights alone, {how}", more.within(1))
            less = c.measure(
                f"{BASELINE} over {init}, weights and biases: movement of the {of}, {how}",
                _moves_more(both[BASELINE], both[init], of, relative),
            )
            c.decide(f"{init}: the {of} moves less than under {BASELINE}, {how}", less.within(1))
            if not c.headline:
                c.headline = f"{init}: the {of} moves {more.format()} times as far"


def _means(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    full = {init: e.after(epochs, init=init) for init in HYPERFANS}
    for init, runs in full.items():
        c.measure(f"{init}: accuracy after {epochs} epochs", _accuracy(runs, epochs), ".2%")
    gains, losses_over_in = {}, {}
    for init in MEANS:
        runs = e.after(epochs, init=init)
        c.measure(f"{init}: accuracy after {epochs} epochs", _accuracy(runs, epochs), ".2%")
        above = {other: _gain(runs, full[other], epochs) for other in HYPERFANS}
        for other, gain in above.items():
            c.measure(f"{init} above {other}", gain, ".4f")
        no_better = any_of(_no_better(gain) for gain in above.values())
        c.decide(f"{init}: less than {ACCURACY_MARGIN:.1%} better than one of both", no_better)
        gains[init] = min(above.items(), key=lambda item: item[1].value)
        losses = [ratio(runs, full[other], lambda r: r.training_loss(epoch=epochs)) for other in HYPERFANS]
        for other, less in zip(HYPERFANS, losses, strict=True):
            c.measure(f"{init} over {other}: training loss in epoch {epochs}", less)
        losses_over_in[init] = losses[0]
        no_lower = any_of(map(_no_lower, losses))
        c.decide(f"{init}: a training loss that is not less than 1/{LOSS_FACTOR:g} of both", no_lower)
    best = max(gains, key=lambda init: gains[init][1].value)
    lowest = min(losses_over_in, key=lambda init: losses_over_in[init].value)
    c.headline = f"{lowest.removeprefix('hyperfan-')} mean: {losses_over_in[lowest].format()} of hyperfan-in's loss"
    c.remark = "The paper says so of classical nets too, which is not tested."
    if gains[best][1].within(0):
        c.remark += f" {capitalise(best)} is certainly above both in accuracy, by {_points(gains[best][1])}."


def _sharing(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    for init in HYPERFANS:
        separate, shared = e.after(epochs, init=init, heads="separate"), e.after(epochs, init=init)
        gain = _gain(separate, shared, epochs)
        c.measure(f"{init}: accuracy after {epochs} epochs, separate above shared", gain, ".4f")
        c.decide(f"{init}: separate heads are less than {ACCURACY_MARGIN:.1%} better", _no_better(gain))
        less = ratio(separate, shared, lambda r: r.training_loss(epoch=epochs))
        c.measure(f"{init}, separate over shared: training loss in epoch {epochs}", less)
        c.decide(f"{init}: their training loss is not less than 1/{LOSS_FACTOR:g} of it", _no_lower(less))
        c.headline = f"separate heads: {less.format()} of {init}'s loss"


def _adam(c: Claim, e: "MnistResults") -> None:
    batches = min(e.base.total, ADAM_BATCHES)
    good = e.need_each(["hyperfan-in"], batches=batches)["hyperfan-in"]
    rate = good[0].config.rate
    c.measure(f"hyperfan-in, SGD {rate:g}: accuracy after {batches} batches", _accuracy(good), ".2%")
    c.measure(f"hyperfan-in, SGD {rate:g}: training loss of the last {LAST_BATCHES} batches", _last_loss(good))
    tried: dict[str, list[Estimate]] = {}
    for optimiser, rates in (("sgd", SGD_RATES), ("adam", ADAM_RATES)):
        for lr in rates:
            runs = e.need_each([BASELINE], batches=batches, lr=lr, optimiser=optimiser)[BASELINE]
            label = f"{BASELINE}, {OPTIMISER_NAMES[optimiser]} {lr:g}"
            tried.setdefault(optimiser, []).append(c.measure(f"{label}: accuracy", _accuracy(runs), ".2%"))
            c.measure(f"{label}: training loss of the last {LAST_BATCHES} batches", _last_loss(runs))
    trained = f"more than {TRAINED_ACCURACY:.0%} right after {batches} batches"
    c.decide(f"hyperfan-in trains with SGD: {trained}", _accuracy(good).within(TRAINED_ACCURACY))
    stays = all_of(accuracy.within(high=TRAINED_ACCURACY) for accuracy in tried["sgd"])
    c.decide(f"{BASELINE} does not with SGD, at none of its rates, in {batches} batches", stays)
    helped = any_of(accuracy.within(TRAINED_ACCURACY) for accuracy in tried["adam"])
    c.decide(f"with Adam, at one of its rates, it does in {batches} batches", helped)
    best = max(tried["adam"], key=lambda accuracy: accuracy.value)
    c.headline = f"{_accuracy(good).format('.0%')} right, Xavier with Adam at most {best.format('.0%')}"
    c.remark = f"A net trains if it has {trained}, a bound that was chosen after earlier runs had been seen."
    least, most = _accuracy(good).low, max(each.high or 1.0 for rates in tried.values() for each in rates)
    if least is not None and most < TRAINED_ACCURACY < least:
        c.remark += f" Any between {most:.0%} and {least:.0%} would decide the same."


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _no_better(gain: Estimate) -> Fact:
    """Whether a gain in accuracy is too small to mind."""
    return gain.within(high=ACCURACY_MARGIN)


def _no_lower(loss: Estimate) -> Fact:
    """Whether a training loss over another is no smaller than one would mind."""
    return loss.within(1 / LOSS_FACTOR)


def _points(gain: Estimate) -> str:
    """A gain in accuracy in points of a percent, which may be negative."""
    low, high = (None if end is None else 100 * end for end in (gain.low, gain.high))
    return f"{Estimate(100 * gain.value, gain.n, low, high).format('.2f')} points"


def _moves_more(
    runs: Sequence["MnistRun"], others: Sequence["MnistRun"], of: Literal["mean", "deviation"], relative: bool
) -> Estimate:
    return ratio(runs, others, lambda r: r.restless(of, relative))


def _measure_settled(c: Claim, e: "MnistResults", found: dict[str, list["MnistRun"]], what: str = "") -> None:
    for (init, runs), relative in itertools.product(found.items(), SETTLING):
        label = f"{init}{what}: batches until settled, {SETTLING[relative]}"
        settled = [run.settled(None if relative else beside) for run, beside in _beside_classical(e, runs)]
        c.measure(label, Estimate.ratio(settled), ".0f")


def _settles_later(
    e: "MnistResults", runs: Sequence["MnistRun"], others: Sequence["MnistRun"], relative: bool
) -> Estimate:
    classical = {run.config.seed: beside for run, beside in _beside_classical(e, runs)}
    with_it = [run for run in runs if run.config.seed in classical]
    return ratio(with_it, others, lambda r: r.settled(None if relative else classical[r.config.seed]))


def _beside_classical(e: "MnistResults", runs: Sequence["MnistRun"]) -> list[tuple["MnistRun", "MnistRun"]]:
    """Each run with the classical net of its seed, where that was trained."""
    classical = {run.config.seed: run for run in e.runs.seeds(replace(e.base, init=CLASSICAL))}
    return [(run, classical[run.config.seed]) for run in runs if run.config.seed in classical]


def _accuracy(runs: Sequence["MnistRun"], epoch: int | None = None) -> Estimate:
    return mean_share(runs, lambda r: r.accuracy(epoch))


def _last_loss(runs: Sequence["MnistRun"]) -> Estimate:
    return Estimate.ratio([r.training_loss(LAST_BATCHES) for r in runs])


def _gain(runs: Sequence["MnistRun"], others: Sequence["MnistRun"], epoch: int | None = None) -> Estimate:
    """Accuracy above that of others, paired by seed."""
    return difference(runs, others, lambda r: r.accuracy(epoch))


CLAIMS: Claims = {
    "C1": (
        "classical init explodes or vanishes",
        "classical init on a hypernet explodes (fan-in) or vanishes (fan-out) activations and gradients: exponentially "
        "in depth by the linear analysis, right at the beginning on MNIST",
        explodes,
    ),
    "C2": (
        "hyperfan keeps a classical net's scale",
        "hyperfan keeps activations and gradients, and weights after training, at the scale of a classical net",
        keeps_scale,
    ),
    "C3": (
        "hyperfan's weights settle quickly",
        "hyperfan's generated weights settle quickly, Xavier's stay unstable",
        _settles,
    ),
    "C4": ("hyperfan learns faster, to a lower loss", "lower training loss and faster convergence", _learns),
    "C5": ("with ReLU the explosion is bigger", "with ReLU and Kaiming init the explosion is bigger", relu),
    "C6": (
        "with generated biases it settles later",
        "with generated biases hyperfan takes longer to settle, still less than Xavier",
        _biases,
    ),
    "C12": ("no mean of in and out is better", "no mean of hyperfan-in and hyperfan-out is better than both", _means),
    "C13": (
        "sharing a head does no harm",
        "to share a head among layers does no harm (in the paper it is not always a big problem, and can even help)",
        _sharing,
    ),
    "C14": (
        "gradients shrink into the hypernet",
        "gradients shrink from mainnet to hypernet, by the factor d_j/(d_k·Var(e)) under hyperfan-out "
        "(and, which the paper does not say, d_i in place of d_j under hyperfan-in)",
        flow,
    ),
    "C15": ("MNIST: SGD does, others need Adam", "plain SGD suffices with hyperfan where bad inits need Adam", _adam),
}
