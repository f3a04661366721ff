"""The paper's claims about MNIST, each taken apart into facts that an interval can decide."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.mnist import ADAM_BATCHES, ADAM_RATES, HYPERFANS, MEANS, SGD_RATES, SHORT_EPOCHS
from hyperfan.experiments.results.claims import Claim, Claims, Fact, all_of
from hyperfan.experiments.results.runs import difference, mean, ratio
from hyperfan.experiments.results.statistics import Estimate, growth

if TYPE_CHECKING:
    from hyperfan.experiments.mnist.results import MnistResults, MnistRun

BASELINE = "xavier-fan-in"
ACCURACY_MARGIN = 0.005
"""A difference in accuracy that nobody would mind."""
FORMULA_TOLERANCE = 1.5
"""A factor within which a measured variance agrees with a formula."""
SETTLED_WITHIN = 0.01
"""Weights have settled when their standard deviation stays within so much of its final value."""
MOVES: tuple[Literal["mean", "deviation"], ...] = ("mean", "deviation")


# ── before training ────────────────────────────────────────────────────────────────────────────────────────────────


def _explodes(c: Claim, e: "MnistResults") -> None:
    factors = {}
    for label, init, activation in (
        ("fan-in, ReLU", "kaiming-fan-in", "relu"),
        ("fan-in, tanh", BASELINE, "tanh"),
        ("fan-out, tanh", "xavier-fan-out", "tanh"),
        ("torch's xavier (both fans), tanh", "xavier-harmonic", "tanh"),
        ("classical net, tanh", CLASSICAL, "tanh"),
    ):
        grows = Estimate.ratio([growth(s.activations[:5]) for s in e.starts(init=init, activation=activation)])
        factors[label] = c.measure(f"{label}: factor from a hidden layer to the next", grows)
    first = c.measure("fan-in, tanh: first layer over the classical net's", _beside(e, BASELINE, CLASSICAL, 0))
    for label in ("fan-in, ReLU", "fan-in, tanh"):
        c.decide(f"{label}: each hidden layer is more than twice the one before", factors[label].within(2))
    c.decide("fan-out: each hidden layer is less than half the one before", factors["fan-out, tanh"].within(high=0.5))
    if factors["fan-in, tanh"].within(high=2) and first.within(2):
        c.remark = (
            "Under tanh, fan-in explodes at once and no further: every layer reads saturated values of ±1, so all "
            "are too large by about the same factor."
        )


def _keeps_scale(c: Claim, e: "MnistResults") -> None:
    for init in HYPERFANS:
        ratios = [_beside(e, init, CLASSICAL, layer) for layer in range(6)]
        for layer, beside in enumerate(ratios, 1):
            c.measure(f"{init}: layer {layer} over the classical net's", beside)
        *inside, output = (beside.within(0.5, 2) for beside in ratios)
        c.decide(f"{init}: hidden layers are between half and twice the classical net's", all_of(inside))
        c.decide(f"{init}: so is the output layer", output)
    if output is False:  # of hyperfan-out, the last
        c.remark = "Hyperfan-out keeps gradients; where a layer narrows, from 500 to 10, activations grow for it."


def _relu(c: Claim, e: "MnistResults") -> None:
    both = list(zip(e.starts(init=BASELINE), e.starts(init="kaiming-fan-in", activation="relu"), strict=True))
    ratios = [Estimate.ratio([relu.activations[i] / tanh.activations[i] for tanh, relu in both]) for i in range(6)]
    for layer, larger in enumerate(ratios, 1):
        c.measure(f"layer {layer}: ReLU over tanh", larger)
    c.decide("activations are larger in every layer", all_of(larger.within(1) for larger in ratios))


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
            for relative, how in ((True, "relative"), (False, "as it is")):
                moves = Estimate.of([r.restless(of, relative) for r in runs])
                c.measure(f"{init}: movement of the {of} in 1000 batches, {how}", moves)
    larger = []
    for init in HYPERFANS:
        runs, others = found[init], found[BASELINE]
        c.decide(f"{init}: settles sooner", _settles_later(runs, others).within(high=0))
        for of in MOVES:
            less = _moves_less(runs, others, of, relative=True)
            c.decide(f"{init}: the {of} moves less after the first third, relative to its size", less)
            larger.append(_moves_less(runs, others, of, relative=False))
    if all_of(larger) and not all_of(c.facts.values()):
        c.remark = "As they are, Xavier's weights do move more, since they are larger; the paper's figure shows that."


def _learns(c: Claim, e: "MnistResults") -> None:
    found = e.need_each((CLASSICAL, BASELINE, *HYPERFANS))
    for init, runs in found.items():
        c.measure(f"{init}: accuracy after one epoch", _accuracy(runs, 1), ".4f")
        c.measure(f"{init}: accuracy at the end", _accuracy(runs), ".4f")
        c.measure(f"{init}: training loss in the last epoch", Estimate.ratio([r.training_loss() for r in runs]))
    for init in HYPERFANS:
        loss = ratio(found[init], found[BASELINE], lambda r: r.training_loss())
        c.decide(f"{init}: lower training loss in the last epoch than {BASELINE}", loss.within(high=1))
        c.decide(f"{init}: higher accuracy after one epoch", _gain(found[init], found[BASELINE], 1).within(0))


def _biases(c: Claim, e: "MnistResults") -> None:
    inits = (*HYPERFANS, BASELINE)
    weights, both = e.need_each(inits), e.need_each(inits, generate="weights+biases")
    _measure_settled(c, weights)
    _measure_settled(c, both, ", weights and biases")
    for init, runs in both.items():
        c.measure(f"{init}, weights and biases: accuracy at the end", _accuracy(runs), ".4f")
    for init in HYPERFANS:
        c.decide(f"{init}: settles later than with weights alone", _settles_later(both[init], weights[init]).within(0))
        sooner = _settles_later(both[init], both[BASELINE]).within(high=0)
        c.decide(f"{init}: settles sooner than {BASELINE}", sooner)


def _means(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    full = e.need_each(HYPERFANS)
    for init, runs in full.items():
        c.measure(f"{init}: accuracy after {epochs} epochs", _accuracy(runs, epochs), ".4f")
    best: dict[int, float] = {}
    for run in (run for runs in full.values() for run in runs):
        best[run.config.seed] = max(best.get(run.config.seed, 0), run.accuracy(epochs))
    for init, runs in e.need_each(MEANS, epochs=epochs).items():
        c.measure(f"{init}: accuracy", _accuracy(runs, epochs), ".4f")
        gain = Estimate.of([r.accuracy(epochs) - best[r.config.seed] for r in runs if r.config.seed in best])
        c.measure(f"{init} above the better of both", gain, ".4f")
        c.decide(f"{init}: less than {ACCURACY_MARGIN:.1%} better", _no_better(gain))


def _sharing(c: Claim, e: "MnistResults") -> None:
    epochs = min(e.base.epochs, SHORT_EPOCHS)
    shared, separate = e.need_each(HYPERFANS), e.need_each(HYPERFANS, heads="separate", epochs=epochs)
    for init in HYPERFANS:
        gain = _gain(separate[init], shared[init], epochs)
        c.measure(f"{init}: accuracy after {epochs} epochs, separate above shared", gain, ".4f")
        c.decide(f"{init}: separate heads are less than {ACCURACY_MARGIN:.1%} better", _no_better(gain))


def _adam(c: Claim, e: "MnistResults") -> None:
    batches = min(e.base.total, ADAM_BATCHES)
    good = e.need_each(["hyperfan-in"], batches=batches)["hyperfan-in"]
    rate = good[0].config.rate
    c.measure(f"hyperfan-in, SGD {rate:g}: accuracy after {batches} batches", _accuracy(good), ".4f")
    best = {}
    for optimiser, rates in (("sgd", SGD_RATES), ("adam", ADAM_RATES)):
        tried = [e.need_each([BASELINE], batches=batches, lr=lr, optimiser=optimiser)[BASELINE] for lr in rates]
        for lr, runs in zip(rates, tried, strict=True):
            c.measure(f"{BASELINE}, {optimiser.upper()} {lr:g}: accuracy", _accuracy(runs), ".4f")
        best[optimiser] = max(tried, key=lambda runs: _accuracy(runs).value)
    worse = _gain(good, best["sgd"]).within(0)
    c.decide(f"{BASELINE} with SGD, at its best rate, is worse than hyperfan-in with SGD", worse)
    c.decide("Adam at its best rate makes it better", _gain(best["adam"], best["sgd"]).within(0))
    c.decide("hyperfan-in with SGD is no worse than that", _no_better(_gain(best["adam"], good)))


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _no_better(gain: Estimate) -> Fact:
    """Whether a gain in accuracy is too small to mind; it is not if it is certainly there."""
    if gain.low is None or gain.high is None:
        return None
    return True if gain.high < ACCURACY_MARGIN else False if gain.low > 0 else None


def _beside(e: "MnistResults", init: str, other: str, layer: int) -> Estimate:
    """One init's activations over another's in a layer, seed by seed."""
    both = zip(e.starts(init=init), e.starts(init=other), strict=True)
    return Estimate.ratio([a.activations[layer] / b.activations[layer] for a, b in both])


def _measure_settled(c: Claim, found: dict[str, list["MnistRun"]], what: str = "") -> None:
    for init, runs in found.items():
        label = f"{init}{what}: batches until the deviation stays within {SETTLED_WITHIN:.0%} of its final value"
        c.measure(label, mean(runs, lambda r: r.settled()), ".0f")


def _settles_later(runs: Sequence["MnistRun"], others: Sequence["MnistRun"]) -> Estimate:
    return difference(runs, others, lambda r: r.settled())


def _moves_less(
    runs: Sequence["MnistRun"], others: Sequence["MnistRun"], of: Literal["mean", "deviation"], relative: bool
) -> Fact:
    return ratio(runs, others, lambda r: r.restless(of, relative)).within(high=1)


def _accuracy(runs: Sequence["MnistRun"], epoch: int | None = None) -> Estimate:
    return mean(runs, lambda r: r.accuracy(epoch))


def _gain(runs: Sequence["MnistRun"], others: Sequence["MnistRun"], epoch: int | None = None) -> Estimate:
    """Accuracy above that of others, paired by seed."""
    return difference(runs, others, lambda r: r.accuracy(epoch))


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
        "gradients shrink from mainnet to hypernet, by the factor d_j/(d_k·Var(e)) under hyperfan-out "
        "(and d_i in place of d_j under hyperfan-in)",
        _flow,
    ),
    "C15": ("plain SGD suffices with hyperfan where bad inits need Adam", _adam),
}
