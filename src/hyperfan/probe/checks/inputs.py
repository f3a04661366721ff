"""The checks on inputs: their scale, and whether the output still tells them apart."""

import math
from collections.abc import Iterator

from hyperfan.probe.checks.remedies import restart, standardise_inputs
from hyperfan.probe.diagnosis import Finding, FindingName
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.passes import input_variation

MIN_MEAN_SQUARE, MAX_MEAN_SQUARE = 0.02, 50.0
"""Mean square of the inputs."""
MIN_VARIATION = 0.01
"""Variance of the output over inputs, as a share of its mean square."""
MIN_TWIN_VARIATION = 0.03
"""The same in a plain net, below which it is the net's nature."""
MIN_NATURAL_VARIATION = 1e-4
"""The same, below which it is too little even where it is the net's nature."""


def on_scale(mean_square: float) -> bool:
    """Whether a mean square of inputs is near enough to the theory's 1."""
    return MIN_MEAN_SQUARE <= mean_square <= MAX_MEAN_SQUARE


def inputs_off_scale(e: Evidence) -> Iterator[Finding]:
    """Find inputs far from mean square 1, which the theory starts from, unless the first layer makes up for it."""
    first = next((r.measured.value / r.target for r in e.layers if r.target), None)
    if e.input_scale is None or not math.isfinite(e.input_scale) or on_scale(e.input_scale):
        return
    if first is None or not on_scale(first):
        yield Finding(
            FindingName.INPUTS_OFF_SCALE,
            "warning",
            (),
            f"the inputs have mean square {e.input_scale:.3g}; the theory starts from 1",
            "they are not standardised" + (", pixels from 0 to 255 for example" if e.input_scale > 1 else ""),
            standardise_inputs(e),
        )


def inputs_alike(e: Evidence) -> Iterator[Finding]:
    """Find inputs that cannot be told apart at the output."""
    out = e.measured.output
    if e.inputs < 2 or out.ndim < 2 or len(out) != e.inputs:
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
        f"over {e.inputs} inputs the output varies by {variation:.2g} of its mean square; the first to do so is "
        f"'{first}'",
        cause,
        remedy,
    )
