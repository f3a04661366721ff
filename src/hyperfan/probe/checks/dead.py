"""Generated tensors that are zero, never change, or get no gradient; parts that nothing reaches."""

import math
from collections.abc import Iterator

from hyperfan.probe.checks.remedies import rebuild, remake
from hyperfan.probe.diagnosis import Finding
from hyperfan.probe.evidence import Evidence


def dead_heads(e: Evidence) -> Iterator[Finding]:
    """Zero output, constant in the embedding, cut off from the graph, zero gradient."""
    zero = _zero(e)
    if zero:
        yield Finding(
            "dead head: zero output",
            "error",
            tuple(zero),
            "every value of the generated tensor is exactly 0",
            "the head's weight was set to zero, or its code is zero: no input passes a weight of zeros, and no "
            "gradient comes back",
            remake(e, zero),
        )
    constant = [t for t in e.constant if t not in zero]
    if constant:
        yield Finding(
            "dead head: constant in the embedding",
            "error",
            tuple(constant),
            "the generated tensor stays the same, bit for bit, when every embedding changes",
            "the head's weight is zero and all comes from its bias, or a layer of the trunk puts out a constant: tasks "
            "and samples cannot differ",
            remake(e, constant),
        )
    without = [n for n, t in e.made.items() if not t.requires_grad]
    if without:
        yield Finding(
            "no gradient to the hypernet",
            "error",
            tuple(without),
            "the generated tensor has no graph behind it",
            "it was cut off on its way by .detach(), .data, torch.no_grad() or numpy, or the hypernet's parameters do "
            "not require gradients",
            "hand the hypernet's outputs to torch.func.functional_call as they are, and check p.requires_grad",
        )
    silent = _silent(e)
    if silent:
        yield Finding(
            "dead head: zero gradient",
            "error",
            tuple(silent),
            "∂L/∂(the generated tensor) is exactly 0 for every value, or the tensor has no part in the output",
            "its layer is not used in this pass, or what follows passes nothing back: a dead or saturated "
            "nonlinearity, a scale of 0, a detach()",
            "check that the layer runs and that what follows it has a slope; " + remake(e, silent),
        )


def dead_parts(e: Evidence) -> Iterator[Finding]:
    """A trunk or embeddings that are to be trained, and that no gradient reaches though the heads get some."""
    if _zero(e) or e.constant or _silent(e):
        return
    for part in e.parts:
        if part.gradient == 0 and part.part in ("trunk", "embedding"):
            yield Finding(
                f"no gradient to the {part.part}",
                "error",
                (part.part,),
                f"the gradient of its {part.parameters:,} parameters is exactly 0",
                "a layer of the trunk is dead or saturated, or something detaches the codes",
                rebuild(e),
            )


def _zero(e: Evidence) -> list[str]:
    return [t.tensor for t in e.tensors if t.target and t.realised.value == 0]


def _silent(e: Evidence) -> list[str]:
    """Without a gradient of their own, where there is a loss and every layer puts out something."""
    if e.seen.loss is None or not all(r.measured.value > 0 for r in e.layers):
        return []
    return [t.tensor for t in e.tensors if t.gradient == 0 or math.isnan(t.gradient)]
