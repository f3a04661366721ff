"""The factors of a gradient Cᵀ·G: the codes C that a map read, and the gradients G of what it made of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError


class Factor:
    """Codes, and the gradients of what they made: Cᵀ·G, or, for the bias, 1ᵀ·G.

    Args:
        codes: (m, d_k) for a map that all codes share, (layers, 1, d_k) where each has a layer of its own.
        grads: (m, outputs) or (layers, 1, outputs); or m tensors, which may be factored themselves.
    """

    __slots__ = ("_sum", "_versions", "codes", "grads")

    def __init__(self, codes: Tensor, grads: Tensor | Sequence[Tensor]) -> None:
        self.codes, self.grads = codes, grads
        self._versions = self._count_changes()
        self._sum: tuple[Factor, Factor] | None = None

    def _count_changes(self) -> list[int]:
        return [g._version for g in ([self.grads] if isinstance(self.grads, Tensor) else self.grads)]

    def check(self) -> None:
        """Raise if the gradients, of which autograd may have given someone else the same tensors, were changed."""
        if self._versions != self._count_changes():
            raise HyperfanError(
                "a gradient was changed in place after backward(), by whoever gave it to backward() or saw it in a "
                "hook, while a head's gradient is still to be made from it: change a copy, or change it after the step"
            )

    @property
    def matrix(self) -> Tensor:
        """The gradients of all outputs, in one tensor."""
        if not isinstance(self.grads, Tensor):
            self.grads = self.join(self.codes.new_empty(len(self.grads), self.grads[0].numel()))
            self.accept()
        return self.grads

    def join(self, memory: Tensor) -> Tensor:
        """The gradients of all outputs, joined in this memory if they are in several tensors.

        To ask for new memory can take as long as to fill it.
        """
        if isinstance(self.grads, Tensor):
            return self.grads
        self.write_to(memory, 1.0)
        return memory

    def products(self, max_rank: float) -> tuple[Tensor, Tensor] | None:
        """A (m, rank, n) and B (m, rank, k) if each of several gradients is Aᵀ·B (n, k), up to this rank in all."""
        if isinstance(self.grads, Tensor):
            return None
        found = (getattr(grad, "product", None) for grad in self.grads)
        pairs: list[tuple[Tensor, Tensor]] = [pair for pair in found if pair is not None]
        alike = len(pairs) == len(self.grads) and len({(a.shape, b.shape) for a, b in pairs}) == 1
        if not alike or len(pairs) * len(pairs[0][0]) > max_rank:
            return None
        a, b = (torch.stack(factors) for factors in zip(*pairs, strict=True))
        return a, b

    @property
    def row_size(self) -> int:
        """The number of values in one code's row of gradients."""
        return self.grads.shape[-1] if isinstance(self.grads, Tensor) else self.grads[0].numel()

    def write_to(self, memory: Tensor, scale: float) -> None:
        """Write the gradients times a scale to memory of shape (layers, m, outputs)."""
        if isinstance(self.grads, Tensor):
            torch.mul(self.grads.view(memory.shape), scale, out=memory)
        else:
            for target, row in zip(memory.view(-1, memory.shape[-1]), self.grads, strict=True):
                add_to_(target.view(row.shape), row, scale, 0.0)

    def accept(self) -> None:
        """Take the gradients as they are now, changed in place on purpose."""
        self._versions = self._count_changes()

    @property
    def rank(self) -> int:
        """The largest rank that the weight's gradient can have, or that of each layer."""
        return self.codes.shape[-2]

    def plus(self, other: "Factor") -> "Factor":
        """The sum of two factors of the same codes; one sum for the weight's and the bias's gradient."""
        if self._sum is None or self._sum[0] is not other:
            ours, theirs = self.grads, other.grads
            if isinstance(ours, Tensor) or isinstance(theirs, Tensor):
                total: Tensor | list[Tensor] = self.matrix + other.matrix
            else:
                total = [a + b for a, b in zip(ours, theirs, strict=True)]
            self._sum = (other, Factor(self.codes, total))
        return self._sum[1]

    def add_to_(self, target: Tensor, alpha: float, beta: float, summed: bool) -> None:
        """``target ← beta·target + alpha·Cᵀ·G``, in whatever shape the target has; or 1ᵀ·G if summed."""
        if not summed:
            target = target.view(*self.codes.shape[:-2], self.codes.shape[-1], -1)
            if len(self.codes) == 1 and target.ndim == 2:  # twice as fast as a product
                target.addr_(self.codes[0], self.matrix[0], alpha=alpha, beta=beta)
            else:
                addmm_(target, self.codes.mT, self.matrix, alpha, beta)
        elif isinstance(self.grads, Tensor):
            add_to_(target, self.matrix.sum(-2), alpha, beta)
        else:
            for row in self.grads:
                add_to_(target.view(row.shape), row, alpha, beta)
                beta = 1.0

    def overlap(self, other: "Factor") -> Tensor:
        """The inner product of two weights' gradients: the sum over (C·C′ᵀ)∘(G·G′ᵀ), which is small."""
        return ((self.codes @ other.codes.mT) * (self.matrix @ other.matrix.mT)).sum()


def addmm_(target: Tensor, a: Tensor, b: Tensor, alpha: float, beta: float = 1.0) -> Tensor:
    """``target ← beta·target + alpha·a·b``, of matrices or of batches of them."""
    return (target.addmm_ if target.ndim == 2 else target.baddbmm_)(a, b, alpha=alpha, beta=beta)


def add_to_(target: Tensor, gradient: Tensor, alpha: float, beta: float) -> None:
    """``target ← beta·target + alpha·gradient``, which may be factored; with beta = 0 whatever the target holds."""
    factored = getattr(gradient, "add_to_", None)
    if factored is not None:
        factored(target, alpha, beta)
    elif beta == 0:
        torch.mul(gradient, alpha, out=target)
    else:
        (target.mul_(beta) if beta != 1 else target).add_(gradient, alpha=alpha)
