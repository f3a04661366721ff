"""The check for overflow and NaN, and where they began."""

import math
from collections.abc import Iterator

import torch

from hyperfan.probe.checks.remedies import restart
from hyperfan.probe.diagnosis import Finding, FindingName
from hyperfan.probe.evidence import Evidence


def not_finite(e: Evidence) -> Iterator[Finding]:
    """Find the first layer whose output is not finite, or a loss that is not."""
    first = next((r.layer for r in e.layers if not math.isfinite(r.measured.value)), None)
    if first is not None:
        yield Finding(
            FindingName.VALUES_NOT_FINITE,
            "error",
            (first,),
            f"'{first}' is the first layer whose output overflows or is not a number",
            *_cause_and_remedy(e),
        )
    elif e.measured.loss is None:
        yield Finding(
            FindingName.LOSS_NOT_FINITE,
            "error",
            (),
            "every layer is finite, the loss is not",
            "the loss overflows on outputs of this scale, or counts none of them"
            if e.y_is_finite
            else "y holds values that are not finite",
            restart(e) if e.y_is_finite else "mend y",
        )


def _cause_and_remedy(e: Evidence) -> tuple[str, str]:
    for tensors, title in ((e.generated, "the generated tensor"), (e.subject.plain, "the mainnet's own")):
        bad = [n for n, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
        if bad:
            return f"{title} '{bad[0]}' holds values that are not finite", restart(e)
    if not all(torch.isfinite(t).all() for t in e.subject.inputs):
        return "the inputs hold values that are not finite", "x = torch.nan_to_num(x), or mend the data"
    return "the weights before it are too large", restart(e)
