"""Mistakes that make a generated tensor of the wrong scale: each leads to a variance, and the nearest is named.

Many have been made in public code.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hyperfan.probe.subject import GeneratedTensor

MAX_LOG_ERROR = math.log(1.16)
"""Distance of a mistake's variance from the realised one, in logarithms: gains of 2, 2.5 and 3 are distinct."""
MAX_LOG_ERROR_UNKNOWN_CODE = math.log(1.45)
"""Such a distance where the code is not known: one embedding of some dozens of values scatters by so much."""
MIN_LOG_LEAD = 0.03
"""Distance by which one mistake must be nearer than another to be named alone."""
MAX_MISTAKES_NAMED = 2
MAX_BIAS_SHARE = 0.1
"""Share of a head's bias in a variance, up to which it does not explain it."""


class Mistake(StrEnum):
    """The mistakes that are known, in words."""

    CONDITIONS_OFF_SCALE = (
        "the conditions given at the call are not of the scale that the heads were started for: they are not "
        "standardised, or std= does not say their standard deviation"
    )
    ROOT_THREE_MISSING = "a standard deviation was used as the bound of a uniform distribution: √3 is left out"
    ROOT_THREE_EXTRA = "the bound of a uniform distribution was used as a standard deviation: √3 is one too many"
    GAIN_MISSING = "the gain of the nonlinearity is missing"
    GAIN_TWICE = "the gain of the nonlinearity is in twice (doubled)"
    RECEPTIVE_FIELD_FORGOTTEN = "the receptive field is forgotten: fan-in counts channels only"
    GROUPS_FORGOTTEN = "the groups are forgotten: fan-in counts the channels of all groups"
    HEAD_FAN_IN = "the fan-in of the head was used: Var(H) = 1/d_k makes weights of variance 1, whatever their layer"
    HEAD_FAN_IN_RELU = "the fan-in of the head was used, with ReLU's gain (Kaiming): Var(H) = 2/d_k, whatever the layer"
    HEAD_FAN_IN_GAIN = "the fan-in of the head was used, with the layer's gain (Kaiming): Var(H) = gain/d_k"
    LINEAR_DEFAULT = "the fan-in of the head was used, as nn.Linear does by default: Var(H) = 1/(3·d_k)"
    HEAD_FAN_OUT = "the fan-out of the head was used: Var(H) = 1/outputs"
    HEAD_FAN_OUT_RELU = "the fan-out of the head was used, with ReLU's gain (Kaiming): Var(H) = 2/outputs"
    HEAD_FAN_OUT_GAIN = "the fan-out of the head was used, with the layer's gain (Kaiming)"
    HEAD_XAVIER = "both fans of the head were used (Xavier): Var(H) = 2/(d_k + outputs)"
    WIDTH_FORGOTTEN = "d_k is forgotten: the head has the variance that the generated weights should have"
    WIDTH_OF_WRONG_AXIS = "d_k was taken from the wrong axis: the head's outputs divide, not its inputs"
    CODE_VARIANCE_FORGOTTEN = "the embedding's variance is forgotten: Var(H) = v/d_k holds for Var(e) = 1 only"
    FANS_SWAPPED = "fan-out and fan-in are swapped"
    BIAS_SHARE_FORGOTTEN = "the bias' share is forgotten: weights and generated biases carry half each"
    LINEAR_BIAS = "the head's bias is as nn.Linear starts it, with variance 1/(3·d_k), and should be zero"
    DEPTH_FORGOTTEN = "the depth is forgotten: a residual branch may carry 1/blocks of the variance"
    FREQUENCY_FORGOTTEN = (
        "the frequency of the sine is forgotten: before sin(ω·z) a variance of 1 lets gradients grow ω² times in each "
        "layer, and 1/ω² does not"
    )
    VARIANCE_AS_DEVIATION = "the variance was used as the standard deviation"
    DEVIATION_AS_VARIANCE = "the standard deviation was used as the variance"
    PLAIN_LINEAR = "it is as nn.Linear starts a plain layer: variance 1/(3·fan-in)"
    UNIT_CODE = (
        "the head has the variance for a code of mean square 1, and its code has another: embedding_var= says which"
    )


@dataclass(frozen=True)
class Case:
    """A generated tensor of the wrong scale.

    Args:
        name, tensor: which it is.
        realised, target, paper_target: the variance it has and should have, by the exact reading and by the paper's.
        groups: those of its layer.
    """

    name: str
    tensor: GeneratedTensor
    realised: float
    target: float
    groups: int
    paper_target: float = math.nan


