"""Mistakes that make a generated tensor of the wrong scale: each predicts a variance, and the nearest is named.

Many have been made in public code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hyperfan.init.registry import Reading

MAX_LOG_ERROR = math.log(1.16)
"""Distance of a mistake's variance from the realised one, in logarithms: gains of 2, 2.5 and 3 are distinct."""
MAX_LOG_ERROR_UNKNOWN_CODE = math.log(1.45)
"""That distance where the code is not known, which scatters by so much with one embedding of some dozens of values."""
MIN_LOG_LEAD = 0.03
"""Distance by which one mistake must be nearer than another to be named alone."""
MAX_MISTAKES_NAMED = 2


@dataclass(frozen=True)
class Case:
    """A generated tensor of the wrong scale. What is not known is NaN, and so is all that follows from it.

    Args:
        tensor: its name.
        realised, target: its variance, and what that should be.
        layer: fans, gains, residual branch and biases, as the init method sees them.
        receptive, groups: of its layer.
        width, outputs, moment: d_k, number of values and ‖h‖² of its head.
    """

    tensor: str
    realised: float
    target: float
    layer: Reading
    receptive: int
    groups: int
    width: float
    outputs: float
    moment: float

    @property
    def code(self) -> float:
        """‖h‖²/d_k, which is 1 for an embedding of unit variance, and taken to be 1 where it is not known."""
        return 1.0 if math.isnan(self.moment / self.width) else self.moment / self.width

    @property
    def known_moment(self) -> float:
        """‖h‖², taken to be 1 where it is not known."""
        return 1.0 if math.isnan(self.moment) else self.moment


@dataclass(frozen=True)
class Mistake:
    """A usual mistake, and the variance it leads to."""

    text: str
    variance: Callable[[Case], float]


MISTAKES = (
    Mistake(
        "the standard deviation was used as the bound of a uniform distribution: the factor √3 is left out",
        lambda c: c.target / 3,
    ),
    Mistake(
        "the bound of a uniform distribution was used as a standard deviation: the factor √3 is one too many",
        lambda c: c.target * 3,
    ),
    Mistake("the gain of the nonlinearity is missing", lambda c: c.target / c.layer.gain_in),
    Mistake("the gain of the nonlinearity is in twice (doubled)", lambda c: c.target * c.layer.gain_in),
    Mistake("the receptive field is forgotten: fan-in counts channels only", lambda c: c.target * c.receptive),
    Mistake("the groups are forgotten: fan-in counts the channels of all groups", lambda c: c.target / c.groups),
    Mistake(
        "the fan-in of the head was used: Var(H) = 1/d_k makes weights of variance 1, whatever their layer",
        lambda c: c.code,
    ),
    Mistake(
        "the fan-in of the head was used, with ReLU's gain (Kaiming): Var(H) = 2/d_k makes weights of variance 2",
        lambda c: 2 * c.code,
    ),
    Mistake(
        "the fan-in of the head was used, with the layer's gain (Kaiming): Var(H) = gain/d_k, whatever its size",
        lambda c: c.layer.gain_in * c.code,
    ),
    Mistake(
        "the fan-in of the head was used, as nn.Linear does by default: Var(H) = 1/(3·d_k) makes variances of 1/3",
        lambda c: c.code / 3,
    ),
    Mistake("the fan-out of the head was used: Var(H) = 1/outputs", lambda c: c.moment / c.outputs),
    Mistake(
        "the fan-out of the head was used, with ReLU's gain (Kaiming): Var(H) = 2/outputs",
        lambda c: 2 * c.moment / c.outputs,
    ),
    Mistake(
        "the fan-out of the head was used, with the layer's gain (Kaiming): Var(H) = gain/outputs",
        lambda c: c.layer.gain_in * c.moment / c.outputs,
    ),
    Mistake(
        "both fans of the head were used (Xavier): Var(H) = 2/(d_k + outputs)",
        lambda c: 2 * c.moment / (c.width + c.outputs),
    ),
    Mistake(
        "d_k is forgotten: the head has the variance that the generated weights should have",
        lambda c: c.target * c.moment,
    ),
    Mistake(
        "d_k was taken from the wrong axis: the head's number of outputs divides, not its inputs",
        lambda c: c.target * c.moment / c.outputs,
    ),
    Mistake(
        "the embedding's variance is forgotten: Var(H) = v/d_k holds for Var(e) = 1 only",
        lambda c: c.target * c.moment / c.width,
    ),
    Mistake("fan-out and fan-in are swapped", lambda c: c.target * c.layer.fan_in / c.layer.fan_out),
    Mistake(
        "the bias' share is forgotten: weights and generated biases carry half each",
        lambda c: c.target * 2 if c.layer.bias_generated else math.nan,
    ),
    Mistake(
        "the head's bias is as nn.Linear starts it, with variance 1/(3·d_k), and should be zero",
        lambda c: c.target + 1 / (3 * c.width),
    ),
    Mistake(
        "the depth is forgotten: a residual branch may carry 1/blocks of the variance",
        lambda c: c.target / c.layer.branch,
    ),
    Mistake("the variance was used as the standard deviation", lambda c: c.target**2 / c.known_moment),
    Mistake(
        "the standard deviation was used as the variance",
        lambda c: math.sqrt(c.target / c.known_moment) * c.known_moment,
    ),
    Mistake("it is as nn.Linear starts a plain layer: variance 1/(3·fan-in)", lambda c: 1 / (3 * c.layer.fan_in)),
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
        named: dict[tuple[float, ...], str] = {}
        for m, error in errors.items():
            if error <= nearest + MIN_LOG_LEAD:  # of two with the same variances, the first
                named.setdefault(tuple(m.variance(c) for c in most), m.text)
        found.append((most, "; or ".join(list(named.values())[:MAX_MISTAKES_NAMED])))
        left = [c for c in left if c not in most]
    return found


def _max_log_error(case: Case) -> float:
    return MAX_LOG_ERROR_UNKNOWN_CODE if math.isnan(case.moment) else MAX_LOG_ERROR


def _log_error(mistake: Mistake, case: Case) -> float:
    """Distance from the realised variance, in logarithms; infinite if the mistake changes nothing here."""
    variance = mistake.variance(case)
    if not variance > 0 or abs(math.log(variance / case.target)) < MAX_LOG_ERROR:
        return math.inf
    return abs(math.log(case.realised / variance))
