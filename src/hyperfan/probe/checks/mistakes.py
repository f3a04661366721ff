"""Mistakes that make a generated tensor of the wrong scale: each predicts a variance, and the nearest is named.

Many have been made in public code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_LOG_ERROR = math.log(1.16)
"""How near a mistake's variance must come to the realised one, in logarithms: gains of 2, 2.5 and 3 are distinct."""
MAX_LOG_ERROR_UNKNOWN_CODE = math.log(1.45)
"""The same where the code is not known, which scatters with one embedding of some dozens by so much."""
MIN_LOG_LEAD = 0.03
"""How much nearer one mistake must be than another to be named alone."""
MAX_MISTAKES_NAMED = 2


@dataclass(frozen=True)
class Case:
    """A generated tensor of the wrong scale.

    Args:
        tensor: its name.
        realised, target: its variance, and what that should be.
        fan_in, fan_out, gain, receptive, groups: of its layer.
        branch: the part of the variance that its residual branch may carry.
        bias_generated: whether the layer's bias is generated too.
        width, outputs, moment: d_k, number of values and ‖h‖² of its head, where they are known.
    """

    tensor: str
    realised: float
    target: float
    fan_in: float
    fan_out: float
    gain: float
    receptive: int
    groups: int
    branch: float
    bias_generated: bool
    width: int | None
    outputs: int | None
    moment: float | None


@dataclass(frozen=True)
class Mistake:
    """A usual mistake, and the variance it leads to; ``None`` where it cannot be made."""

    text: str
    variance: Callable[[Case], float | None]


def _code(c: Case) -> float:
    """‖h‖²/d_k, which is 1 for an embedding of unit variance."""
    return c.moment / c.width if c.moment is not None and c.width else 1.0


MISTAKES = (
    Mistake(
        "the standard deviation was used as the bound of a uniform distribution: the factor √3 is left out",
        lambda c: c.target / 3,
    ),
    Mistake(
        "the bound of a uniform distribution was used as a standard deviation: the factor √3 is one too many",
        lambda c: c.target * 3,
    ),
    Mistake("the gain of the nonlinearity is missing", lambda c: c.target / c.gain),
    Mistake("the gain of the nonlinearity is in twice (doubled)", lambda c: c.target * c.gain),
    Mistake("the receptive field is forgotten: fan-in counts channels only", lambda c: c.target * c.receptive),
    Mistake("the groups are forgotten: fan-in counts the channels of all groups", lambda c: c.target / c.groups),
    Mistake(
        "the fan-in of the head was used: Var(H) = 1/d_k makes weights of variance 1, whatever their layer",
        _code,
    ),
    Mistake(
        "the fan-in of the head was used, with ReLU's gain (Kaiming): Var(H) = 2/d_k makes weights of variance 2",
        lambda c: 2 * _code(c),
    ),
    Mistake(
        "the fan-in of the head was used, with the layer's gain (Kaiming): Var(H) = gain/d_k, whatever its size",
        lambda c: c.gain * _code(c),
    ),
    Mistake(
        "the fan-in of the head was used, as nn.Linear does by default: Var(H) = 1/(3·d_k) makes variances of 1/3",
        lambda c: _code(c) / 3,
    ),
    Mistake(
        "the fan-out of the head was used: Var(H) = 1/outputs",
        lambda c: None if c.moment is None or not c.outputs else c.moment / c.outputs,
    ),
    Mistake(
        "the fan-out of the head was used, with ReLU's gain (Kaiming): Var(H) = 2/outputs",
        lambda c: None if c.moment is None or not c.outputs else 2 * c.moment / c.outputs,
    ),
    Mistake(
        "the fan-out of the head was used, with the layer's gain (Kaiming): Var(H) = gain/outputs",
        lambda c: None if c.moment is None or not c.outputs else c.gain * c.moment / c.outputs,
    ),
    Mistake(
        "both fans of the head were used (Xavier): Var(H) = 2/(d_k + outputs)",
        lambda c: None if c.moment is None or not c.outputs or not c.width else 2 * c.moment / (c.width + c.outputs),
    ),
    Mistake(
        "d_k is forgotten: the head has the variance that the generated weights should have",
        lambda c: None if c.moment is None else c.target * c.moment,
    ),
    Mistake(
        "d_k was taken from the wrong axis: the head's number of outputs divides, not its inputs",
        lambda c: None if c.moment is None or not c.outputs else c.target * c.moment / c.outputs,
    ),
    Mistake(
        "the embedding's variance is forgotten: Var(H) = v/d_k holds for Var(e) = 1 only",
        lambda c: None if c.moment is None else c.target * _code(c),
    ),
    Mistake("fan-out and fan-in are swapped", lambda c: c.target * c.fan_in / c.fan_out),
    Mistake(
        "the bias' share is forgotten: weights and generated biases carry half each",
        lambda c: c.target * 2 if c.bias_generated else None,
    ),
    Mistake(
        "the head's bias is as nn.Linear starts it, with variance 1/(3·d_k), and should be zero",
        lambda c: None if c.width is None else c.target + 1 / (3 * c.width),
    ),
    Mistake(
        "the depth is forgotten: a residual branch may carry 1/blocks of the variance", lambda c: c.target / c.branch
    ),
    Mistake("the variance was used as the standard deviation", lambda c: c.target**2 / (c.moment or 1.0)),
    Mistake(
        "the standard deviation was used as the variance",
        lambda c: math.sqrt(c.target / (c.moment or 1.0)) * (c.moment or 1.0),
    ),
    Mistake("it is as nn.Linear starts a plain layer: variance 1/(3·fan-in)", lambda c: 1 / (3 * c.fan_in)),
)


def explain(cases: Sequence[Case]) -> list[tuple[list[Case], str]]:
    """Group tensors by the mistake that explains them; an empty text for those that none explains.

    A mistake is made once and shows everywhere, so the one that explains most tensors is named first.
    """
    left, found = list(cases), []
    while left:
        explained = {m: [c for c in left if _log_error(m, c) < _max_log_error(c)] for m in MISTAKES}
        most = max(explained.values(), key=len)
        if not most:
            found.append((left, ""))
            break
        errors = {m: max(_log_error(m, c) for c in most) for m in MISTAKES if explained[m] == most}
        nearest = min(errors.values())
        named: dict[tuple[float | None, ...], str] = {}
        for m, error in errors.items():
            if error <= nearest + MIN_LOG_LEAD:  # of two with the same variances, the first
                named.setdefault(tuple(m.variance(c) for c in most), m.text)
        found.append((most, "; or ".join(list(named.values())[:MAX_MISTAKES_NAMED])))
        left = [c for c in left if c not in most]
    return found


def _max_log_error(case: Case) -> float:
    return MAX_LOG_ERROR_UNKNOWN_CODE if case.moment is None else MAX_LOG_ERROR


def _log_error(mistake: Mistake, case: Case) -> float:
    """Distance from the realised variance, in logarithms; infinite if the mistake changes nothing here."""
    variance = mistake.variance(case)
    if variance is None or variance <= 0 or abs(math.log(variance / case.target)) < MAX_LOG_ERROR:
        return math.inf
    return abs(math.log(case.realised / variance))
