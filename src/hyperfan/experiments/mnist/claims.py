"""The paper's claims about MNIST, each taken apart into facts that an interval can decide."""

import itertools
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from hyperfan.experiments.experiment import CLASSICAL, HYPERFANS
from hyperfan.experiments.mnist import ADAM_BATCHES, ADAM_RATES, MEANS, SGD_RATES, SHORT_EPOCHS
from hyperfan.experiments.results.claims import OPTIMISER_NAMES, Claim, Claims, Fact, all_of, any_of
from hyperfan.experiments.results.runs import difference, mean, ratio
from hyperfan.experiments.results.statistics import Estimate, growth

if TYPE_CHECKING:
    from hyperfan.experiments.mnist.results import MnistResults, MnistRun

BASELINE = "xavier-fan-in"
ACCURACY_MARGIN = 0.005
"""A difference in accuracy that nobody would mind."""
TRAINED_ACCURACY = 0.5
"""A net above this trains; guessing has a tenth right."""
FORMULA_TOLERANCE = 1.5
"""A factor within which a measured variance agrees with a formula."""
SETTLED_WITHIN = 0.01
"""Weights have settled when their standard deviation stays within so much of its final value."""
MOVES: tuple[Literal["mean", "deviation"], ...] = ("mean", "deviation")


# ── before training ────────────────────────────────────────────────────────────────────────────────────────────────


def _explodes(c: Claim, e: "MnistResults") -> None:
    factors, back = {}, {}
    for label, init, activation in (
        ("fan-in, ReLU", "kaiming-fan-in", "relu"),
        ("fan-in, tanh", BASELINE, "tanh"),
        ("fan-out, tanh", "xavier-fan-out", "tanh"),
        ("torch's xavier (both fans), tanh", "xavier-harmonic", "tanh"),
        ("classical net, tanh", CLASSICAL, "tanh"),
    ):
        starts = e.starts(init=init, activation=activation)
        grows = Estimate.ratio([growth(s.activations[:5]) for s in starts])
        factors[label] = c.measure(f"{label}: activations, factor from a hidden layer to the next", grows)
        grows = Estimate.ratio([growth(s.gradients[4::-1]) for s in starts])
        back[label] = c.measure(f"{label}: gradients, factor from a hidden layer to the one before", grows)
    first = c.measure("fan-in, tanh: first layer over the classical net's", _beside(e, BASELINE, CLASSICAL, 0))
    for what, found in (("activations", factors), ("gradients", back)):
        large, small = found["fan-in, ReLU"].within(2), found["fan-out, tanh"].within(high=0.5)
        c.decide(f"fan-in, ReLU: {what} are more than twice as large with each hidden layer", large)
        c.decide(f"fan-out, tanh: {what} are less than half as large with each hidden layer", small)
    at_once = "fan-in, tanh: activations are more than twice the classical net's right at the beginning"
    c.decide(at_once, first.within(2))
    c.headline = f"{factors['fan-in, ReLU'].format()} times a layer: fan-in, ReLU"
    if factors["fan-in, tanh"].within(high=2) and first.within(2):
        c.remark = (
            "Exponential growth is what the paper derives for linear nets, and ReLU shows it. Under tanh, fan-in "
            "explodes at once and no further: every layer reads saturated values of ±1, so all are too large by about "
            "the same factor."
        )


def _keeps_scale(c: Claim, e: "MnistResults") -> None:
    for init in HYPERFANS:
        ratios = [_beside(e, init, CLASSICAL, layer) for layer in range(6)]
        for layer, beside in enumerate(ratios, 1):
            c.measure(f"{init}: layer {layer} over the classical net's", beside)
        *inside, output = (beside.within(0.5, 2) for beside in ratios)
        c.decide(f"{init}: hidden layers are between half and twice the classical net's", all_of(inside))
        c.decide(f"{init}: so is the output layer", output)
    c.headline = f"{_beside(e, 'hyperfan-in', CLASSICAL, 4).format()} of the classical net's, layer 5"
    found = e.need_each((CLASSICAL, BASELINE, *HYPERFANS))
    measured_too = [] if any(r.diverged for r in found[BASELINE]) else [BASELINE]
    for init in (*HYPERFANS, *measured_too):
        each = [_weights_beside(found[init], found[CLASSICAL], layer) for layer in range(6)]
        for layer, beside in enumerate(each, 1):
            c.measure(f"{init}: deviation of trained weights over the classical net's, layer {layer}", beside)
        if init in HYPERFANS:
            alike = all_of(beside.within(0.5, 2) for beside in each[:5])
            c.decide(f"{init}: trained weights are between half and twice the classical net's in hidden layers", alike)
    if output is False:  # of hyperfan-out, the last
        c.remark = "Hyperfan-out keeps gradients; where a layer narrows, from 500 to 10, activations grow for it."


