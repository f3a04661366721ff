"""The paper's claims about MNIST, each taken apart into facts that an interval can decide."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from hyperfan.experiments.claims import Claim, Fact, all_of, decide_all, within
from hyperfan.experiments.mnist.config import (
    ADAM_RATES,
    FEW,
    SEEDS,
    SGD_RATES,
    SHORT,
    Mnist,
)
from hyperfan.experiments.mnist.runs import SETTLED, Run, Runs
from hyperfan.experiments.mnist.starts import Start
from hyperfan.experiments.runs import pairs
from hyperfan.experiments.settings import CLASSICAL
from hyperfan.experiments.statistics import Estimate, growth

Starts = Callable[[Mnist], Sequence[Start]]

HYPERFANS = ("hyperfan-in", "hyperfan-out")
MEANS = ("hyperfan-harmonic", "hyperfan-geometric", "hyperfan-arithmetic")
BAD = "xavier-fan-in"
MARGIN = 0.005
"""A difference in accuracy that nobody would mind."""
NEAR = 1.5
"""A factor within which a measured variance counts as what a formula says."""


def decide(runs: Runs, starts: Starts, base: Mnist) -> list[Claim]:
    """All claims, from finished runs and from starts."""
    return decide_all(CLAIMS, runs, starts, base)


# ── before training ────────────────────────────────────────────────────────────────────────────────────────────────


def _explodes(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:

    def grows(label: str, init: str, activation: Literal["tanh", "relu"]) -> Estimate:
        found = starts(replace(base, init=init, activation=activation))
        factors = [growth(s.activations[:5]) for s in found]
        return c.measure(f"{label}: factor from a hidden layer to the next", Estimate.ratio(factors))

    relu, tanh = grows("fan-in, ReLU", "kaiming-fan-in", "relu"), grows("fan-in, tanh", BAD, "tanh")
    out = grows("fan-out, tanh", "xavier-fan-out", "tanh")
    grows("torch's xavier (both fans), tanh", "xavier-harmonic", "tanh")
    grows("classical net, tanh", CLASSICAL, "tanh")
    first = c.measure("fan-in, tanh: first layer over the classical net's", _beside(starts, base, BAD, CLASSICAL, 0))
    c.facts = {
        "fan-in, ReLU: each hidden layer is more than twice the one before": within(relu, 2, math.inf),
        "fan-in, tanh: each hidden layer is more than twice the one before": within(tanh, 2, math.inf),
        "fan-out: each hidden layer is less than half the one before": within(out, 0, 0.5),
    }
    if within(tanh, 0, 2) and within(first, 2, math.inf):
        c.remark = (
            "Under tanh, fan-in explodes at once and no further: every layer reads saturated values of ±1, so all "
            "are too large by about the same factor."
        )


def _keeps_scale(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    for init in HYPERFANS:
        inside = []
        for layer in range(6):
            ratio = _beside(starts, base, init, CLASSICAL, layer)
            c.measure(f"{init}: layer {layer + 1} over the classical net's", ratio)
            inside.append(within(ratio, 0.5, 2))
        c.facts[f"{init}: hidden layers are between half and twice the classical net's"] = all_of(inside[:5])
        c.facts[f"{init}: so is the output layer"] = inside[5]
    if c.facts["hyperfan-out: so is the output layer"] is False:
        c.remark = "Hyperfan-out keeps gradients; where a layer narrows, from 500 to 10, activations grow for it."


def _relu(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    tanh, relu = starts(replace(base, init=BAD)), starts(replace(base, init="kaiming-fan-in", activation="relu"))
    bigger = []
    for i in range(6):
        ratio = Estimate.ratio([b.activations[i] / a.activations[i] for a, b in zip(tanh, relu, strict=True)])
        bigger.append(within(c.measure(f"layer {i + 1}: ReLU over tanh", ratio), 1, math.inf))
    c.facts["activations are larger in every layer"] = all_of(bigger)


def _flow(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    for init in HYPERFANS:
        found = starts(replace(base, init=init))
        right, shrink = [], []
        for label, layers, d_j, d_i in (
            ("first layer", [0], 784, 500),
            ("layers 2 to 5", [1, 2, 3, 4], 500, 500),
            ("output layer", [5], 500, 10),
        ):
            says = (d_j if init == "hyperfan-out" else d_i) / base.embedding
            got = Estimate.ratio([_geometric([s.flow[i] for i in layers]) for s in found])
            c.measure(f"{init}, {label}: Var(∂L/∂h)/Var(∂L/∂W), formula {says:g}", got)
            right.append(within(got, says / NEAR, says * NEAR))
            shrink.append(within(got, 0, 1))
        c.facts[f"{init}: the formula is right within a factor of {NEAR:g} in hidden layers"] = all_of(right[:2])
        c.facts[f"{init}: the formula is right in the output layer"] = right[2]
        c.facts[f"{init}: gradients shrink"] = all_of(shrink)
    if c.facts["hyperfan-out: gradients shrink"] is False:
        c.remark = (
            "Gradients shrink only where the embedding is wider than the layer. At the paper's own sizes, 500 and 50, "
            "its formula says that the variance grows tenfold."
        )
    if c.facts["hyperfan-out: the formula is right in the output layer"] is False:
        c.remark += (
            " The formula takes gradients to be independent of weights, which those of the output layer are not: the "
            "larger the logits, the more."
        )


# ── training ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _settles(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    found = {init: runs.need(replace(base, init=init), SEEDS) for init in (CLASSICAL, BAD, *HYPERFANS)}
    _measure_settled(c, found)
    moves: tuple[Literal["mean", "deviation"], ...] = ("mean", "deviation")
    for init, mine in found.items():
        for of in moves:
            for relative in (True, False):
                label = f"{init}: movement of the {of} in 1000 batches, {'relative' if relative else 'as it is'}"
                c.measure(label, Estimate.of([r.restless(of, relative) for r in mine]))
    larger = []
    for init in HYPERFANS:
        both = pairs(found[init], found[BAD])
        c.facts[f"{init}: settles sooner"] = within(Estimate.of([a.settled() - b.settled() for a, b in both]), high=0)
        for of in moves:
            ratio = Estimate.ratio([a.restless(of, True) / b.restless(of, True) for a, b in both])
            c.facts[f"{init}: the {of} moves less after the first third, relative to its size"] = within(ratio, 0, 1)
            plain = Estimate.ratio([b.restless(of, False) / a.restless(of, False) for a, b in both])
            larger.append(within(plain, 1, math.inf))
    if all_of(larger) and c.verdict != "holds":
        c.remark = "As they are, Xavier's weights do move more, since they are larger; the paper's figure shows that."


def _learns(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    found = {init: runs.need(replace(base, init=init), SEEDS) for init in (CLASSICAL, BAD, *HYPERFANS)}
    for init, mine in found.items():
        c.measure(f"{init}: accuracy after one epoch", _accuracy(mine, 1), ".4f")
        c.measure(f"{init}: accuracy at the end", _accuracy(mine), ".4f")
        c.measure(f"{init}: training loss in the last epoch", Estimate.ratio([r.training_loss() for r in mine]))
    for init in HYPERFANS:
        both = pairs(found[init], found[BAD])
        loss = Estimate.ratio([a.training_loss() / b.training_loss() for a, b in both])
        c.facts[f"{init}: lower training loss in the last epoch than {BAD}"] = within(loss, 0, 1)
        c.facts[f"{init}: higher accuracy after one epoch"] = within(_gain(found[init], found[BAD], 1), 0)


def _biases(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    inits = (*HYPERFANS, BAD)
    one = {i: runs.need(replace(base, init=i), SEEDS) for i in inits}
    two = {i: runs.need(replace(base, init=i, generate="weights+biases"), SEEDS) for i in inits}
    _measure_settled(c, one)
    _measure_settled(c, two, ", weights and biases")
    for i, mine in two.items():
        c.measure(f"{i}, weights and biases: accuracy at the end", _accuracy(mine), ".4f")
    for i in HYPERFANS:
        longer = Estimate.of([a.settled() - b.settled() for a, b in pairs(two[i], one[i])])
        sooner = Estimate.of([a.settled() - b.settled() for a, b in pairs(two[i], two[BAD])])
        c.facts[f"{i}: settles later than with weights alone"] = within(longer, 0)
        c.facts[f"{i}: settles sooner than {BAD}"] = within(sooner, high=0)


def _means(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    epochs = min(base.epochs, SHORT)
    full = {init: runs.need(replace(base, init=init), SEEDS) for init in HYPERFANS}
    for init, mine in full.items():
        c.measure(f"{init}: accuracy after {epochs} epochs", _accuracy(mine, epochs), ".4f")
    for mean in MEANS:
        mine = runs.need(replace(base, init=mean, epochs=epochs), SEEDS)
        c.measure(f"{mean}: accuracy", _accuracy(mine, epochs), ".4f")
        both = zip(pairs(mine, full["hyperfan-in"]), pairs(mine, full["hyperfan-out"]), strict=True)
        gains = [a.accuracy(epochs) - max(i.accuracy(epochs), o.accuracy(epochs)) for (a, i), (_, o) in both]
        gain = c.measure(f"{mean} above the better of both", Estimate.of(gains), ".4f")
        c.facts[f"{mean}: less than {MARGIN:.1%} better"] = _no_better(gain)


def _sharing(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    epochs = min(base.epochs, SHORT)
    for init in HYPERFANS:
        shared = runs.need(replace(base, init=init), SEEDS)
        apart = runs.need(replace(base, init=init, heads="separate", epochs=epochs), SEEDS)
        gain = _gain(apart, shared, epochs)
        c.measure(f"{init}: accuracy after {epochs} epochs, separate above shared", gain, ".4f")
        c.facts[f"{init}: separate heads are less than {MARGIN:.1%} better"] = _no_better(gain)


def _adam(c: Claim, runs: Runs, starts: Starts, base: Mnist) -> None:
    few = replace(base, init="hyperfan-in", batches=min(base.total, FEW))
    good = runs.need(few, SEEDS)
    c.measure(f"hyperfan-in, SGD {few.rate:g}: accuracy after {few.total} batches", _accuracy(good), ".4f")
    best = {}
    rates: tuple[tuple[Literal["sgd", "adam"], tuple[float, ...]], ...] = (("sgd", SGD_RATES), ("adam", ADAM_RATES))
    for optimiser, tried in rates:
        found = {lr: runs.need(replace(few, init=BAD, lr=lr, optimiser=optimiser), SEEDS) for lr in tried}
        for lr, mine in found.items():
            c.measure(f"{BAD}, {optimiser.upper()} {lr:g}: accuracy", _accuracy(mine), ".4f")
        best[optimiser] = max(found.values(), key=lambda mine: _accuracy(mine).value)
    c.facts = {
        f"{BAD} with SGD, at its best rate, is worse than hyperfan-in with SGD": within(_gain(good, best["sgd"]), 0),
        "Adam at its best rate makes it better": within(_gain(best["adam"], best["sgd"]), 0),
        "hyperfan-in with SGD is no worse than that": _no_better(_gain(best["adam"], good)),
    }


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _no_better(gain: Estimate) -> Fact:
    """Whether a gain in accuracy is too small to mind; it is not if it is certainly there."""
    if gain.low is None or gain.high is None:
        return None
    return True if gain.high < MARGIN else False if gain.low > 0 else None


def _beside(starts: Starts, base: Mnist, init: str, other: str, layer: int) -> Estimate:
    """One setting's activations over another's in a layer, seed by seed."""
    both = zip(starts(replace(base, init=init)), starts(replace(base, init=other)), strict=True)
    return Estimate.ratio([a.activations[layer] / b.activations[layer] for a, b in both])


def _geometric(values: Sequence[float]) -> float:
    return Estimate.ratio(values).value


def _measure_settled(c: Claim, found: dict[str, list[Run]], what: str = "") -> None:
    for init, mine in found.items():
        label = f"{init}{what}: batches until the deviation stays within {SETTLED:.0%} of its final value"
        c.measure(label, Estimate.of([r.settled() for r in mine]), ".0f")


def _accuracy(runs: list[Run], epoch: int | None = None) -> Estimate:
    return Estimate.of([r.accuracy(epoch) for r in runs])


def _gain(mine: list[Run], theirs: list[Run], epoch: int | None = None) -> Estimate:
    """Accuracy above that of others, paired by seed."""
    return Estimate.of([a.accuracy(epoch) - b.accuracy(epoch) for a, b in pairs(mine, theirs)])


CLAIMS: dict[str, tuple[str, Callable[[Claim, Runs, Starts, Mnist], None]]] = {
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
"""Each with what it says, and what decides it."""
