"""The checks for generated tensors that are zero, constant or without a gradient, and parts that none reaches."""

import math
from collections.abc import Iterator

from hyperfan.probe.checks.remedies import restart, restart_heads
from hyperfan.probe.diagnosis import EMBEDDING_PART, TRUNK_PART, Finding, FindingName
from hyperfan.probe.evidence import Evidence


def dead_heads(e: Evidence) -> Iterator[Finding]:
    """Find tensors that are zero, constant in the embedding, detached from the graph, or without a gradient."""
    zero = zero_tensors(e)
    if zero:
        yield Finding(
            FindingName.ZERO_OUTPUT,
            "error",
            tuple(zero),
            "every value of the generated tensor is exactly 0",
            "the head's weight was set to zero, or its code is zero: no input passes a weight of zeros, and no "
            "gradient comes back",
            restart_heads(e, zero),
        )
    constant = [t for t in e.constant if t not in zero]
    if constant:
        yield Finding(
            FindingName.CONSTANT_OUTPUT,
            "error",
            tuple(constant),
            "the generated tensor stays the same, bit for bit, when every embedding changes",
            "the head's weight is zero and all comes from its bias, or a layer of the trunk puts out a constant: tasks "
            "and samples cannot differ",
            restart_heads(e, constant),
        )
    detached = [n for n, t in e.generated.items() if not t.requires_grad]
    if detached:
        yield Finding(
            FindingName.DETACHED,
            "error",
            tuple(detached),
            "the generated tensor has no graph behind it",
            "it was cut off on its way by .detach(), .data, torch.no_grad() or numpy, or the hypernet's parameters do "
            "not require gradients",
            "hand the hypernet's outputs to torch.func.functional_call as they are, and check p.requires_grad",
        )
    unreached = _without_gradient(e)
    if unreached:
        yield Finding(
            FindingName.ZERO_GRADIENT,
            "error",
            tuple(unreached),
            "∂L/∂(the generated tensor) is exactly 0 for every value, or the tensor has no part in the output",
            "its layer is not used in this pass, or what follows passes nothing back: a dead or saturated "
            "nonlinearity, a scale of 0, a detach()",
            "check that the layer runs and that what follows it has a slope; " + restart_heads(e, unreached),
        )


def dead_parts(e: Evidence) -> Iterator[Finding]:
    """Find a trunk or embeddings that are to be trained, and that no gradient reaches though the heads get some."""
    if zero_tensors(e) or e.constant or _without_gradient(e):
        return
    names = {TRUNK_PART: FindingName.NO_TRUNK_GRADIENT, EMBEDDING_PART: FindingName.NO_EMBEDDING_GRADIENT}
    for part in e.readings.parts:
        if part.gradient == 0 and part.part in names:
            yield Finding(
                names[part.part],
                "error",
                (part.part,),
                f"the gradient of its {part.parameters:,} parameters is exactly 0",
                "a layer of the trunk is dead or saturated, or something detaches the codes",
                restart(e),
            )


def zero_tensors(e: Evidence) -> list[str]:
    """Generated tensors whose values are all zero, and should not be."""
    return [t.tensor for t in e.readings.tensors if t.target and t.realised.value == 0]


def _without_gradient(e: Evidence) -> list[str]:
    """Tensors without a gradient, where there is a loss and every layer puts out something."""
    if e.measured.loss is None or not all(r.measured.value > 0 for r in e.readings.layers):
        return []
    return [t.tensor for t in e.readings.tensors if t.gradient == 0 or math.isnan(t.gradient)]
