"""The checks on generated tensors and what is trained behind them: scale, noise, zeros, constants, gradients."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from hyperfan.probe.checks.mistakes import Case, explain
from hyperfan.probe.checks.remedies import STANDARDISED, restart, restart_heads, restart_trunk
from hyperfan.probe.diagnosis import EMBEDDING_PART, TRUNK_PART, TensorReading
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.findings import Finding, FindingName, Severity
from hyperfan.probe.losses import main_output
from hyperfan.probe.moments import Scale
from hyperfan.probe.subject import leaves, with_targets

MAX_VARIANCE_RATIO = 1.5
"""Realised over target variance, from which on the scale is wrong. The smallest usual mistake makes 1.9."""
MAX_VARIANCE_RATIO_UNKNOWN_CODE = 2.5
"""Realised over target variance where the code is not known: a small one scatters by 2. Leaving out √3 makes 3."""
MIN_CORRELATION = 0.25
"""Correlation between the weights of two conditions."""
MAX_NOISE_SHARE = 0.5
"""Share of noise in a tensor's mean square."""


def wrong_scale(e: Evidence) -> Iterator[Finding]:
    """Find generated tensors whose variance is off, grouped by the mistake that explains it."""
    off, paper = off_target(e), {} if e.subject.net is not None else _paper_targets(e)
    for group, mistake in explain([_case(e, t, paper.get(t.tensor)) for t in off]):
        ratios = [c.realised / c.target for c in group]
        low, high, first = min(ratios), max(ratios), group[0]
        shown = f"{low:.3g}" if high < 1.1 * low else f"{low:.3g} to {high:.3g}"
        has, wanted = f"has {first.realised:.3g}", f"{first.target:.3g} ({first.tensor.equation})"
        seen = f"variance {shown} times the target; '{first.name}' {has} and should have {wanted}"
        cause = mistake or "no usual mistake gives this ratio: was the head set by hand?"
        if e.subject.net is not None and e.subject.net.init.name == e.subject.method.name:
            cause += "; training moves scales too, and then it is no fault"
        severity: Severity = "error" if max(high, 1 / low) > 10 else "warning"
        names = tuple(c.name for c in group)
        yield Finding(FindingName.WRONG_SCALE, severity, names, seen, cause, restart_heads(e, names))


def off_target(e: Evidence) -> list[TensorReading]:
    """The generated tensors whose variance is off.

    Biases may be smaller than the theory has them, or zero; weights may then make up for it.
    """
    tensors = [
        t
        for t in e.readings.tensors
        if (t.realised.value > (t.target or 0) if t.role == "bias" else not _makes_up_for_its_bias(e, t))
    ]
    if e.subject.net is not None:
        return [t for t in tensors if _is_off(t.realised, t.target, MAX_VARIANCE_RATIO)]
    # Started by the paper's table or by the exact reading: it is not known which.
    factor, paper = MAX_VARIANCE_RATIO_UNKNOWN_CODE, _paper_targets(e)
    off = [t for t in tensors if _is_off(t.realised, t.target, factor)]
    return [t for t in off if _is_off(t.realised, paper[t.tensor], factor)]


def _paper_targets(e: Evidence) -> dict[str, float | None]:
    """The variances that the paper's table would have, by name."""
    found = with_targets([t.spec for t in e.subject.generated.values()], e.subject.method, "paper")
    return {name: t.target for name, t in found.items()}


def _makes_up_for_its_bias(e: Evidence, t: TensorReading) -> bool:
    """Whether a weight makes, of the part that a smaller generated bias leaves over, what is missing."""
    layer, share = e.subject.generated[t.tensor].spec.layer, e.subject.bias_share
    beside = (b for b in e.readings.tensors if b.role == "bias" and e.subject.generated[b.tensor].spec.layer == layer)
    if not t.target or not share or (bias := next(beside, None)) is None or not bias.target:
        return False
    missing = max(1 - bias.realised.value / bias.target, 0.0)
    total = t.target * (1 + missing * share / (1 - share))
    return t.realised.value >= t.target and not _is_off(t.realised, total, MAX_VARIANCE_RATIO)


def _is_off(realised: Scale, target: float | None, factor: float) -> bool:
    if not target or not 0 < realised.value < math.inf:
        return False
    # Many tensors are looked at, and small ones scatter widely: five standard errors are too many by chance.
    factor = max(factor, (realised.high / realised.value) ** 2.5)
    return not 1 / factor <= realised.value / target <= factor


