"""Units that are of no use, and inputs that cannot be told apart."""

from collections.abc import Iterator

from hyperfan.probe.checks.remedies import rebuild
from hyperfan.probe.diagnosis import Finding
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.theory import spread

USELESS = 0.3
"""Share of values in the flat part of a tanh or sigmoid. Unit variance has 0.03 of them."""
DEAD, MORE_DEAD = 0.5, 0.25
"""Share of units that a ReLU lets pass nothing of, and by how much that must exceed a plain net's."""
ALIKE, NEARLY_ALIKE, FORGOTTEN = 0.01, 0.03, 1e-4
"""Variance over inputs, over the mean square: too little; so little in a plain net that it is the net's nature; and too
little even then."""


def units(e: Evidence) -> Iterator[Finding]:
    """Saturated tanh and sigmoid, dead ReLU."""
    into = e.seen.watch.into
    flat = [i for i in into if i.flat > USELESS]
    if flat:
        twins = [i.flat for t in e.twins for i in t.into if i.layer in {f.layer for f in flat}]
        too = ", and so does a plain net at the target scale" if min(twins, default=0.0) > USELESS else ""
        yield Finding(
            f"saturated {flat[0].function}",
            "warning",
            tuple(dict.fromkeys(i.layer for i in flat)),
            f"{max(i.flat for i in flat):.0%} of the values that enter it lie where it has less than a twentieth of "
            "its greatest slope",
            f"what stands before it puts out values that are too large{too}",
            "scale what stands before it down: " + rebuild(e),
        )
    usual = [_most_dead(e, k) for k in range(len(into))]
    dead = [i for i, u in zip(into, usual, strict=True) if i.dead > max(DEAD, u + MORE_DEAD)]
    if any(t.realised.value == 0 for t in e.tensors if t.target):  # behind weights of zero nothing is alive
        dead = []
    if dead:
        yield Finding(
            "dead ReLU",
            "warning",
            tuple(dict.fromkeys(i.layer for i in dead)),
            f"{max(i.dead for i in dead):.0%} of the units are zero on all {e.inputs} inputs",
            "their biases are far below zero, or the layer's inputs have a mean that its weights turn negative",
            "start the biases at 0; " + rebuild(e),
        )


def _most_dead(e: Evidence, which: int) -> float:
    """Among plain nets, before the same nonlinearity."""
    return max((t.into[which].dead for t in e.twins if which < len(t.into)), default=0.0)


def alike(e: Evidence) -> Iterator[Finding]:
    """Inputs that cannot be told apart at the output."""
    out = e.seen.output
    if e.inputs < 2 or out.ndim < 2 or len(out) != e.inputs:
        return
    share = spread(out)
    if not share < ALIKE:
        return
    outputs = e.seen.watch.outputs.items()
    first = next((label for label, o in outputs if spread(o.values) < ALIKE), "the output")
    by_nature = sorted(t.spread for t in e.twins)[len(e.twins) // 2] < NEARLY_ALIKE
    if by_nature:
        cause = "so they do in a plain net: it is too deep for its nonlinearity, or the inputs differ little themselves"
        remedy = "use residual connections or norms, or a nonlinearity of zero mean such as tanh"
    else:
        cause = "biases or other constant parts drown what depends on the input"
        remedy = "start biases at 0, subtract the mean of the inputs; " + rebuild(e)
    yield Finding(
        "inputs that look alike at the output",
        "note" if by_nature and share > FORGOTTEN else "warning",
        (first,),
        f"over {e.inputs} inputs the output varies by {share:.2g} of its mean square; the first to do so is '{first}'",
        cause,
        remedy,
    )
