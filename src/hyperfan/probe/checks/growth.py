"""The checks for activations and gradients that explode or vanish from layer to layer."""

import math
from collections.abc import Iterator, Sequence

from hyperfan.probe.checks.mainnet import inputs_on_scale
from hyperfan.probe.checks.remedies import calibrate_layers, restart_heads
from hyperfan.probe.checks.scale import off_target
from hyperfan.probe.diagnosis import Finding, FindingName, LayerReading, Scale
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.passes import backward_growth

MAX_RATIO_TO_PREDICTION = 10.0
"""Mean square over its prediction, beyond which a layer explodes or vanishes."""
MAX_RATIO_TO_TARGET = 100.0
"""Mean square over its target, for what the prediction shares: the fault is then in the net itself."""
MAX_BACKWARD_GROWTH = 1e4
"""Squared norm of the first layer's gradient over that of the last's."""
MAX_BACKWARD_GROWTH_PER_LAYER = 2.0
"""That growth from each layer to the next. Batch norm alone makes up to 1.5."""

Comparison = tuple[LayerReading, Scale, Scale]
"""A layer, what was measured of it, and what was predicted."""


def deviation_from_prediction(e: Evidence) -> Iterator[Finding]:
    """Find layers far from what plain nets do."""
    activations = [(r, r.measured, r.predicted) for r in e.readings.layers]
    gradients = [(r, r.measured_gradient, r.predicted_gradient) for r in e.readings.layers]
    for backward, pairs in ((False, activations), (True, gradients)):
        compared = [(r, m, p) for r, m, p in pairs if m is not None and p is not None and _finite(m) and _finite(p)]
        off = [each for each in compared if _apart(each[1], each[2])]
        if not off:
            continue
        r, m, p = max(off, key=lambda each: abs(math.log(each[1].value / each[2].value)))
        ratio = math.sqrt(m.value / p.value)
        if off_target(e):
            cause = "the generated weights are of the wrong scale, see above"
        elif _adds_up(e, ratio):
            cause = "each generated weight is a little off its target, and from layer to layer that adds up"
        else:
            cause = (
                "the generated weights have their target variance, so they are correlated (equal codes, one chunk "
                "many times over), or biases and norms add to them"
            )
        yield Finding(
            _name(ratio, backward),
            "warning" if _within(ratio, MAX_RATIO_TO_TARGET) else "error",
            tuple(each[0].layer for each in off),
            f"in '{r.layer}' they are {_times(ratio)} those of a plain net at the target scale"
            + _per_layer(compared, backward),
            cause,
            restart_heads(e, [t.tensor for t in e.readings.tensors if t.role == "weight"]),
        )


def deviation_from_target(e: Evidence) -> Iterator[Finding]:
    """Find layers far from their target as in plain nets, so that the fault is not in the generated weights."""
    off = [
        (r, r.measured.value / r.target)
        for r in e.readings.layers
        if r.target and r.predicted and not _within(r.predicted.value / r.target, MAX_RATIO_TO_TARGET)
    ]
    off = [(r, ratio) for r, ratio in off if ratio and not _within(ratio, MAX_RATIO_TO_TARGET)]
    if off and (e.input_scale is None or inputs_on_scale(e.input_scale)):
        last, ratio = off[-1][0], math.sqrt(off[-1][1])
        yield Finding(
            _name(ratio, backward=False),
            "warning",
            tuple(r.layer for r, _ in off),
            f"in '{last.layer}' they are {_times(ratio)} their target, as in a plain net with the same variances",
            "the analysis does not fit this net: sums, products or layers that it cannot see change the scale",
            calibrate_layers(e),
        )
    growths = [backward_growth(e.measured), *(t.backward_growth for t in e.twins)]
    per_layer = math.log(MAX_BACKWARD_GROWTH_PER_LAYER) * (len(e.measured.gradients) - 1)
    steep = max(math.log(MAX_BACKWARD_GROWTH), per_layer)
    layers = e.readings.layers
    if len(layers) > 2 and all(g and abs(math.log(g)) > steep for g in growths):
        first, last = layers[0], layers[-1]
        yield Finding(
            _name(growths[0], backward=True),
            "warning",
            (first.layer,),
            f"from '{last.layer}' back to '{first.layer}' they become {_times(math.sqrt(growths[0]))} what they were, "
            "as in a plain net with the same variances",
            "the nonlinearity's slope does not go with its scale, or the net narrows or widens a lot",
            "HyperNet(…, init='hyperfan-out'), which keeps gradients; or residual connections, or norms",
        )


def _name(ratio: float, backward: bool) -> FindingName:
    if backward:
        return FindingName.EXPLODING_GRADIENTS if ratio > 1 else FindingName.VANISHING_GRADIENTS
    return FindingName.EXPLODING_ACTIVATIONS if ratio > 1 else FindingName.VANISHING_ACTIVATIONS


def _adds_up(e: Evidence, ratio: float) -> bool:
    """Whether the weights' deviations, multiplied, make up at least half of a ratio, in logarithms."""
    logs = [math.log(t.ratio) for t in e.readings.tensors if t.role == "weight" and t.ratio]
    return sum(logs) / 2 * math.copysign(1, math.log(ratio)) > abs(math.log(ratio)) / 2


def _within(ratio: float, factor: float) -> bool:
    """Whether a ratio is at most a factor away from 1."""
    return 1 / factor <= ratio <= factor


def _times(ratio: float) -> str:
    """A ratio in words.

    >>> _times(3.0), _times(0.25)
    ('3 times', '1/4 of')
    """
    return f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"


def _finite(scale: Scale) -> bool:
    return 0 < scale.value < math.inf


def _apart(measured: Scale, predicted: Scale) -> bool:
    """Whether two scales are further apart than the threshold, and than the intervals allow."""
    overlap = measured.low <= predicted.high and predicted.low <= measured.high
    return not overlap and not _within(measured.value / predicted.value, MAX_RATIO_TO_PREDICTION)


def _per_layer(compared: Sequence[Comparison], backward: bool) -> str:
    """The factor from layer to layer, over the prediction, in words."""
    logs = [math.log(m.value / p.value) / 2 for _, m, p in compared]
    if len(logs) < 3:
        return ""
    factor = math.exp((logs[-1] - logs[0]) / (len(logs) - 1) * (-1 if backward else 1))
    direction = "backward" if backward else "forward"
    return "" if _within(factor, 1.05) else f", a factor of {factor:.3g} per layer on the way {direction}"