def _case(e: Evidence, t: TensorReading, paper: float | None) -> Case:
    tensor = e.subject.generated[t.tensor]
    module = e.subject.skeleton.module.get_submodule(tensor.spec.layer)
    groups = module.groups if isinstance(module, nn.modules.conv._ConvNd) else 1
    assert t.target is not None
    return Case(t.tensor, tensor, t.realised.value, t.target, groups, paper or math.nan)


UNTRAINABLE = {
    FindingName.ZERO_OUTPUT: (
        "every value of the generated tensor is exactly 0",
        "the head's weight was set to zero, or its code is zero: no input passes a weight of zeros, and no gradient "
        "comes back",
    ),
    FindingName.CONSTANT_OUTPUT: (
        "the generated tensor stays the same, bit for bit, when every embedding changes",
        "what lies between embedding and head ignores it, as a trunk that puts out a constant, and no step of training "
        "changes that: tasks and samples cannot differ",
    ),
    FindingName.ZERO_FACTORS: (
        "all parameters of two of its factors are exactly 0, and so are their gradients, now and after a step",
        "the gradient of each factor of a product is the other one, so that neither of two zeros ever learns: A and B "
        "of a LoRA, or a head of zeros behind codes of zeros",
    ),
    FindingName.DETACHED: (
        "the generated tensor has no graph behind it",
        "it was cut off on its way by .detach(), .data, torch.no_grad() or numpy, or the hypernet's parameters do not "
        "require gradients",
    ),
    FindingName.ZERO_GRADIENT: (
        "∂L/∂(the generated tensor) is exactly 0 for every value, or the tensor has no part in the output",
        "its layer is not used in this pass, or what follows passes nothing back: a dead or saturated nonlinearity, a "
        "scale of 0, a detach()",
    ),
}
"""What is seen of a tensor that cannot learn, and its cause."""
FOREIGN_CONSTANT = (
    "one generated tensor was returned for each input, and all of them are equal, now and after a step",
    "a saturated or dead trunk puts out one code for all, the code does not depend on the condition, or one condition "
    "was repeated: all get the same net, and nothing can be learnt about their difference",
    "print code.std(0) behind each layer from conditions to heads, and mend the first where it is 0: start a saturated "
    f"trunk smaller, standardise conditions, {STANDARDISED}, and pass those of this batch on",
)
"""What is seen of constant tensors of a foreign hypernet, whose embeddings none can change; their cause and remedy."""


def dead_heads(e: Evidence) -> Iterator[Finding]:
    """Find tensors that are zero, constant in the embedding, detached or without a gradient, and parts without one."""
    flat = e.measured.loss_is_flat  # which is told by itself, and says nothing of what lies before it
    without, factors = ([], []) if flat else (_without_gradient(e), zero_factors(e))
    unused = [name for name in without if _has_no_part(e, name)]
    unreached = [name for name in without if name not in unused]
    if unused:
        seen = "the output is the same whatever values the generated tensor has"
        cause = "its layer is not run in this pass, or what it puts out is not used, as that of a pooler"
        yield Finding(FindingName.ZERO_GRADIENT, "note", tuple(unused), seen, cause, "leave it out of generate=")
    zero = [t for t in zero_tensors(e) if t not in factors]
    constant = [] if flat else [t for t in e.constant if t not in (*zero, *factors)]
    detached = [n for n, t in e.generated.items() if not t.requires_grad]
    for name, found in zip(UNTRAINABLE, (zero, constant, factors, detached, unreached), strict=True):
        if found and name == FindingName.CONSTANT_OUTPUT and e.subject.net is None:
            severity: Severity = "error" if _nothing_varies(e) else "note"  # a layer may be meant to be common to all
            yield Finding(name, severity, tuple(found), *FOREIGN_CONSTANT)
        elif found:
            yield Finding(name, "error", tuple(found), *UNTRAINABLE[name], _remedy(e, name, found))
    if zero or constant or factors or unreached or flat:
        return
    names = {TRUNK_PART: FindingName.NO_TRUNK_GRADIENT, EMBEDDING_PART: FindingName.NO_EMBEDDING_GRADIENT}
    for part in e.readings.parts:
        if part.part in names and all(id(p) in e.stuck for p in e.parts[part.part]):
            seen = f"the gradient of its {part.parameters:,} parameters is exactly 0"
            cause = "a layer of the trunk is dead or saturated, or something detaches the codes"
            yield Finding(names[part.part], "error", (part.part,), seen, cause, restart_trunk(e))


