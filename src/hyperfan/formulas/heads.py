"""From the variance ``v`` that a generated tensor should have to the variance of its head."""

import math


def head_variance(target: float, moment: float) -> float:
    """The head's variance by the master formula: W = H·h has Var(W) = Var(H)·‖h‖², so Var(H) = v/‖h‖².

    ``moment`` is ‖h‖² of a known code, or d_k·E[h²] in expectation. It is the second moment, not the variance:
    after a ReLU trunk they differ.

    >>> head_variance(target=1 / 500, moment=50.0)
    4e-05
    """
    return target / moment


def uniform_bound(variance: float) -> float:
    """The bound a of U(−a, a) with this variance: Var = a²/3, so a = √(3·Var)."""
    return math.sqrt(3 * variance)
