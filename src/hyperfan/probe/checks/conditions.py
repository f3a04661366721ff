"""The checks on conditions: contexts or tasks that say which net is wanted."""

import math
from collections.abc import Iterator

from hyperfan.probe.checks.remedies import MAX_SQUARE, MIN_GIVEN_SPREAD, STANDARDISED, standardise
from hyperfan.probe.checks.tensors import off_target
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.findings import Finding, FindingName
from hyperfan.text import times

MAX_SQUARE_RATIO = 10.0
"""Mean square of conditions, and of their codes, over what the heads were started for."""
MIN_SQUARE_RATIO = 1e-3
"""Mean square of conditions over what the heads were started for, where they are too small, which does less harm."""
MAX_STANDARD_ERRORS = 6.0
"""Deviation of the logarithm of that ratio, in its standard errors, that is no accident."""
MIN_SPREAD = 1e-4
"""Variance between conditions, as a share of their mean square, of any that differ."""


def off_scale(e: Evidence) -> Iterator[Finding]:
    """Find conditions of another scale than the heads were started for, where weights on a base do not show it."""
    c = e.conditions
    if c is None or not c.given or off_target(e) or not 0 < c.ratio < math.inf:
        return
    least = max(math.log(_limit(c.ratio)), MAX_STANDARD_ERRORS * math.sqrt(2 / c.values))
    if abs(math.log(c.ratio)) < least or not 0 < c.code_ratio < math.inf:
        return
    if abs(math.log(c.code_ratio)) >= math.log(_limit(c.ratio)):
        seen = f"the conditions given are {times(math.sqrt(c.ratio))} the size that the heads were started for"
        effect = "much faster than the rest" if c.ratio > 1 else "hardly at all"
        cause = (
            "they are not standardised, or std= does not say their standard deviation: most of a weight is common to "
            f"all conditions, so that its scale is right, but the part that depends on them learns {effect}"
        )
        yield Finding(FindingName.CONDITIONS_OFF_SCALE, "warning", (), seen, cause, standardise(e))


def _limit(ratio: float) -> float:
    return MAX_SQUARE_RATIO if ratio > 1 else 1 / MIN_SQUARE_RATIO


def not_standardised(e: Evidence) -> Iterator[Finding]:
    """Find conditions of the scale that the net was told, which is too large to learn from."""
    c, net = e.conditions, e.subject.net
    if c is None or net is None or not c.given or net.embeddings.config.normalise:
        return
    if c.square > MAX_SQUARE and abs(math.log(c.ratio)) < math.log(MAX_SQUARE_RATIO):
        size = math.sqrt(c.square)
        seen = f"the conditions given have a root mean square of {size:.3g}, where 1 is usual"
        cause = (
            "std= or example_embeddings= tell their size, so that the net starts right, but what reads them learns "
            f"{c.square:.2g} times as fast as the rest"
        )
        remedy = f"standardise them, {STANDARDISED} of many conditions, and leave std= out"
        if c.learnt:
            remedy = f"divide the encoder's codes by {size:.3g}, a constant, and pass codes of that size as examples"
        yield Finding(FindingName.CONDITIONS_OFF_SCALE, "warning", (), seen, cause, remedy)


def alike(e: Evidence) -> Iterator[Finding]:
    """Find conditions that do not differ, or hardly; those of an encoder that is trained learn to."""
    c = e.conditions
    least = MIN_GIVEN_SPREAD if c is not None and c.given and not c.learnt else MIN_SPREAD
    if c is None or c.spread is None or not c.spread < least:
        return
    differ = "are equal" if c.spread == 0 else f"differ by {c.spread:.2g} of their mean square"
    kind = "conditions given" if c.given else "tasks' embeddings"
    cause, remedy = "one vector was repeated", "pass a vector for each sample, as net(x, embedding=vectors)"
    if not c.given:
        cause, remedy = "they were set by hand", "net.reset_parameters(), which draws them"
    elif c.learnt:
        cause, remedy = "the encoder makes one code of all", "an encoder that reads what sets the conditions apart"
    elif c.spread > 0:
        cause, remedy = "what they have in common was not subtracted", f"{STANDARDISED}, of many conditions"
    seen = f"the {c.count} {kind} {differ}"
    same = c.spread < MIN_SPREAD
    effect = "all get the same net, and nothing can be" if same else "it fills the codes, and little is"
    cause += f": then {effect} learnt about their difference"
    yield Finding(FindingName.CONDITIONS_ALIKE, "warning", (), seen, cause, remedy)


def without_effect(e: Evidence) -> Iterator[Finding]:
    """Find nets that are the same under all conditions, and learn to differ."""
    net, drawn = e.subject.net, [t.tensor for t in e.readings.tensors if t.target]
    if net is None or e.conditions is None or e.constant or net.heads.config.updates_base:
        return
    if drawn and set(drawn) <= set(e.unconditioned):
        seen = "no generated tensor changes with the condition yet; after one step they do"
        cause = "all of the start is in a base, as with share=0 or Bias-HyperInit: the first step moves the heads alone"
        remedy = "HyperNet(…, share=0.01), if the trunk should learn from the first step on"
        yield Finding(FindingName.UNCONDITIONED, "note", (), seen, cause, remedy)