def _remedy(e: Evidence, name: FindingName, tensors: Sequence[str]) -> str:
    """Let tensors learn that cannot, by the name of what is wrong with them."""
    if name == FindingName.DETACHED:
        return "hand the hypernet's outputs to torch.func.functional_call as they are; check p.requires_grad"
    in_trunk = name == FindingName.CONSTANT_OUTPUT or any(e.subject.generated[t].moment == 0 for t in tensors)
    restart_all = restart_trunk if in_trunk else restart
    remedy = restart_heads(e, tensors) if e.subject.net is None else restart_all(e)
    if name == FindingName.ZERO_FACTORS:
        return f"start one of the two at its scale, and only the other at 0; {remedy}"
    if name == FindingName.ZERO_GRADIENT:
        return f"check that the layer runs and that what follows it has a slope; {remedy}"
    return remedy


def _nothing_varies(e: Evidence) -> bool:
    """Whether all tensors of which there is one for each input are constant."""
    many = {name for name, t in e.generated.items() if e.subject.has_many(name, t) and e.subject.generated[name].target}
    return many <= set(e.constant)


def zero_factors(e: Evidence) -> list[str]:
    """Generated tensors behind which several matrices are zero and never get a gradient."""
    found = []
    for name, tensor in e.generated.items():
        dead = [p for p in leaves([tensor]) if id(p) in e.stuck and p.ndim > 1 and not p.any()]
        found += [name] if len(dead) > 1 else []
    return found


def zero_tensors(e: Evidence) -> list[str]:
    """Generated tensors whose values are all zero, and should not be."""
    return [t.tensor for t in e.readings.tensors if t.target and t.realised.value == 0 and t.role != "bias"]


@torch.no_grad()
def _has_no_part(e: Evidence, name: str) -> bool:
    """Whether the output is the same with other values of a tensor that has no path to the loss."""
    if name in e.measured.tensor_gradients:
        return False
    changed = {**e.generated, name: e.generated[name] + 1}
    return torch.equal(main_output(e.subject.run(changed)[0]), e.measured.output)


def _without_gradient(e: Evidence) -> list[str]:
    """Tensors without a gradient, where there is a loss and every layer puts out something.

    What only a weight reads that starts at zero, as LoRA's A, has one after the first step.
    """
    if e.measured.loss is None or not all(r.measured.value > 0 for r in e.readings.layers):
        return []
    waiting = {t.spec.reads for t in e.subject.generated.values() if t.spec.role == "weight" and t.spec.start == 0}
    gradients = {t.tensor: t.gradient for t in e.readings.tensors if t.tensor not in waiting}
    return [name for name, gradient in gradients.items() if gradient == 0 or math.isnan(gradient)]


def noise(e: Evidence) -> Iterator[Finding]:
    """Find generated tensors with more noise than signal."""
    if noisy := {name: share for name, share in e.noise.items() if share > MAX_NOISE_SHARE}:
        worst = max(noisy.values())
        ratio = "all there is" if worst > 0.999 else f"{worst / (1 - worst):.3g} times the signal"
        seen = f"in the generated tensor's mean square, the noise is {ratio}"
        cause = "the noise on the embedding is wider than the embedding itself, so each draw is nearly another net"
        remedy = "Embedding(…, noise=…) below √3·std, the half-width at which both are equal"
        if e.subject.net is None:
            remedy = "less noise; or, if each call is meant to make another net, generated= with a fixed embedding"
        yield Finding(FindingName.NOISE, "warning", tuple(noisy), seen, cause, remedy)


def unrelated(e: Evidence) -> Iterator[Finding]:
    """Find conditions whose nets have nothing in common at the start."""
    found, net = e.readings.correlation, e.subject.net
    if net is None or found is None or found > MIN_CORRELATION or net.init.sets_heads:
        return
    formula = f"1 − ρ + ρ·cos(h, h′) with a generated share ρ = {net.share:g}"
    seen = f"the weights of two conditions have correlation {found:.2f}, which is {formula}"
    cause = (
        "nearly all that a net has is generated from the code of its condition, so that what one condition teaches is "
        "of no use to the others: right where they have nothing in common, slow where they do"
    )
    remedy = "HyperNet(…, share=0.1), which starts nine tenths of the variance as a base that all conditions share"
    yield Finding(FindingName.UNRELATED, "note", (), seen, cause, remedy)


def unpredicted(e: Evidence) -> Iterator[Finding]:
    """Find weights without a target, so that nothing was compared with it."""
    if without := {t.tensor: t.equation for t in e.readings.tensors if t.target is None}:
        severity: Severity = "warning" if len(without) == len(e.readings.tensors) else "note"
        seen = "its scale was not compared with anything: in the plain nets it is as it is here"
        cause, remedy = next(iter(without.values())), "say what the layer does with @hyperfan.rule"
        yield Finding(FindingName.NO_PREDICTION, severity, tuple(without), seen, cause, remedy)
