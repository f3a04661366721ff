"""The checks on the mainnet itself: its inputs, its norms, and the units of its nonlinearities."""

import math
from collections.abc import Iterator

from hyperfan.probe.checks.remedies import restart
from hyperfan.probe.checks.tensors import zero_factors, zero_tensors
from hyperfan.probe.evidence import Evidence, input_variation
from hyperfan.probe.findings import Finding, FindingName, Severity
from hyperfan.probe.moments import mean_square

MIN_INPUT_SQUARE, MAX_INPUT_SQUARE = 0.02, 50.0
"""Mean square of the inputs."""
MIN_VARIATION = 0.01
"""Variance of the output over inputs, as a share of its mean square."""
MIN_TWIN_VARIATION = 0.03
"""Such a share in a plain net, below which little variance is the net's nature."""
MIN_NATURAL_VARIATION = 1e-4
"""Such a share that is too little even where little variance is the net's nature."""
MAX_NORM_DISTANCE = 0.1
"""Root mean square distance of norm parameters from where they start."""
MAX_SATURATED_SHARE = 0.3
"""Share of values in the flat part of a tanh or sigmoid. Unit variance has 0.03 of them."""
MAX_DEAD_SHARE = 0.5
"""Share of units that a ReLU lets pass nothing of."""
MAX_DEAD_SHARE_OVER_TWINS = 0.25
"""Excess of that share over a plain net's."""


def inputs_on_scale(mean_square: float) -> bool:
    """Whether a mean square of inputs is near enough to the theory's 1."""
    return MIN_INPUT_SQUARE <= mean_square <= MAX_INPUT_SQUARE


def inputs_off_scale(e: Evidence) -> Iterator[Finding]:
    """Find inputs far from mean square 1, which the theory starts from, unless the first layer makes up for it."""
    first = next((r.measured.value / r.target for r in e.readings.layers if r.target), None)
    if e.input_scale is None or not math.isfinite(e.input_scale) or inputs_on_scale(e.input_scale):
        return
    if first is None or not inputs_on_scale(first):
        seen = f"the inputs have mean square {e.input_scale:.3g}; the theory starts from 1"
        cause = "they are not standardised" + (", pixels from 0 to 255 for example" if e.input_scale > 1 else "")
        remedy = "x = (x - mean) / std, with those of the training data"
        remedy += "; or hyperfan.calibrate_(net, x)" if e.subject.net is not None else ""
        yield Finding(FindingName.INPUTS_OFF_SCALE, "warning", (), seen, cause, remedy)


def inputs_alike(e: Evidence) -> Iterator[Finding]:
    """Find inputs that no longer differ at the output."""
    out = e.measured.output
    if e.readings.inputs < 2 or out.ndim < 2 or len(out) != e.readings.inputs:
        return
    variation = input_variation(out)
    if not variation < MIN_VARIATION or (not variation and (zero_tensors(e) or zero_factors(e))):
        return  # zeros, which are told by themselves, make all inputs alike
    outputs = e.measured.recording.outputs.items()
    first = next((label for label, o in outputs if input_variation(o.values) < MIN_VARIATION), "the output")
    by_nature = min(t.input_variation for t in e.twins) < MIN_TWIN_VARIATION
    cause = "biases or other constant parts drown what depends on the input"
    share, init = e.subject.bias_share, e.subject.method.name
    by_init = f", as init=hyperfan.init.method('{init}', bias_share=0) does" if share else ""
    remedy = f"start biases at 0{by_init}; subtract the mean of the inputs; {restart(e)}"
    if by_nature:
        cause = (
            "so they do in a plain net, at least by chance: it has few outputs or is too deep for its nonlinearity, or "
            "the inputs differ little themselves"
        )
        remedy = "use residual connections or norms, or a nonlinearity of zero mean such as tanh"
    severity: Severity = "note" if by_nature and variation > MIN_NATURAL_VARIATION else "warning"
    varies = f"over {e.readings.inputs} inputs the output varies by {variation:.2g} of its mean square"
    seen = f"{varies}; the first to do so is '{first}'"
    yield Finding(FindingName.INPUTS_ALIKE, severity, (first,), seen, cause, remedy)


