"""The rule behind every generator: the variance of a tensor that is written as a contraction.

Write the tensor in index notation, as ``torch.einsum`` does. If the factors are independent of each other and have mean
zero, but for at most one, the terms of the sum are uncorrelated, and

    Var = (number of terms summed) · (product of the factors' mean squares).

A linear head W_ij = Σ_k H_ijk·h_k is "ijk,k->ij"; a chunk with an input layer is "ijk,kl,l->ij"; a product of two
generated factors W_ij = Σ_r U_ir·V_jr, with U = A·h and V = B·h, is "irk,k,jrl,l->ij".

The caveat: a factor that stands twice, as the code h of the low-rank case, is not independent of itself. The rule is
then exact for a known h, whose mean square is ‖h‖²/d; over random codes E[‖h‖⁴] > E[‖h‖²]² adds to it. And a variance
says nothing about correlations: what one factor makes from nearly equal codes is nearly equal. Where such values are
summed, as over the ranks r of "ik,rk,jl,rl->ij", an index that the heads do not have, more terms count than there are:
:func:`overlapping_terms`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hyperfan.errors import InitError

LINEAR_HEAD = "ijk,k->ij"
"""W_ij = Σ_k H_ijk·h_k, with Var(W) = Var(H)·‖h‖². Here ‖h‖² = d_k·E[h²] is the second moment, not the variance: after
a ReLU trunk they differ."""


def contraction_variance(expression: str, sizes: Mapping[str, float], mean_squares: Sequence[float]) -> float:
    """Variance of a contraction of independent factors.

    Args:
        expression: as in ``einsum``: the indices of each factor, and of the result.
        sizes: how many values each summed index takes.
        mean_squares: E[x²] of each factor.

    >>> contraction_variance("ijk,k->ij", {"k": 50}, [4e-5, 1.0])
    0.002
    """
    left, arrow, result = expression.partition("->")
    factors = left.split(",")
    if not arrow or not all(factors):
        raise InitError(f"'{expression}' is no contraction: write the factors and the result, as in 'ijk,k->ij'")
    summed = [i for i in dict.fromkeys("".join(factors)) if i not in result]
    missing = [i for i in summed if i not in sizes]
    if missing:
        raise InitError(f"'{expression}' sums over {', '.join(missing)}, of which the size is not given")
    if len(mean_squares) != len(factors):
        raise InitError(f"'{expression}' has {len(factors)} factors, but {len(mean_squares)} mean squares were given")
    return math.prod(sizes[i] for i in summed) * math.prod(mean_squares)


def overlapping_terms(count: float, overlap: float) -> float:
    """Number of terms that counts where terms share both of their heads, and differ only in their codes.

    Two terms r and s, each a product of two values that the same two heads make, have the covariance (h_r·h_s)²,
    against the variance ‖h‖⁴ of one. With the mean of cos²(h_r, h_s) over pairs as ``overlap`` that is
    R + R·(R − 1)·overlap; of unrelated codes of d_k coordinates the overlap is 1/d_k.

    >>> overlapping_terms(8, 0.0), overlapping_terms(8, 1.0)
    (8.0, 64.0)
    """
    return count * (1 + (count - 1) * overlap)


class Contraction(NamedTuple):
    """A generated tensor in index notation.

    Args:
        expression: as for :func:`contraction_variance`.
        sizes: how many values each summed index takes.
        mean_squares: E[x²] of each factor, ``None`` for those that are heads.
        solution: the variance of these heads, as text, from v, the variance of the tensor.
    """

    expression: str
    sizes: Mapping[str, float]
    mean_squares: Sequence[float | None]
    solution: str = "v/‖c·h‖²"

    @property
    def is_linear(self) -> bool:
        """Whether only one of the factors is a head, so that the tensor is linear in its parameters."""
        return sum(square is None for square in self.mean_squares) == 1

    def variance(self, heads: float) -> float:
        """Variance of the tensor, if its heads have this variance."""
        squares = [heads if m is None else m for m in self.mean_squares]
        return contraction_variance(self.expression, self.sizes, squares)
