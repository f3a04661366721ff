"""Activations and gradients that grow or fade from layer to layer."""

import math
from collections.abc import Iterator, Sequence

from hyperfan.probe.checks.outside import INPUTS
from hyperfan.probe.checks.remedies import remake
from hyperfan.probe.checks.scale import wrong_scale
from hyperfan.probe.diagnosis import Finding, LayerReading, Scale
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.subject import OurNet
from hyperfan.probe.theory import backward

FAR = 10.0
"""Mean square over its prediction, beyond which a layer explodes or vanishes."""
VERY_FAR = 100.0
"""The same over its target, for what the prediction shares: the fault is then in the net itself."""
BACKWARD = 1e4
"""Squared norm of the first layer's gradient over that of the last's."""
STEEP = 2.0
"""The same from each layer to the next. Batch norm alone makes up to 1.5."""

Compared = tuple[LayerReading, Scale, Scale]


def growth(e: Evidence) -> Iterator[Finding]:
    """Against the prediction."""
    explained = next(wrong_scale(e), None) is not None
    for noun, pairs in (
        ("activations", [(r, r.measured, r.predicted) for r in e.layers]),
        ("gradients", [(r, r.measured_gradient, r.predicted_gradient) for r in e.layers]),
    ):
        seen = [(r, m, p) for r, m, p in pairs if m is not None and p is not None and _finite(m) and _finite(p)]
        off = [each for each in seen if _apart(each[1], each[2])]
        if not off:
            continue
        r, m, p = max(off, key=lambda each: abs(math.log(each[1].value / each[2].value)))
        ratio = math.sqrt(m.value / p.value)
        yield Finding(
            f"{'exploding' if ratio > 1 else 'vanishing'} {noun}",
            "warning" if within(ratio**2, VERY_FAR**2) else "error",
            tuple(each[0].layer for each in off),
            f"in '{r.layer}' they are {times(ratio)} those of a plain net at the target scale{_per_layer(seen, noun)}",
            "the generated weights are of the wrong scale, see above"
            if explained
            else "each generated weight is a little off its target, and from layer to layer that adds up"
            if _together(e, ratio)
            else "the generated weights have their target variance, so they are correlated (equal codes, one chunk "
            "many times over), or biases and norms add to them",
            remake(e, [t.tensor for t in e.tensors if t.role == "weight"]),
        )


def growth_by_nature(e: Evidence) -> Iterator[Finding]:
    """Although every weight is at its target, so that plain nets do the same."""
    far = [r for r in e.layers if r.target and r.predicted and not within(r.predicted.value / r.target, VERY_FAR)]
    far = [r for r in far if r.measured.value and not within(r.measured.value / (r.target or 1.0), VERY_FAR)]
    if far and (e.input_scale is None or INPUTS[0] <= e.input_scale <= INPUTS[1]):
        ratio = math.sqrt(far[-1].measured.value / (far[-1].target or 1.0))
        yield Finding(
            f"{'exploding' if ratio > 1 else 'vanishing'} activations",
            "warning",
            tuple(r.layer for r in far),
            f"in '{far[-1].layer}' they are {times(ratio)} their target, as in a plain net with the same variances",
            "the analysis does not fit this net: sums, products or layers that it cannot see change the scale",
            "hyperfan.calibrate_(net, x), which corrects each layer by what it measures"
            if isinstance(e.subject, OurNet)
            else "scale each layer by what it puts out on data; hyperfan.calibrate_ does so for a HyperNet",
        )
    ratios = [backward(e.seen), *(t.backward for t in e.twins)]
    steep = max(math.log(BACKWARD), math.log(STEEP) * (len(e.seen.gradients) - 1))
    if len(e.layers) > 2 and all(r and abs(math.log(r)) > steep for r in ratios):
        first, last = e.layers[0].layer, e.layers[-1].layer
        yield Finding(
            f"{'exploding' if ratios[0] > 1 else 'vanishing'} gradients",
            "warning",
            (first,),
            f"from '{last}' back to '{first}' they become {times(math.sqrt(ratios[0]))} what they were, as in a plain "
            "net with the same variances",
            "the nonlinearity's slope does not go with its scale, or the net narrows or widens a lot",
            "HyperNet(…, init='hyperfan-out'), which keeps gradients; or residual connections, or norms",
        )


def _together(e: Evidence, ratio: float) -> bool:
    """Whether the weights' deviations, multiplied, make up at least half of a ratio, in logarithms."""
    each = [t.realised.value / t.target for t in e.tensors if t.role == "weight" and t.target and t.realised.value > 0]
    return sum(math.log(r) for r in each) / 2 * math.copysign(1, math.log(ratio)) > abs(math.log(ratio)) / 2


def within(ratio: float, factor: float) -> bool:
    """Whether a ratio is at most a factor away from 1."""
    return 1 / factor <= ratio <= factor


def times(ratio: float) -> str:
    """In words.

    >>> times(3.0), times(0.25)
    ('3 times', '1/4 of')
    """
    return f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"


def _finite(scale: Scale) -> bool:
    return 0 < scale.value < math.inf


def _apart(measured: Scale, predicted: Scale) -> bool:
    """Further apart than the threshold, and than the intervals allow."""
    overlap = measured.low <= predicted.high and predicted.low <= measured.high
    return not overlap and not within(measured.value / predicted.value, FAR)


def _per_layer(seen: Sequence[Compared], noun: str) -> str:
    """The factor from layer to layer, over what is predicted."""
    logs = [math.log(m.value / p.value) / 2 for _, m, p in seen]
    if len(logs) < 3:
        return ""
    forward = noun == "activations"
    factor = math.exp((logs[-1] - logs[0]) / (len(logs) - 1) * (1 if forward else -1))
    way = "forward" if forward else "backward"
    return "" if within(factor, 1.05) else f", a factor of {factor:.3g} per layer on the way {way}"