NORM_CAUSES: dict[str, tuple[Severity, str, str]] = {
    "meant": (
        "note",
        "often on purpose: zeros start a residual branch silent, and a trained mainnet has values of its own",
        "norm.reset_parameters(), if it is not",
    ),
    "generated": (
        "warning",
        "the hypernet makes them like weights",
        "leave norms out of generate=, or start their heads at weight 0 and bias 1 (scale) or 0 (shift)",
    ),
    "set": ("warning", "they were set by hand", "norm.reset_parameters(), if the net is meant to be at its start"),
}
"""Severity, cause and remedy of norm parameters that are off, by how they came to be so."""


def norms(e: Evidence) -> Iterator[Finding]:
    """Find norm scales away from 1 and norm shifts away from 0."""
    values = {**e.subject.plain, **e.generated}
    found: dict[str, dict[str, float]] = {how: {} for how in NORM_CAUSES}
    for t in e.subject.spec:
        if t.role in ("scale", "shift") and t.start is not None:
            value = values[t.name].detach().double()
            how = "generated" if t.name in e.generated else "set"
            if how == "set" and (not value.any() or value.max() > value.min()):
                how = "meant"
            found[how][t.name] = math.sqrt(mean_square(value - t.start))
    for how, (severity, cause, remedy) in NORM_CAUSES.items():
        if off := {name: distance for name, distance in found[how].items() if distance > MAX_NORM_DISTANCE}:
            seen = f"root mean square distance {max(off.values()):.3g} from where a norm starts: scale 1, shift 0"
            yield Finding(FindingName.NORMS_OFF, severity, tuple(off), seen, cause, remedy)


def useless_units(e: Evidence) -> Iterator[Finding]:
    """Find nonlinearities of which too many units are saturated or dead."""
    recorded = e.measured.recording.nonlinearity_inputs
    if saturated := [i for i in recorded if i.saturated > MAX_SATURATED_SHARE]:
        layers = dict.fromkeys(i.layer for i in saturated)
        twins = [i.saturated for t in e.twins for i in t.nonlinearity_inputs if i.layer in layers]
        name = FindingName(f"saturated {saturated[0].function}")
        share = max(i.saturated for i in saturated)
        seen = f"{share:.0%} of the values that enter it lie where it has less than a twentieth of its greatest slope"
        cause = "what stands before it puts out values that are too large"
        if min(twins, default=0.0) > MAX_SATURATED_SHARE:
            cause += ", and so does a plain net at the target scale"
        remedy = "scale what stands before it down: " + restart(e)
        yield Finding(name, "warning", tuple(layers), seen, cause, remedy)
    dead = [
        found
        for k, found in enumerate(recorded)
        if found.dead > max(MAX_DEAD_SHARE, _dead_in_twins(e, k) + MAX_DEAD_SHARE_OVER_TWINS)
    ]
    if dead and not zero_tensors(e):  # behind weights of zero nothing is alive
        where = tuple(dict.fromkeys(i.layer for i in dead))
        seen = f"{max(i.dead for i in dead):.0%} of the units are zero on all {e.readings.inputs} inputs"
        cause = "their biases are far below zero, or the layer's inputs have a mean that its weights turn negative"
        yield Finding(FindingName.DEAD_RELU, "warning", where, seen, cause, "start the biases at 0; " + restart(e))


def _dead_in_twins(e: Evidence, position: int) -> float:
    """The greatest share of dead units among plain nets, at the same nonlinearity."""
    same = (t.nonlinearity_inputs[position] for t in e.twins if position < len(t.nonlinearity_inputs))
    return max((i.dead for i in same), default=0.0)
