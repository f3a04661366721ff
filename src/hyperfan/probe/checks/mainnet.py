"""The checks on the mainnet itself: its inputs, its norms, and the units of its nonlinearities."""

import math
from collections.abc import Iterator

from hyperfan.probe.checks.dead import zero_tensors
from hyperfan.probe.checks.remedies import restart, standardise_inputs
from hyperfan.probe.diagnosis import Finding, FindingName
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.passes import input_variation

MIN_INPUT_SQUARE, MAX_INPUT_SQUARE = 0.02, 50.0
"""Mean square of the inputs."""
MIN_VARIATION = 0.01
"""Variance of the output over inputs, as a share of its mean square."""
MIN_TWIN_VARIATION = 0.03
"""That share in a plain net, below which it is the net's nature."""
MIN_NATURAL_VARIATION = 1e-4
"""That share, below which it is too little even where it is the net's nature."""
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
        yield Finding(
            FindingName.INPUTS_OFF_SCALE,
            "warning",
            (),
            f"the inputs have mean square {e.input_scale:.3g}; the theory starts from 1",
            "they are not standardised" + (", pixels from 0 to 255 for example" if e.input_scale > 1 else ""),
            standardise_inputs(e),
        )


def inputs_alike(e: Evidence) -> Iterator[Finding]:
    """Find inputs that no longer differ at the output."""
    out = e.measured.output
    if e.readings.inputs < 2 or out.ndim < 2 or len(out) != e.readings.inputs:
        return
    variation = input_variation(out)
    if not variation < MIN_VARIATION:
        return
    outputs = e.measured.recording.outputs.items()
    first = next((label for label, o in outputs if input_variation(o.values) < MIN_VARIATION), "the output")
    by_nature = sorted(t.input_variation for t in e.twins)[len(e.twins) // 2] < MIN_TWIN_VARIATION
    if by_nature:
        cause = "so they do in a plain net: it is too deep for its nonlinearity, or the inputs differ little themselves"
        remedy = "use residual connections or norms, or a nonlinearity of zero mean such as tanh"
    else:
        cause = "biases or other constant parts drown what depends on the input"
        remedy = "start biases at 0, subtract the mean of the inputs; " + restart(e)
    yield Finding(
        FindingName.INPUTS_ALIKE,
        "note" if by_nature and variation > MIN_NATURAL_VARIATION else "warning",
        (first,),
        f"over {e.readings.inputs} inputs the output varies by {variation:.2g} of its mean square; the first to do so "
        f"is '{first}'",
        cause,
        remedy,
    )


def norms(e: Evidence) -> Iterator[Finding]:
    """Find norm scales away from 1 and norm shifts away from 0."""
    values = {name: t.detach() for name, t in {**e.subject.plain, **e.generated}.items()}
    off: dict[str, float] = {}
    for t in e.subject.spec:
        if t.role in ("scale", "shift") and t.start is not None:
            off[t.name] = math.sqrt((values[t.name].double() - t.start).square().mean().item())
    off = {name: distance for name, distance in off.items() if distance > MAX_NORM_DISTANCE}
    plain = [n for n in off if n not in e.generated]
    zero = [n for n in plain if not values[n].any()]
    trained = [n for n in plain if values[n].numel() > 1 and values[n].std() > 0]
    if zero:
        yield Finding(
            FindingName.NORM_SCALES_ZERO,
            "note",
            tuple(zero),
            "every value is exactly 0",
            "often on purpose, so that a residual branch starts silent",
            "torch.nn.init.ones_(norm.weight), if it is not",
        )
    if trained:
        yield Finding(
            FindingName.NORMS_TRAINED,
            "note",
            tuple(trained),
            f"root mean square distance up to {max(off[n] for n in trained):.3g} from where a norm starts",
            "the mainnet comes with parameters of its own",
            "nothing, if so",
        )
    wrong = [n for n in off if n not in zero and n not in trained]
    if wrong:
        generated = any(n in e.generated for n in wrong)
        yield Finding(
            FindingName.NORMS_OFF,
            "warning",
            tuple(wrong),
            f"root mean square distance {max(off[n] for n in wrong):.3g} from where a norm starts: scale 1, shift 0",
            "the hypernet makes them like weights" if generated else "they were set by hand",
            "leave norms out of generate=, or start their heads at weight 0 and bias 1 (scale) or 0 (shift)"
            if generated
            else "norm.reset_parameters(), if the net is meant to be at its start",
        )


def useless_units(e: Evidence) -> Iterator[Finding]:
    """Find nonlinearities of which too many units are saturated or dead."""
    recorded = e.measured.recording.nonlinearity_inputs
    saturated = [i for i in recorded if i.saturated > MAX_SATURATED_SHARE]
    if saturated:
        layers = {i.layer for i in saturated}
        twins = [i.saturated for t in e.twins for i in t.nonlinearity_inputs if i.layer in layers]
        by_nature = min(twins, default=0.0) > MAX_SATURATED_SHARE
        yield Finding(
            FindingName.SATURATED_TANH if saturated[0].function == "tanh" else FindingName.SATURATED_SIGMOID,
            "warning",
            tuple(dict.fromkeys(i.layer for i in saturated)),
            f"{max(i.saturated for i in saturated):.0%} of the values that enter it lie where it has less than a "
            "twentieth of its greatest slope",
            "what stands before it puts out values that are too large"
            + (", and so does a plain net at the target scale" if by_nature else ""),
            "scale what stands before it down: " + restart(e),
        )
    dead = [
        found
        for k, found in enumerate(recorded)
        if found.dead > max(MAX_DEAD_SHARE, _dead_in_twins(e, k) + MAX_DEAD_SHARE_OVER_TWINS)
    ]
    if dead and not zero_tensors(e):  # behind weights of zero nothing is alive
        yield Finding(
            FindingName.DEAD_RELU,
            "warning",
            tuple(dict.fromkeys(i.layer for i in dead)),
            f"{max(i.dead for i in dead):.0%} of the units are zero on all {e.readings.inputs} inputs",
            "their biases are far below zero, or the layer's inputs have a mean that its weights turn negative",
            "start the biases at 0; " + restart(e),
        )


def _dead_in_twins(e: Evidence, position: int) -> float:
    """The greatest share of dead units among plain nets, at the same nonlinearity."""
    same = (t.nonlinearity_inputs[position] for t in e.twins if position < len(t.nonlinearity_inputs))
    return max((i.dead for i in same), default=0.0)
