"""The bound of a uniform distribution from its variance."""

import math


def uniform_bound(variance: float) -> float:
    """The bound a of U(−a, a) with this variance: Var = a²/3, so a = √(3·Var)."""
    return math.sqrt(3 * variance)
