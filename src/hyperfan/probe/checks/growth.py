"""The checks for activations and gradients that explode or vanish from layer to layer."""

import math
from collections.abc import Iterator, Sequence

from hyperfan.probe.checks.mainnet import inputs_on_scale
from hyperfan.probe.checks.remedies import restart_heads
from hyperfan.probe.checks.tensors import off_target
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.findings import Finding, FindingName, Severity
from hyperfan.probe.moments import REACH_99_TO_95, Scale
from hyperfan.probe.trends import SIGNALS
from hyperfan.text import times

MAX_RATIO_TO_PREDICTION = 10.0
"""Mean square over its prediction, beyond which a layer explodes or vanishes."""
MAX_RATIO_TO_TARGET = 100.0
"""Mean square over its target, for what the prediction shares: the fault is then in the net itself."""
MAX_RATIO_AT_TARGET = 2.0
"""Mean square over its target, up to which a layer is where it should be."""
MAX_BACKWARD_GROWTH = 1e4
"""Squared norm of the first layer's gradient over that of the last's."""
MAX_BACKWARD_GROWTH_PER_LAYER = 2.0
"""Growth of that squared norm from each layer to the one before it. Batch norm alone makes up to 1.5."""


def deviation_from_prediction(e: Evidence) -> Iterator[Finding]:
    """Find layers far from what plain nets do."""
    for of in SIGNALS:
        pairs, backward = [(r.layer, *r.scales(of)) for r in e.readings.layers], of == "gradients"
        compared = [(layer, m, p) for layer, m, p in pairs if m and p and _finite(m) and _finite(p)]
        off = {layer: m.value / p.value for layer, m, p in compared if _apart(m, p)}
        if not off or (backward and _only_twins_off(e)):
            continue
        worst = max(off, key=lambda layer: abs(math.log(off[layer])))
        ratio = math.sqrt(off[worst])
        cause = (
            "the generated weights have their target variance, so they are correlated (equal codes, one chunk many "
            "times over), or biases and norms add to them"
        )
        if off_target(e):
            cause = "the generated weights are of the wrong scale, see above"
        elif _adds_up(e, ratio):
            cause = "each generated weight is a little off its target, and from layer to layer that adds up"
        seen = f"in '{worst}' they are {times(ratio)} those of a plain net at the target scale"
        seen += _per_layer([math.log(m.value / p.value) / 2 for _, m, p in compared], backward)
        severity: Severity = "warning" if _within(ratio, MAX_RATIO_TO_TARGET) else "error"
        remedy = restart_heads(e, [t.tensor for t in e.readings.tensors if t.role == "weight"])
        yield Finding(_name(ratio, backward), severity, tuple(off), seen, cause, remedy)


def deviation_from_target(e: Evidence) -> Iterator[Finding]:
    """Find layers far from their target as in plain nets, so that the fault is not in the generated weights."""
    layers = e.readings.layers
    off = {
        r.layer: r.measured.value / r.target
        for r in layers
        if r.target and r.predicted and not _within(r.predicted.value / r.target, MAX_RATIO_TO_TARGET)
    }
    off = {layer: ratio for layer, ratio in off.items() if ratio and not _within(ratio, MAX_RATIO_TO_TARGET)}
    if off and (e.input_scale is None or inputs_on_scale(e.input_scale)):
        last, ratio = next(reversed(off.items()))
        seen = f"in '{last}' they are {times(math.sqrt(ratio))} their target, as in a plain net of the same variances"
        cause = "the analysis does not fit this net: sums, products or layers that it cannot see change the scale"
        remedy = "hyperfan.calibrate_(net, x), which corrects each layer by what it measures"
        if e.subject.net is None:
            remedy = "scale each layer by what it puts out on data; hyperfan.calibrate_ does so for a HyperNet"
        yield Finding(_name(ratio, backward=False), "warning", tuple(off), seen, cause, remedy)
    if e.subject.net is not None and e.subject.net.heads.config.updates_base:
        return  # and the gradients of a base are no matter of an init
    growths = [e.measured.backward_growth, *(t.backward_growth for t in e.twins)]
    per_layer = math.log(MAX_BACKWARD_GROWTH_PER_LAYER) * (len(e.measured.gradients) - 1)
    steep = max(math.log(MAX_BACKWARD_GROWTH), per_layer)
    if len(layers) > 2 and all(g and abs(math.log(g)) > steep for g in growths):
        first, become = layers[0].layer, f"they become {times(math.sqrt(growths[0]))} what they were"
        seen = f"from '{layers[-1].layer}' back to '{first}' {become}, as in a plain net with the same variances"
        cause = "the nonlinearity's slope does not go with its scale, or the net narrows or widens a lot"
        remedy = "HyperNet(…, init='hyperfan-out'), which keeps gradients; or residual connections, or norms"
        if growths[0] < 1 and "sigmoid" in {i.function for i in e.measured.recording.nonlinearity_inputs}:
            cause = "a sigmoid passes on a quarter of a gradient at most, and all it puts out is positive"
            remedy = "another nonlinearity, such as nn.Tanh or nn.ReLU; no init and no norm makes up for a sigmoid"
        yield Finding(_name(growths[0], backward=True), "warning", (first,), seen, cause, remedy)


def _only_twins_off(e: Evidence) -> bool:
    """Whether the net is at its targets in all layers, and plain nets with its variances are not.

    As after a calibration that made up for chance, where few units or positions that are alike decide a scale: what
    plain nets of such variances put out is off, with it the gradient of their loss, and all gradients before it.
    """
    layers = [r for r in e.readings.layers if r.target and r.predicted]

    def near(found: Scale | None, target: float | None) -> bool:
        if found is None or not found.value or not target:
            return False
        return _within(found.value / target, MAX_RATIO_AT_TARGET)

    return all(near(r.measured, r.target) for r in layers) and not all(near(r.predicted, r.target) for r in layers)


def _name(ratio: float, backward: bool) -> FindingName:
    return FindingName(f"{'exploding' if ratio > 1 else 'vanishing'} {'gradients' if backward else 'activations'}")


def _adds_up(e: Evidence, ratio: float) -> bool:
    """Whether the weights' deviations, multiplied, make up at least half of a ratio, in logarithms."""
    logs = [math.log(t.ratio) for t in e.readings.tensors if t.role == "weight" and t.ratio]
    return sum(logs) / 2 * math.copysign(1, math.log(ratio)) > abs(math.log(ratio)) / 2


def _within(ratio: float, factor: float) -> bool:
    """Whether a ratio is at most a factor away from 1."""
    return 1 / factor <= ratio <= factor


def _finite(scale: Scale) -> bool:
    return 0 < scale.value < math.inf


def _apart(measured: Scale, predicted: Scale) -> bool:
    """Whether two scales are further apart than the threshold, and than the intervals allow."""
    reach = math.log(predicted.high / predicted.value) if predicted.high < math.inf else math.inf
    predicted = predicted.widened(reach * (REACH_99_TO_95 - 1))
    overlap = measured.low <= predicted.high and predicted.low <= measured.high
    return not overlap and not _within(measured.value / predicted.value, MAX_RATIO_TO_PREDICTION)


def _per_layer(logs: Sequence[float], backward: bool) -> str:
    """The factor from layer to layer, in words, from the logarithms of each layer's ratio to its prediction."""
    if len(logs) < 3:
        return ""
    factor = math.exp((logs[-1] - logs[0]) / (len(logs) - 1) * (-1 if backward else 1))
    direction = "backward" if backward else "forward"
    return "" if _within(factor, 1.05) else f", a factor of {factor:.3g} per layer on the way {direction}"
