"""The checks on each generated tensor's variance, with the mistake that explains it, and on the noise in it."""

import math
from collections.abc import Iterator

from torch import nn

from hyperfan.probe.checks.mistakes import Case, explain
from hyperfan.probe.checks.remedies import reduce_noise, restart_heads
from hyperfan.probe.diagnosis import Finding, FindingName, Scale, TensorReading
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.targets import find_targets

MAX_VARIANCE_RATIO = 1.5
"""Realised over target variance, from which on the scale is wrong. The smallest usual mistake makes 1.9."""
MAX_VARIANCE_RATIO_UNKNOWN_CODE = 2.5
"""That ratio where the code is not known: a small embedding scatters by as much as 2. Leaving out √3 makes 3."""
MAX_NOISE_SHARE = 0.5
"""Share of noise in a tensor's mean square."""


def wrong_scale(e: Evidence) -> Iterator[Finding]:
    """Find generated tensors whose variance is off, grouped by the mistake that explains it."""
    for group, mistake in explain([_case(e, t) for t in off_target(e)]):
        ratios = [c.realised / c.target for c in group]
        low, high = min(ratios), max(ratios)
        shown = f"{low:.3g}" if high < 1.1 * low else f"{low:.3g} to {high:.3g}"
        first = group[0]
        worst = max(abs(math.log(r)) for r in ratios)
        yield Finding(
            FindingName.WRONG_SCALE,
            "error" if worst > math.log(10) else "warning",
            tuple(c.tensor for c in group),
            f"variance {shown} times the target; '{first.tensor}' has {first.realised:.3g} and should have "
            f"{first.target:.3g} ({e.targets[first.tensor].equation})",
            mistake or "no usual mistake gives this ratio: was the net trained, or the head set by hand?",
            restart_heads(e, [c.tensor for c in group]),
        )


def noise(e: Evidence) -> Iterator[Finding]:
    """Find generated tensors with more noise than signal."""
    noisy = {name: share for name, share in e.noise.items() if share > MAX_NOISE_SHARE}
    if noisy:
        worst = max(noisy.values())
        ratio = "all there is" if worst > 0.999 else f"{worst / (1 - worst):.3g} times the signal"
        yield Finding(
            FindingName.NOISE,
            "warning",
            tuple(noisy),
            f"in the generated tensor's mean square, the noise is {ratio}",
            "the noise on the embedding is wider than the embedding itself, so each draw is nearly another net",
            reduce_noise(e),
        )


def unpredicted(e: Evidence) -> Iterator[Finding]:
    """Find weights without a target, so that nothing was compared with it."""
    without = {name: t.equation for name, t in e.targets.items() if t.variance is None}
    if without:
        yield Finding(
            FindingName.NO_PREDICTION,
            "warning" if len(without) == len(e.targets) else "note",
            tuple(without),
            "its scale was not compared with anything: in the plain nets it is as it is here",
            next(iter(without.values())),
            "say what the layer does with @hyperfan.rule",
        )


def off_target(e: Evidence) -> list[TensorReading]:
    """The generated tensors whose variance is off."""
    if e.subject.code_known:
        return [t for t in e.readings.tensors if _is_off(t.realised, t.target, MAX_VARIANCE_RATIO)]
    # Started by the paper's table or by the exact reading: it is not known which.
    paper, factor = find_targets(e.subject, "paper"), MAX_VARIANCE_RATIO_UNKNOWN_CODE
    return [
        t
        for t in e.readings.tensors
        if _is_off(t.realised, t.target, factor) and _is_off(t.realised, paper[t.tensor].variance, factor)
    ]


def _is_off(realised: Scale, target: float | None, factor: float) -> bool:
    if not target or not 0 < realised.value < math.inf:
        return False
    # Many tensors are looked at, and small ones scatter widely: five standard errors are too many by chance.
    factor = max(factor, (realised.high / realised.value) ** 2.5)
    return not 1 / factor <= realised.value / target <= factor


def _case(e: Evidence, t: TensorReading) -> Case:
    source = next(s for s in e.subject.sources if s.tensor.name == t.tensor)
    layer, fans = e.targets[t.tensor].reading, source.tensor.fans
    assert layer is not None
    assert t.target is not None
    module = e.subject.skeleton.module.get_submodule(source.tensor.layer)
    return Case(
        t.tensor,
        t.realised.value,
        t.target,
        layer,
        fans.receptive if fans else 1,
        module.groups if isinstance(module, nn.modules.conv._ConvNd) else 1,
        source.width,
        source.outputs,
        source.moment,
    )