def _relu(c: Claim, e: "MnistResults") -> None:
    both = list(zip(e.starts(init=BASELINE), e.starts(init="kaiming-fan-in", activation="relu"), strict=True))
    ratios = [Estimate.ratio([relu.activations[i] / tanh.activations[i] for tanh, relu in both]) for i in range(6)]
    for layer, larger in enumerate(ratios, 1):
        c.measure(f"layer {layer}: ReLU over tanh", larger)
    c.decide("activations are larger in every layer", all_of(larger.within(1) for larger in ratios))
    c.headline = f"{ratios[4].format()} times tanh's, layer 5"


def _flow(c: Claim, e: "MnistResults") -> None:
    for init in HYPERFANS:
        right, shrink = [], []
        for label, layers, d_j, d_i in (
            ("first layer", slice(0, 1), 784, 500),
            ("layers 2 to 5", slice(1, 5), 500, 500),
            ("output layer", slice(5, 6), 500, 10),
        ):
            formula = (d_j if init == "hyperfan-out" else d_i) / e.base.embedding
            flow = Estimate.ratio([statistics.geometric_mean(s.flow[layers]) for s in e.starts(init=init)])
            if label == "layers 2 to 5":
                c.headline = f"variances' ratio {flow.format()}, by the formula {formula:g}"
            c.measure(f"{init}, {label}: Var(∂L/∂h)/Var(∂L/∂W), formula {formula:g}", flow)
            right.append(flow.within(formula / FORMULA_TOLERANCE, formula * FORMULA_TOLERANCE))
            shrink.append(flow.within(high=1))
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
    found = e.need_each((CLASSICAL, BASELINE, *HYPERFANS))
    _measure_settled(c, found)
    for init, runs in found.items():
        for of in MOVES:
            for relative, how in ((True, "relative to its size"), (False, "as plotted")):
                moves = Estimate.ratio([r.restless(of, relative) for r in runs])
                c.measure(f"{init}: movement of the {of} in {e.base.probe_every} batches, {how}", moves)
    for init in HYPERFANS:
        runs, others = found[init], found[BASELINE]
        c.decide(f"{init}: settles sooner", _settles_later(runs, others).within(high=1))
        for of, (relative, how) in itertools.product(MOVES, ((False, "as plotted"), (True, "relative to its size"))):
            label = f"{BASELINE} over {init}: movement of the {of}, {how}"
            less = c.measure(label, _moves_more(others, runs, of, relative))
            c.decide(f"{init}: the {of} moves less after the first third, {how}", less.within(1))
            if not c.headline:
                c.headline = f"Xavier's {of} moves {less.format()} times as far"
    c.remark = "The paper's figures show movement as it is; both readings are tested."
    larger = _weights_beside(found[BASELINE], found["hyperfan-in"], 2)
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
        c.decide(f"{init}: lower training loss in the last epoch than {BASELINE}", loss.within(high=1))
        c.decide(f"{init}: higher accuracy after one epoch", _gain(found[init], found[BASELINE], 1).within(0))
    c.headline = f"{_accuracy(found['hyperfan-in']).format('.1%')} right, "
    c.headline += f"Xavier {_accuracy(found[BASELINE]).format('.1%')}"
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    torchs = e.need_each(["xavier-harmonic"], epochs=epochs)["xavier-harmonic"]
    both = c.measure(f"torch's xavier, both fans: accuracy after {epochs} epochs", _accuracy(torchs, epochs), ".2%")
    if both.within(TRAINED_ACCURACY):
        c.remark = (
            f"The paper's baseline is Xavier with fan-in. Torch's own, of both fans, has {both.format('.1%')} right "
            f"after {epochs} epochs: not every classical init fails."
        )


