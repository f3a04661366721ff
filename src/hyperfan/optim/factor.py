"""The factors of a linear map's gradient: the codes that it read, and the gradients of what it made of them."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Factor:
    """Codes (m, d_k), and the gradients of what they made: (m, outputs), or a row for each.

    The gradients of a head's weight and bias share their factors.
    """

    __slots__ = ("_sum", "codes", "grads")
    dimensions = 2
    """Of the weight whose gradient it makes; the bias has one less."""

    def __init__(self, codes: Tensor, grads: Tensor | Sequence[Tensor]) -> None:
        self.codes, self.grads = codes, grads
        self._sum: tuple[Factor, Factor] | None = None

    @property
    def rows(self) -> Sequence[Tensor]:
        """The gradient of each tensor, one by one."""
        return self.grads.unbind(0) if isinstance(self.grads, Tensor) else self.grads

    @property
    def matrix(self) -> Tensor:
        """The gradients of all tensors, in one."""
        if not isinstance(self.grads, Tensor):
            one = len(self.grads) == 1
            self.grads = self.grads[0].unsqueeze(0) if one else torch.stack(tuple(self.grads))
        return self.grads

    def plus(self, other: "Factor") -> "Factor":
        """The sum of two factors of the same codes; one sum for the weight's and the bias's gradient."""
        if self._sum is None or self._sum[0] is not other:
            added = [a + b for a, b in zip(self.rows, other.rows, strict=True)]
            self._sum = (other, type(self)(self.codes, added))
        return self._sum[1]

    def clone(self) -> "Factor":
        """A copy of the gradients with the same codes."""
        return type(self)(self.codes, [row.clone() for row in self.rows])

    @property
    def rank(self) -> int:
        """The largest rank that the weight's gradient can have."""
        return len(self.codes)

    def add_to_(self, target: Tensor, alpha: float, beta: float) -> None:
        """Add a multiple of the gradient to beta·target, which has the shape of the weight or of the bias."""
        if target.ndim == 2 and len(self.codes) == 1:  # twice as fast as a product
            target.addr_(self.codes[0], self.rows[0], alpha=alpha, beta=beta)
        elif target.ndim == 2:
            target.addmm_(self.codes.T, self.matrix, alpha=alpha, beta=beta)
        else:
            for row in self.rows:
                (target.mul_(beta) if beta != 1 else target).add_(row, alpha=alpha)
                beta = 1.0

    def overlap(self, other: "Factor") -> Tensor:
        """The inner product of two weights' gradients: the sum over (C·C′ᵀ)∘(G·G′ᵀ), which is small."""
        return ((self.codes @ other.codes.T) * (self.matrix @ other.matrix.T)).sum()


class Blocks(Factor):
    """The same for many small layers, each with a code of its own: (b, d) and (b, outputs).

    Their weights are one tensor (b, d, outputs), of which block i has the gradient codesᵢ ⊗ gradsᵢ; their biases are
    one of (b, outputs).
    """

    __slots__ = ()
    dimensions = 3

    @property
    def rows(self) -> Sequence[Tensor]:
        """The gradients of all layers, in one tensor."""
        return (self.matrix,)

    @property
    def matrix(self) -> Tensor:
        """The gradient of what each layer made."""
        return self.grads if isinstance(self.grads, Tensor) else self.grads[0]

    @property
    def rank(self) -> int:
        """That of each block's gradient."""
        return 1

    def add_to_(self, target: Tensor, alpha: float, beta: float) -> None:
        """Add a multiple of the gradient to beta·target, block by block."""
        if target.ndim == 3:
            target.baddbmm_(self.codes.unsqueeze(2), self.matrix.unsqueeze(1), alpha=alpha, beta=beta)
        else:
            (target.mul_(beta) if beta != 1 else target).add_(self.matrix, alpha=alpha)

    def overlap(self, other: Factor) -> Tensor:
        """The inner product of two weights' gradients, summed over blocks."""
        return ((self.codes * other.codes).sum(1) * (self.matrix * other.matrix).sum(1)).sum()