def variances(c: Case) -> dict[Mistake, float]:
    """The variance that each usual mistake would lead to; NaN where it follows from what is not known."""
    layer, fans, target = c.tensor.reading, c.tensor.spec.fans, c.target
    assert layer is not None
    width, outputs, moment, gain = c.tensor.width, c.tensor.outputs, c.tensor.moment, layer.gain_in
    code = _code_square(c) if math.isnan(moment / width) else moment / width
    length = 1.0 if math.isnan(moment) else moment
    return {
        Mistake.CONDITIONS_OFF_SCALE: target * c.tensor.code_factor,
        Mistake.ROOT_THREE_MISSING: target / 3,
        Mistake.ROOT_THREE_EXTRA: target * 3,
        Mistake.GAIN_MISSING: target / gain,
        Mistake.GAIN_TWICE: target * gain,
        Mistake.RECEPTIVE_FIELD_FORGOTTEN: target * (fans.receptive if fans else 1),
        Mistake.GROUPS_FORGOTTEN: target / c.groups,
        Mistake.HEAD_FAN_IN: code,
        Mistake.HEAD_FAN_IN_RELU: 2 * code,
        Mistake.HEAD_FAN_IN_GAIN: gain * code,
        Mistake.LINEAR_DEFAULT: code / 3,
        Mistake.HEAD_FAN_OUT: moment / outputs,
        Mistake.HEAD_FAN_OUT_RELU: 2 * moment / outputs,
        Mistake.HEAD_FAN_OUT_GAIN: gain * moment / outputs,
        Mistake.HEAD_XAVIER: 2 * moment / (width + outputs),
        Mistake.WIDTH_FORGOTTEN: target * moment,
        Mistake.WIDTH_OF_WRONG_AXIS: target * moment / outputs,
        Mistake.CODE_VARIANCE_FORGOTTEN: target * moment / width,
        Mistake.FANS_SWAPPED: target * layer.fan_in / layer.fan_out,
        Mistake.BIAS_SHARE_FORGOTTEN: target * 2 if layer.bias_generated else math.nan,
        Mistake.LINEAR_BIAS: target + 1 / (3 * width),
        Mistake.DEPTH_FORGOTTEN: target / layer.branch,
        Mistake.FREQUENCY_FORGOTTEN: target / layer.entry,
        Mistake.VARIANCE_AS_DEVIATION: target**2 / length,
        Mistake.DEVIATION_AS_VARIANCE: math.sqrt(target / length) * length,
        Mistake.PLAIN_LINEAR: 1 / (3 * layer.fan_in),
    }


def _code_square(c: Case) -> float:
    """‖h‖²/d_k of a code that is not known: by the values of its head, or 1, as of embeddings of unit variance."""
    made = c.tensor.head_square * c.tensor.width
    return c.realised / made if made > 0 and c.tensor.bias_square < MAX_BIAS_SHARE * c.realised else 1.0


def explain(cases: Sequence[Case]) -> list[tuple[list[Case], str]]:
    """Group tensors by the mistake that explains them; an empty text for those that none explains.

    A mistake is made once and shows everywhere, so the one that explains most tensors is named first.
    """
    made = {c.name: variances(c) for c in cases}
    found: list[tuple[list[Case], str]] = []
    for mistake in (Mistake.LINEAR_DEFAULT, Mistake.UNIT_CODE):
        if seen := [c for c in cases if _seen_in_head(c) is mistake]:
            found.append((seen, mistake.value))
    left = [c for c in cases if not _seen_in_head(c)]
    while left:
        mistakes = list(made[left[0].name])
        explained = {m: [c for c in left if _log_error(made[c.name][m], c) < _max_log_error(c)] for m in mistakes}
        most = max(explained.values(), key=len)
        if not most:
            found.append((left, ""))
            break
        errors = {m: max(_log_error(made[c.name][m], c) for c in most) for m in mistakes if explained[m] == most}
        named: dict[tuple[float, ...], Mistake] = {}
        for m, error in errors.items():
            if error <= min(errors.values()) + MIN_LOG_LEAD:  # of two with the same variances, the first
                named.setdefault(tuple(made[c.name][m] for c in most), m)
        if len(most) > 1:  # then a small tensor, which scatters, may be taken to have it too
            nearest = min(errors, key=lambda m: errors[m])
            near = (c for c in left if _log_error(made[c.name][nearest], c) < MAX_LOG_ERROR_UNKNOWN_CODE)
            most = [*most, *(c for c in near if c not in most)]
        found.append((most, "; or ".join(list(named.values())[:MAX_MISTAKES_NAMED])))
        left = [c for c in left if c not in most]
    return found


def _seen_in_head(c: Case) -> Mistake | None:
    """The mistake that the values of a foreign head show, whatever its code, if they show one."""
    made = c.tensor.head_square * c.tensor.width  # of a code of mean square 1
    if not made > 0:
        return None
    if abs(math.log(3 * made)) < MAX_LOG_ERROR:
        return Mistake.LINEAR_DEFAULT
    right = any(t and abs(math.log(made / t)) < MAX_LOG_ERROR for t in (c.target, c.paper_target))
    return Mistake.UNIT_CODE if right and c.tensor.bias_square < MAX_BIAS_SHARE * c.realised else None


def _max_log_error(case: Case) -> float:
    return MAX_LOG_ERROR_UNKNOWN_CODE if math.isnan(case.tensor.moment) else MAX_LOG_ERROR


def _log_error(variance: float, case: Case) -> float:
    """Distance of a mistake from the realised variance, in logarithms; infinite if it changes nothing here."""
    if not variance > 0 or abs(math.log(variance / case.target)) < MAX_LOG_ERROR:
        return math.inf
    return abs(math.log(case.realised / variance))