def _biases(c: Claim, e: "MnistResults") -> None:
    inits = (*HYPERFANS, BASELINE)
    weights, both = e.need_each(inits), e.need_each(inits, generate="weights+biases")
    _measure_settled(c, weights)
    _measure_settled(c, both, ", weights and biases")
    for init, runs in both.items():
        c.measure(f"{init}, weights and biases: accuracy at the end", _accuracy(runs), ".2%")
    for init in HYPERFANS:
        c.decide(f"{init}: settles later than with weights alone", _settles_later(both[init], weights[init]).within(1))
        later = _settles_later(both[init], both[BASELINE])
        c.decide(f"{init}: settles sooner than {BASELINE}", later.within(high=1))
        c.headline = c.headline or f"settles after {later.format()} times Xavier's batches"


def _means(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    full = {init: e.after(epochs, init=init) for init in HYPERFANS}
    for init, runs in full.items():
        c.measure(f"{init}: accuracy after {epochs} epochs", _accuracy(runs, epochs), ".2%")
    gains = {}
    for init in MEANS:
        runs = e.after(epochs, init=init)
        c.measure(f"{init}: accuracy after {epochs} epochs", _accuracy(runs, epochs), ".2%")
        above = {other: _gain(runs, full[other], epochs) for other in HYPERFANS}
        for other, gain in above.items():
            c.measure(f"{init} above {other}", gain, ".4f")
        no_better = any_of(_no_better(gain) for gain in above.values())
        c.decide(f"{init}: less than {ACCURACY_MARGIN:.1%} better than one of both", no_better)
        gains[init] = min(above.items(), key=lambda item: item[1].value)
    best = max(gains, key=lambda init: gains[init][1].value)
    c.headline = f"best mean above {gains[best][0]}: {_points(gains[best][1])}"


def _sharing(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    for init in HYPERFANS:
        gain = _gain(e.after(epochs, init=init, heads="separate"), e.after(epochs, init=init), epochs)
        c.measure(f"{init}: accuracy after {epochs} epochs, separate above shared", gain, ".4f")
        c.decide(f"{init}: separate heads are less than {ACCURACY_MARGIN:.1%} better", _no_better(gain))
        c.headline = c.headline or f"separate above shared: {_points(gain)}"


def _adam(c: Claim, e: "MnistResults") -> None:
    batches = min(e.base.total, ADAM_BATCHES)
    good = e.need_each(["hyperfan-in"], batches=batches)["hyperfan-in"]
    rate = good[0].config.rate
    c.measure(f"hyperfan-in, SGD {rate:g}: accuracy after {batches} batches", _accuracy(good), ".2%")
    best = {}
    for optimiser, rates in (("sgd", SGD_RATES), ("adam", ADAM_RATES)):
        tried = [e.need_each([BASELINE], batches=batches, lr=lr, optimiser=optimiser)[BASELINE] for lr in rates]
        for lr, runs in zip(rates, tried, strict=True):
            c.measure(f"{BASELINE}, {OPTIMISER_NAMES[optimiser]} {lr:g}: accuracy", _accuracy(runs), ".2%")
        best[optimiser] = max(tried, key=lambda runs: _accuracy(runs).value)
    trained = f"more than {TRAINED_ACCURACY:.0%} right after {batches} batches"
    c.decide(f"hyperfan-in trains with SGD: {trained}", _accuracy(good).within(TRAINED_ACCURACY))
    stays = _accuracy(best["sgd"]).within(high=TRAINED_ACCURACY)
    c.decide(f"{BASELINE} does not with SGD, at its best rate", stays)
    c.decide("with Adam, at its best rate, it does", _accuracy(best["adam"]).within(TRAINED_ACCURACY))
    c.headline = f"{_accuracy(good).format('.0%')} right, Xavier with Adam {_accuracy(best['adam']).format('.0%')}"
    c.remark = f"A net trains if it has {trained}, a bound that was chosen after earlier runs had been seen."
    least, most = _accuracy(good).low, max(_accuracy(runs).high or 1.0 for runs in best.values())
    if least is not None and most < TRAINED_ACCURACY < least:
        c.remark += f" Any between {most:.0%} and {least:.0%} would decide the same."


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _no_better(gain: Estimate) -> Fact:
    """Whether a gain in accuracy is too small to mind; it is not if it is certainly there."""
    return gain.is_below(ACCURACY_MARGIN, refuted_above=0)


def _points(gain: Estimate) -> str:
    """A gain in accuracy in points of a percent, which may be negative."""
    low, high = (None if end is None else 100 * end for end in (gain.low, gain.high))
    return f"{Estimate(100 * gain.value, gain.n, low, high).format('.2f')} points"


def _beside(e: "MnistResults", init: str, other: str, layer: int) -> Estimate:
    """One init's activations over another's in a layer, seed by seed."""
    both = zip(e.starts(init=init), e.starts(init=other), strict=True)
    return Estimate.ratio([a.activations[layer] / b.activations[layer] for a, b in both])


def _weights_beside(runs: Sequence["MnistRun"], others: Sequence["MnistRun"], layer: int) -> Estimate:
    """The deviation of a layer's weights at the end over that of others, seed by seed."""
    return ratio(runs, others, lambda r: r.weight_deviation(layer))


def _moves_more(
    runs: Sequence["MnistRun"], others: Sequence["MnistRun"], of: Literal["mean", "deviation"], relative: bool
) -> Estimate:
    return ratio(runs, others, lambda r: r.restless(of, relative))


def _measure_settled(c: Claim, found: dict[str, list["MnistRun"]], what: str = "") -> None:
    for init, runs in found.items():
        label = f"{init}{what}: batches until the deviation stays within {SETTLED_WITHIN:.0%} of its final value"
        c.measure(label, Estimate.ratio([r.settled() for r in runs]), ".0f")


def _settles_later(runs: Sequence["MnistRun"], others: Sequence["MnistRun"]) -> Estimate:
    return ratio(runs, others, lambda r: r.settled())


def _accuracy(runs: Sequence["MnistRun"], epoch: int | None = None) -> Estimate:
    return mean(runs, lambda r: r.accuracy(epoch))


def _gain(runs: Sequence["MnistRun"], others: Sequence["MnistRun"], epoch: int | None = None) -> Estimate:
    """Accuracy above that of others, paired by seed."""
    return difference(runs, others, lambda r: r.accuracy(epoch))


CLAIMS: Claims = {
    "C1": (
        "classical init explodes or vanishes",
        "classical init on a hypernet explodes (fan-in) or vanishes (fan-out) activations and gradients: exponentially "
        "in depth in linear nets, right at the beginning on MNIST",
        _explodes,
    ),
    "C2": (
        "hyperfan keeps a classical net's scale",
        "hyperfan keeps activations, and weights after training, at the scale of a classical net",
        _keeps_scale,
    ),
    "C3": (
        "hyperfan's weights settle quickly",
        "hyperfan's generated weights settle quickly, Xavier's stay unstable",
        _settles,
    ),
    "C4": ("hyperfan learns faster, to a lower loss", "lower training loss and faster convergence", _learns),
    "C5": ("with ReLU the explosion is bigger", "with ReLU and Kaiming init the explosion is bigger", _relu),
    "C6": (
        "with generated biases it settles later",
        "with generated biases hyperfan takes longer to settle, still less than Xavier",
        _biases,
    ),
    "C12": ("no mean of in and out is better", "no mean of hyperfan-in and hyperfan-out is better than both", _means),
    "C13": ("sharing a head does no harm", "sharing a head does no harm", _sharing),
    "C14": (
        "gradients shrink into the hypernet",
        "gradients shrink from mainnet to hypernet, by the factor d_j/(d_k·Var(e)) under hyperfan-out "
        "(and d_i in place of d_j under hyperfan-in)",
        _flow,
    ),
    "C15": ("MNIST: SGD does, others need Adam", "plain SGD suffices with hyperfan where bad inits need Adam", _adam),
}
