"""The check for units that are of no use: saturated tanh and sigmoid, dead ReLU."""

from collections.abc import Iterator

from hyperfan.probe.checks.remedies import restart
from hyperfan.probe.diagnosis import Finding, FindingName
from hyperfan.probe.evidence import Evidence

MAX_SATURATED_SHARE = 0.3
"""Share of values in the flat part of a tanh or sigmoid. Unit variance has 0.03 of them."""
MAX_DEAD_SHARE = 0.5
"""Share of units that a ReLU lets pass nothing of."""
MAX_DEAD_SHARE_OVER_TWINS = 0.25
"""By how much that share may exceed a plain net's."""


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
    usual = [_dead_in_twins(e, k) for k in range(len(recorded))]
    dead = [
        i
        for i, share in zip(recorded, usual, strict=True)
        if i.dead > max(MAX_DEAD_SHARE, share + MAX_DEAD_SHARE_OVER_TWINS)
    ]
    if any(t.realised.value == 0 for t in e.tensors if t.target):  # behind weights of zero nothing is alive
        dead = []
    if dead:
        yield Finding(
            FindingName.DEAD_RELU,
            "warning",
            tuple(dict.fromkeys(i.layer for i in dead)),
            f"{max(i.dead for i in dead):.0%} of the units are zero on all {e.inputs} inputs",
            "their biases are far below zero, or the layer's inputs have a mean that its weights turn negative",
            "start the biases at 0; " + restart(e),
        )


def _dead_in_twins(e: Evidence, position: int) -> float:
    """The greatest share of dead units among plain nets, at the same nonlinearity."""
    same = (t.nonlinearity_inputs[position] for t in e.twins if position < len(t.nonlinearity_inputs))
    return max((i.dead for i in same), default=0.0)
