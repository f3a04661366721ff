"""The check on each generated tensor's variance, with the mistake that explains it."""

import math
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from hyperfan.init.asked import Asked
from hyperfan.probe.checks.mistakes import Case, explain
from hyperfan.probe.checks.remedies import remake
from hyperfan.probe.diagnosis import Finding, TensorReading
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.subject import OurNet

OFF = 1.5
"""Realised over target variance, from which on the scale is wrong. The smallest usual mistake makes 1.9."""
OFF_UNKNOWN = 2.5
"""The same where nobody knows the code: a small embedding scatters by as much as 2. Leaving out √3 makes 3."""


def wrong_scale(e: Evidence) -> Iterator[Finding]:
    """Generated tensors whose variance is off, by the mistake that made it so."""
    if isinstance(e.subject, OurNet):
        off = [t for t in e.tensors if _off(t, OFF)]
    else:  # started by the paper's table or by the exact reading: nobody knows which
        paper = Asked(e.subject.slots, e.subject.method, "paper")
        off = [t for t in e.tensors if _off(t, OFF_UNKNOWN) and _off(_by(paper, t), OFF_UNKNOWN)]
    cases = [_case(e, t) for t in off]
    for group, mistake in explain(cases):
        ratios = [c.realised / c.target for c in group]
        low, high = min(ratios), max(ratios)
        told = f"{low:.3g}" if high < 1.1 * low else f"{low:.3g} to {high:.3g}"
        first = group[0]
        worst = max(abs(math.log(r)) for r in ratios)
        yield Finding(
            "wrong scale of a head",
            "error" if worst > math.log(10) else "warning",
            tuple(c.tensor for c in group),
            f"variance {told} times the target; '{first.tensor}' has {first.realised:.3g} and should have "
            f"{first.target:.3g} ({e.wanted[first.tensor].equation})",
            mistake or "no usual mistake gives this ratio: was the net trained, or the head set by hand?",
            remake(e, [c.tensor for c in group]),
        )


def _by(asked: Asked, t: TensorReading) -> TensorReading:
    """The same tensor beside what another reading wants of it."""
    return replace(t, target=asked.of(t.tensor)[1].target) if t.target else t


def _off(t: TensorReading, factor: float) -> bool:
    if not t.target or not 0 < t.realised.value < math.inf:
        return False
    ratio = t.realised.value / t.target
    # Many tensors are looked at, and small ones scatter widely: five standard errors are too many by chance.
    chance = (t.realised.high / t.realised.value) ** 2.5
    return not 1 / max(factor, chance) <= ratio <= max(factor, chance)


def _case(e: Evidence, t: TensorReading) -> Case:
    slot = next(s for s in e.subject.slots if s.tensor.name == t.tensor)
    read = e.wanted[t.tensor].reading
    assert read is not None
    assert t.target is not None
    module = e.subject.module.get_submodule(slot.tensor.layer)
    ours = isinstance(e.subject, OurNet)
    return Case(
        t.tensor,
        t.realised.value,
        t.target,
        read.fan_in,
        read.fan_out,
        read.gain_in,
        slot.tensor.fans.receptive if slot.tensor.fans else 1,
        module.groups if isinstance(module, nn.modules.conv._ConvNd) else 1,
        read.branch,
        read.bias_generated,
        e.subject.width(slot),
        slot.outputs if ours else None,
        slot.moment,
    )
