"""How a generator reaches the target: from ``v`` to the variance of the head, and what follows for training."""

import math


def head_variance(target: float, moment: float) -> float:
    """The master formula. W = H·h has Var(W) = Var(H)·‖h‖², so Var(H) = v/‖h‖².

    ``moment`` is ‖h‖² of a known code, or d_k·E[h²] in expectation. It is the second moment, not the variance:
    after a ReLU trunk they differ.
    """
    return target / moment


def uniform_bound(variance: float) -> float:
    """The a of U(−a, a): Var = a²/3, so a = √(3·Var)."""
    return math.sqrt(3 * variance)


def rate_factor(moment: float) -> float:
    """One SGD step of η on (H, β) moves W by −η·(‖h‖² + 1)·∂L/∂W, exactly."""
    return moment + 1


def code_gradient_ratio(target: float, moment: float, size: int) -> float:
    """Var(∂L/∂h)/Var(∂L/∂W) = size·Var(H) for a tensor of ``size`` weights.

    For hyperfan-in it is d_i/(d_k·E[h²]), for hyperfan-out d_j/(d_k·E[h²]).

    >>> code_gradient_ratio(target=1 / 500, moment=50.0, size=500 * 500)
    10.0
    """
    return size * head_variance(target, moment)
