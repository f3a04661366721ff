"""The paper's claims about MNIST that untrained nets decide, or that compare trained nets with how they started."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperfan.charts.scale import Signal
from hyperfan.experiments.experiment import CLASSICAL, HYPERFANS
from hyperfan.experiments.results.claims import Claim, all_of
from hyperfan.experiments.results.runs import ratio
from hyperfan.experiments.results.statistics import Estimate, growth
from hyperfan.probe.trends import SIGNALS

if TYPE_CHECKING:
    from hyperfan.experiments.mnist.results import MnistResults, MnistRun

BASELINE = "xavier-fan-in"
FORMULA_TOLERANCE = 1.5
"""A factor within which a measured variance agrees with a formula."""
MIDDLE = "layers 2 to 5"
FLOWS = (
    ("first layer", slice(0, 1), 784, 500),
    (MIDDLE, slice(1, 5), 500, 500),
    ("output layer", slice(5, 6), 500, 10),
)
"""Layers between which a gradient's step into the hypernet is alike, with their d_j and d_i."""


def explodes(c: Claim, e: "MnistResults") -> None:
    """Decide C1, whether classical init explodes or vanishes."""
    factors, back = {}, {}
    for label, init, activation in (
        ("fan-in, linear", BASELINE, "linear"),
        ("fan-out, linear", "xavier-fan-out", "linear"),
        ("classical net, linear", CLASSICAL, "linear"),
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
    beside: dict[Signal, list[Estimate]] = {}
    for signal in SIGNALS:
        beside[signal] = [_beside(e, BASELINE, CLASSICAL, layer, signal) for layer in range(5)]
        for layer, larger in enumerate(beside[signal], 1):
            c.measure(f"fan-in, tanh: {signal} of layer {layer} over the classical net's", larger)
    for what, found in (("activations", factors), ("gradients", back)):
        large, small = found["fan-in, linear"].within(2), found["fan-out, linear"].within(high=0.5)
        c.decide(f"fan-in, linear: {what} are more than twice as large with each hidden layer", large)
        c.decide(f"fan-out, linear: {what} are less than half as large with each hidden layer", small)
    for signal, each in beside.items():
        so = all_of(larger.within(2) for larger in each)
        c.decide(f"fan-in, tanh: {signal} are more than twice the classical net's right at the beginning", so)
    c.headline = f"{factors['fan-in, linear'].format()} times a layer; fan-out {factors['fan-out, linear'].format()}"
    sizes = [larger.value for larger in beside["activations"]]
    if factors["fan-in, tanh"].within(high=2) and min(sizes) > 2:
        c.remark = (
            "Exponential growth is what the paper derives for linear nets; ReLU shows it too. Under tanh, activations "
            "explode at once and no further: every layer reads saturated values of ±1, so those of the hidden layers "
            f"are {min(sizes):.0f} to {max(sizes):.0f} times the classical net's. Gradients grow from layer to layer."
        )


def keeps_scale(c: Claim, e: "MnistResults") -> None:
    """Decide C2, whether hyperfan keeps the scale of a classical net."""
    outputs = {}
    for init in HYPERFANS:
        ratios = [_beside(e, init, CLASSICAL, layer) for layer in range(6)]
        for layer, beside in enumerate(ratios, 1):
            c.measure(f"{init}: activations of layer {layer} over the classical net's", beside)
        *inside, outputs[init] = (beside.within(0.5, 2) for beside in ratios)
        c.decide(f"{init}: activations of hidden layers are between half and twice the classical net's", all_of(inside))
        c.decide(f"{init}: so are activations of the output layer", outputs[init])
        back = [_beside(e, init, CLASSICAL, layer, "gradients") for layer in range(5)]
        for layer, beside in enumerate(back, 1):
            c.measure(f"{init}: gradients of layer {layer} over the classical net's", beside)
        alike = all_of(beside.within(0.5, 2) for beside in back)
        c.decide(f"{init}: gradients of hidden layers are between half and twice the classical net's", alike)
    c.headline = f"{_beside(e, HYPERFANS[0], CLASSICAL, 4).format()} times in layer 5"
    c.headline += f"; hyperfan-out's outputs {_beside(e, HYPERFANS[1], CLASSICAL, 5).value:.3g}"
    found = e.need_each((CLASSICAL, BASELINE, *HYPERFANS))
    measured_too = [] if any(r.diverged for r in found[BASELINE]) else [BASELINE]
    for init in (*HYPERFANS, *measured_too):
        each = [weights_beside(found[init], found[CLASSICAL], layer) for layer in range(6)]
        for layer, beside in enumerate(each, 1):
            c.measure(f"{init}: deviation of trained weights over the classical net's, layer {layer}", beside)
        if init in HYPERFANS:
            alike = all_of(beside.within(0.5, 2) for beside in each[:5])
            c.decide(f"{init}: trained weights are between half and twice the classical net's in hidden layers", alike)
            c.decide(f"{init}: so are trained weights of the output layer", each[5].within(0.5, 2))
    if outputs["hyperfan-out"] is False:
        c.remark = (
            "From the 10 outputs back to 500 units hyperfan-out keeps gradients, where Xavier init and hyperfan-in "
            "shrink them: so its last weights and outputs are larger than the classical net's, and its gradients in "
            "all layers."
        )


def relu(c: Claim, e: "MnistResults") -> None:
    """Decide C5, whether activations are larger with ReLU."""
    both = list(zip(e.starts(init=BASELINE), e.starts(init="kaiming-fan-in", activation="relu"), strict=True))
    ratios = [Estimate.ratio([relu.activations[i] / tanh.activations[i] for tanh, relu in both]) for i in range(6)]
    for layer, larger in enumerate(ratios, 1):
        c.measure(f"layer {layer}: ReLU over tanh", larger)
    # In the first layer they are √2 times as large whatever happens, by the gain of its init.
    c.decide("activations are larger in every layer after the first", all_of(larger.within(1) for larger in ratios[1:]))
    c.headline = f"{ratios[4].format()} times tanh's, layer 5"


def flow(c: Claim, e: "MnistResults") -> None:
    """Decide C14, whether gradients shrink from mainnet to hypernet, and by the formula."""
    right_at_output, shrinks = {}, {}
    for init in HYPERFANS:
        right, shrink = [], []
        for label, layers, d_j, d_i in FLOWS:
            formula = (d_j if init == "hyperfan-out" else d_i) / e.base.embedding
            flow = Estimate.ratio([statistics.geometric_mean(s.flow[layers]) for s in e.starts(init=init)])
            if label == MIDDLE:
                c.headline = f"{label}: {flow.format()}, by the formula {formula:g}"
            c.measure(f"{init}, {label}: Var(∂L/∂h)/Var(∂L/∂W), formula {formula:g}", flow)
            right.append(flow.within(formula / FORMULA_TOLERANCE, formula * FORMULA_TOLERANCE))
            shrink.append(flow.within(high=1))
        label = f"{init}: the formula is right within a factor of {FORMULA_TOLERANCE:g} in hidden layers"
        c.decide(label, all_of(right[:2]))
        right_at_output[init] = c.decide(f"{init}: the formula is right in the output layer", right[2])
        shrinks[init] = c.decide(f"{init}: gradients shrink", all_of(shrink))
    if shrinks["hyperfan-out"] is False:
        wide, codes = max(d_j for _, _, d_j, _ in FLOWS[1:]), e.base.embedding
        c.remark = (
            "Gradients shrink only where the embedding is wider than the layer. At the paper's own sizes, "
            f"{wide} and {codes}, its formula says that the variance grows {wide / codes:g} times."
        )
    if off := [init for init, right in right_at_output.items() if right is False]:
        c.remark += (
            f" In the output layer it is not right under {' nor '.join(off)}: it takes gradients to be independent of "
            "weights, which they are not there, the larger the logits, the less."
        )


def _beside(e: "MnistResults", init: str, other: str, layer: int, signal: Signal = "activations") -> Estimate:
    """One init's activations or gradients over another's in a layer, seed by seed."""
    both = zip(e.starts(init=init), e.starts(init=other), strict=True)
    return Estimate.ratio([getattr(a, signal)[layer] / getattr(b, signal)[layer] for a, b in both])


def weights_beside(runs: Sequence["MnistRun"], others: Sequence["MnistRun"], layer: int) -> Estimate:
    """The deviation of a layer's weights at the end over that of others, seed by seed."""
    return ratio(runs, others, lambda r: r.weight_deviation(layer))
