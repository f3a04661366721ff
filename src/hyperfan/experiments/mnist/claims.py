"""The paper's claims about MNIST, each taken apart into facts that an interval can decide."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.mnist import ADAM_BATCHES, ADAM_RATES, SEEDS, SGD_RATES, SHORT_EPOCHS
from hyperfan.experiments.results.claims import Claim, Claims, Fact, Verdict, all_of
from hyperfan.experiments.results.runs import pairs
from hyperfan.experiments.results.statistics import Estimate, growth

if TYPE_CHECKING:
    from hyperfan.experiments.mnist.results import MnistResults, MnistRun

HYPERFANS = ("hyperfan-in", "hyperfan-out")
MEANS = ("hyperfan-harmonic", "hyperfan-geometric", "hyperfan-arithmetic")
BASELINE = "xavier-fan-in"
ACCURACY_MARGIN = 0.005
"""A difference in accuracy that nobody would mind."""
FORMULA_TOLERANCE = 1.5
"""A factor within which a measured variance agrees with a formula."""
SETTLED_WITHIN = 0.01
"""Weights have settled when their standard deviation stays within so much of its final value."""


# ── before training ────────────────────────────────────────────────────────────────────────────────────────────────


def _explodes(c: Claim, e: "MnistResults") -> None:

    def grows(label: str, init: str, activation: Literal["tanh", "relu"]) -> Estimate:
        found = e.starts(replace(e.base, init=init, activation=activation))
        factors = [growth(s.activations[:5]) for s in found]
        return c.measure(f"{label}: factor from a hidden layer to the next", Estimate.ratio(factors))

    relu, tanh = grows("fan-in, ReLU", "kaiming-fan-in", "relu"), grows("fan-in, tanh", BASELINE, "tanh")
    out = grows("fan-out, tanh", "xavier-fan-out", "tanh")
    grows("torch's xavier (both fans), tanh", "xavier-harmonic", "tanh")
    grows("classical net, tanh", CLASSICAL, "tanh")
    first = c.measure("fan-in, tanh: first layer over the classical net's", _beside(e, BASELINE, CLASSICAL, 0))
    c.facts = {
        "fan-in, ReLU: each hidden layer is more than twice the one before": relu.within(2, math.inf),
        "fan-in, tanh: each hidden layer is more than twice the one before": tanh.within(2, math.inf),
        "fan-out: each hidden layer is less than half the one before": out.within(0, 0.5),
    }
    if tanh.within(0, 2) and first.within(2, math.inf):
        c.remark = (
            "Under tanh, fan-in explodes at once and no further: every layer reads saturated values of ±1, so all "
            "are too large by about the same factor."
        )


def _keeps_scale(c: Claim, e: "MnistResults") -> None:
    for init in HYPERFANS:
        inside = []
        for layer in range(6):
            ratio = _beside(e, init, CLASSICAL, layer)
            c.measure(f"{init}: layer {layer + 1} over the classical net's", ratio)
            inside.append(ratio.within(0.5, 2))
        c.decide(f"{init}: hidden layers are between half and twice the classical net's", all_of(inside[:5]))
        output_kept = c.decide(f"{init}: so is the output layer", inside[5])
    if output_kept is False:  # of hyperfan-out, the last
        c.remark = "Hyperfan-out keeps gradients; where a layer narrows, from 500 to 10, activations grow for it."


def _relu(c: Claim, e: "MnistResults") -> None:
    tanh, relu = (
        e.starts(replace(e.base, init=BASELINE)),
        e.starts(replace(e.base, init="kaiming-fan-in", activation="relu")),
    )
    bigger = []
    for i in range(6):
        ratio = Estimate.ratio([b.activations[i] / a.activations[i] for a, b in zip(tanh, relu, strict=True)])
        bigger.append(c.measure(f"layer {i + 1}: ReLU over tanh", ratio).within(1, math.inf))
    c.facts["activations are larger in every layer"] = all_of(bigger)


def _flow(c: Claim, e: "MnistResults") -> None:
    for init in HYPERFANS:
        found = e.starts(replace(e.base, init=init))
        right, shrink = [], []
        for label, layers, d_j, d_i in (
            ("first layer", [0], 784, 500),
            ("layers 2 to 5", [1, 2, 3, 4], 500, 500),
            ("output layer", [5], 500, 10),
        ):
            formula = (d_j if init == "hyperfan-out" else d_i) / e.base.embedding
            ratio = Estimate.ratio([_geometric([s.flow[i] for i in layers]) for s in found])
            c.measure(f"{init}, {label}: Var(∂L/∂h)/Var(∂L/∂W), formula {formula:g}", ratio)
            right.append(ratio.within(formula / FORMULA_TOLERANCE, formula * FORMULA_TOLERANCE))
            shrink.append(ratio.within(0, 1))
        label = f"{init}: the formula is right within a factor of {FORMULA_TOLERANCE:g} in hidden layers"
        c.decide(label, all_of(right[:2]))
        right_at_output = c.decide(f"{init}: the formula is right in the output layer", right[2])
        shrinks = c.decide(f"{init}: gradients shrink", all_of(shrink))
    if shrinks is False:  # under hyperfan-out, the last
        c.remark = (
            "Gradients shrink only where the embedding is wider than the layer. At the paper's own sizes, 500 and 50, "
            "its formula says that the variance grows tenfold."
        )
    if right_at_output is False:
        c.remark += (
            " The formula takes gradients to be independent of weights, which those of the output layer are not: the "
            "larger the logits, the more."
        )


# ── training ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _settles(c: Claim, e: "MnistResults") -> None:
    found = {init: e.runs.need(replace(e.base, init=init), SEEDS) for init in (CLASSICAL, BASELINE, *HYPERFANS)}
    _measure_settled(c, found)
    moves: tuple[Literal["mean", "deviation"], ...] = ("mean", "deviation")
    for init, runs in found.items():
        for of in moves:
            for relative in (True, False):
                label = f"{init}: movement of the {of} in 1000 batches, {'relative' if relative else 'as it is'}"
                c.measure(label, Estimate.of([r.restless(of, relative) for r in runs]))
    larger = []
    for init in HYPERFANS:
        both = pairs(found[init], found[BASELINE])
        sooner = Estimate.of([a.settled() - b.settled() for a, b in both])
        c.decide(f"{init}: settles sooner", sooner.within(high=0))
        for of in moves:
            ratio = Estimate.ratio([a.restless(of, True) / b.restless(of, True) for a, b in both])
            c.facts[f"{init}: the {of} moves less after the first third, relative to its size"] = ratio.within(0, 1)
            plain = Estimate.ratio([b.restless(of, False) / a.restless(of, False) for a, b in both])
            larger.append(plain.within(1, math.inf))
    if all_of(larger) and c.verdict != Verdict.HOLDS:
        c.remark = "As they are, Xavier's weights do move more, since they are larger; the paper's figure shows that."


def _learns(c: Claim, e: "MnistResults") -> None:
    found = {init: e.runs.need(replace(e.base, init=init), SEEDS) for init in (CLASSICAL, BASELINE, *HYPERFANS)}
    for init, runs in found.items():
        c.measure(f"{init}: accuracy after one epoch", _accuracy(runs, 1), ".4f")
        c.measure(f"{init}: accuracy at the end", _accuracy(runs), ".4f")
        c.measure(f"{init}: training loss in the last epoch", Estimate.ratio([r.training_loss() for r in runs]))
    for init in HYPERFANS:
        both = pairs(found[init], found[BASELINE])
        loss = Estimate.ratio([a.training_loss() / b.training_loss() for a, b in both])
        c.facts[f"{init}: lower training loss in the last epoch than {BASELINE}"] = loss.within(0, 1)
        c.facts[f"{init}: higher accuracy after one epoch"] = _gain(found[init], found[BASELINE], 1).within(0)


def _biases(c: Claim, e: "MnistResults") -> None:
    inits = (*HYPERFANS, BASELINE)
    one = {i: e.runs.need(replace(e.base, init=i), SEEDS) for i in inits}
    two = {i: e.runs.need(replace(e.base, init=i, generate="weights+biases"), SEEDS) for i in inits}
    _measure_settled(c, one)
    _measure_settled(c, two, ", weights and biases")
    for i, runs in two.items():
        c.measure(f"{i}, weights and biases: accuracy at the end", _accuracy(runs), ".4f")
    for i in HYPERFANS:
        longer = Estimate.of([a.settled() - b.settled() for a, b in pairs(two[i], one[i])])
        sooner = Estimate.of([a.settled() - b.settled() for a, b in pairs(two[i], two[BASELINE])])
        c.facts[f"{i}: settles later than with weights alone"] = longer.within(0)
        c.facts[f"{i}: settles sooner than {BASELINE}"] = sooner.within(high=0)


def _means(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    full = {init: e.runs.need(replace(e.base, init=init), SEEDS) for init in HYPERFANS}
    for init, runs in full.items():
        c.measure(f"{init}: accuracy after {epochs} epochs", _accuracy(runs, epochs), ".4f")
    for mean in MEANS:
        runs = e.runs.need(replace(e.base, init=mean, epochs=epochs), SEEDS)
        c.measure(f"{mean}: accuracy", _accuracy(runs, epochs), ".4f")
        both = zip(pairs(runs, full["hyperfan-in"]), pairs(runs, full["hyperfan-out"]), strict=True)
        gains = [a.accuracy(epochs) - max(i.accuracy(epochs), o.accuracy(epochs)) for (a, i), (_, o) in both]
        gain = c.measure(f"{mean} above the better of both", Estimate.of(gains), ".4f")
        c.facts[f"{mean}: less than {ACCURACY_MARGIN:.1%} better"] = _no_better(gain)


def _sharing(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    for init in HYPERFANS:
        shared = e.runs.need(replace(e.base, init=init), SEEDS)
        apart = e.runs.need(replace(e.base, init=init, heads="separate", epochs=epochs), SEEDS)
        gain = _gain(apart, shared, epochs)
        c.measure(f"{init}: accuracy after {epochs} epochs, separate above shared", gain, ".4f")
        c.facts[f"{init}: separate heads are less than {ACCURACY_MARGIN:.1%} better"] = _no_better(gain)


def _adam(c: Claim, e: "MnistResults") -> None:
    begun = replace(e.base, init="hyperfan-in", batches=min(e.base.total, ADAM_BATCHES))
    good = e.runs.need(begun, SEEDS)
    c.measure(f"hyperfan-in, SGD {begun.rate:g}: accuracy after {begun.total} batches", _accuracy(good), ".4f")
    best = {}
    rates: tuple[tuple[Literal["sgd", "adam"], tuple[float, ...]], ...] = (("sgd", SGD_RATES), ("adam", ADAM_RATES))
    for optimiser, tried in rates:
        found = {lr: e.runs.need(replace(begun, init=BASELINE, lr=lr, optimiser=optimiser), SEEDS) for lr in tried}
        for lr, runs in found.items():
            c.measure(f"{BASELINE}, {optimiser.upper()} {lr:g}: accuracy", _accuracy(runs), ".4f")
        best[optimiser] = max(found.values(), key=lambda runs: _accuracy(runs).value)
    c.facts = {
        f"{BASELINE} with SGD, at its best rate, is worse than hyperfan-in with SGD": _gain(good, best["sgd"]).within(
            0
        ),
        "Adam at its best rate makes it better": _gain(best["adam"], best["sgd"]).within(0),
        "hyperfan-in with SGD is no worse than that": _no_better(_gain(best["adam"], good)),
    }


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _no_better(gain: Estimate) -> Fact:
    """Whether a gain in accuracy is too small to mind; it is not if it is certainly there."""
    if gain.low is None or gain.high is None:
        return None
    return True if gain.high < ACCURACY_MARGIN else False if gain.low > 0 else None


def _beside(e: "MnistResults", init: str, other: str, layer: int) -> Estimate:
    """One setting's activations over another's in a layer, seed by seed."""
    both = zip(e.starts(replace(e.base, init=init)), e.starts(replace(e.base, init=other)), strict=True)
    return Estimate.ratio([a.activations[layer] / b.activations[layer] for a, b in both])


def _geometric(values: Sequence[float]) -> float:
    return Estimate.ratio(values).value


def _measure_settled(c: Claim, found: dict[str, list["MnistRun"]], what: str = "") -> None:
    for init, runs in found.items():
        label = f"{init}{what}: batches until the deviation stays within {SETTLED_WITHIN:.0%} of its final value"
        c.measure(label, Estimate.of([r.settled() for r in runs]), ".0f")


def _accuracy(runs: list["MnistRun"], epoch: int | None = None) -> Estimate:
    return Estimate.of([r.accuracy(epoch) for r in runs])


def _gain(runs: list["MnistRun"], others: list["MnistRun"], epoch: int | None = None) -> Estimate:
    """Accuracy above that of others, paired by seed."""
    return Estimate.of([a.accuracy(epoch) - b.accuracy(epoch) for a, b in pairs(runs, others)])


CLAIMS: Claims = {
    "C1": (
        "classical init on a hypernet explodes (fan-in) or vanishes (fan-out) activations exponentially in depth",
        _explodes,
    ),
    "C2": ("hyperfan keeps activations at the scale of a classical net", _keeps_scale),
    "C3": ("hyperfan's generated weights settle quickly, Xavier's stay unstable", _settles),
    "C4": ("lower training loss and faster convergence", _learns),
    "C5": ("with ReLU and Kaiming init the explosion is bigger", _relu),
    "C6": ("with generated biases hyperfan takes longer to settle, still less than Xavier", _biases),
    "C12": ("no mean of hyperfan-in and hyperfan-out is better than both", _means),
    "C13": ("sharing a head does no harm", _sharing),
    "C14": (
        (
            "gradients shrink from mainnet to hypernet, by the factor d_j/(d_k·Var(e)) under hyperfan-out "
            "(and d_i in place of d_j under hyperfan-in)"
        ),
        _flow,
    ),
    "C15": ("plain SGD suffices with hyperfan where bad inits need Adam", _adam),
}
