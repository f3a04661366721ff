"""Heads whose codes never change: train what they make, and leave them alone until someone looks.

Let C (m, d_k) be the codes that share a head and W = C·H + 1·βᵀ what it makes. With G = ∂L/∂W, the gradients are CᵀG
and 1ᵀG, so that a step of SGD on (H, β) moves W by

    W ← W − η·K·G,    K = C·Cᵀ + 1·1ᵀ  (m, m)

and momentum, Nesterov and weight decay, linear all of them, act on W as they would on H. Nothing of the size of H is
touched. All that H can have become is

    H = s·H₀ + q·V₀ − Cᵀ·D        V = r·H₀ + p·V₀ + Cᵀ·B

from what it was, H₀, and the momentum V₀ it came with; the numbers (s, q) and (r, p) follow the same rule with the
gradient left out. Multiplying by C gives D = K⁻¹·(s·W₀ + q·M₀ − W) and B = K⁻¹·(M − r·W₀ − p·M₀), with M the momentum
of W. That needs K to be well conditioned: √cond(K) is what recovery loses in precision.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.hypernet.changes import fingerprint, versions
from hyperfan.hypernet.heads import Head
from hyperfan.optim.lowrank import Factor, LowRank, Value
from hyperfan.optim.rule import Settings, update

Momentum = tuple[Tensor, Tensor]
"""The momentum buffers of a head's weight and bias."""

CONDITION_LIMIT = 1e4
FEW = 4
"""Up to so many codes, adding rows one by one is faster than putting them together for a product."""


def gram(codes: Tensor) -> Tensor:
    """K, in double precision."""
    c = codes.detach().double()
    return c @ c.T + 1


class Collapsed:
    """One head, trained through what it makes.

    Args:
        head: the head.
        name: what to call it in messages.
        codes: (m, d_k), which the caller never changes.
        shape: of the tensors it makes.
    """

    def __init__(self, head: Head, name: str, codes: Tensor, shape: Sequence[int]) -> None:
        self.head, self.name, self.shape = head, name, tuple(shape)
        self.codes = codes.to(head.weight.dtype)
        self.gram = gram(codes)
        self._weights: list[list[float]] = self.gram.tolist()
        self.made: Tensor | None = None
        self._versions: object = None
        self._fingerprint = torch.empty(0)
        self.ahead = False
        """Whether ``made`` has been trained since the head was last written."""

    def refresh(self, momentum_of: Callable[[str], Momentum | None], thorough: bool) -> None:
        """Make W, or make it anew if the head was changed by someone else."""
        watched = (self.head.weight, self.head.bias)
        if self.made is not None and (
            self._versions != versions(watched)
            or ((thorough or not self.ahead) and not torch.equal(self._fingerprint, fingerprint(watched)))
        ):
            self._refuse_if_ahead()
            self.made = None
        if self.made is None:
            momentum = momentum_of(self.name)
            with torch.no_grad():
                self.made = torch.addmm(self.head.bias, self.codes, self.head.weight)
            self._start = momentum
            self._momentum = None if momentum is None else torch.addmm(momentum[1], self.codes, momentum[0])
            self._shares = torch.tensor([1.0, 0.0], dtype=torch.float64)
            self._momentum_shares = None if momentum is None else torch.tensor([0.0, 1.0], dtype=torch.float64)
            self._versions, self._fingerprint = versions(watched), fingerprint(watched)

    def step(self, factor: Factor, scale: float, settings: Settings) -> None:
        """One step of SGD on W."""
        assert self.made is not None

        def add(target: Tensor, alpha: float, beta: float) -> None:
            if len(self.codes) > FEW:
                target.addmm_(self.gram.to(target), factor.matrix, alpha=alpha * scale, beta=beta)
                return
            if beta != 1:
                target.mul_(beta)
            for row, weights in zip(target.unbind(0), self._weights, strict=True):
                for g, weight in zip(factor.rows, weights, strict=True):
                    row.add_(g, alpha=alpha * scale * weight)

        self._momentum = update(self.made, self._momentum, add, settings)
        self._momentum_shares = update(self._shares, self._momentum_shares, _add_nothing, settings)
        self.ahead = True

    def recover(self) -> Momentum | None:
        """Write the head, and return its momentum buffers. What is made afterwards is made from the head."""
        made = self.made
        if made is None or not self.ahead:
            return None
        weight, bias = self.head.weight, self.head.bias
        watched = (weight, bias)
        if self._versions != versions(watched) or not torch.equal(self._fingerprint, fingerprint(watched)):
            self._refuse_if_ahead()
        self.ahead, self.made = False, None
        inverse = torch.linalg.inv(self.gram).to(self.codes)
        first = torch.addmm(bias, self.codes, weight)
        zero = (torch.zeros((), dtype=weight.dtype, device=weight.device),) * 2
        (start, start_bias), (s, q) = self._start or zero, self._shares.tolist()
        first_momentum = 0.0 if self._start is None else torch.addmm(start_bias, self.codes, start)
        recovered: Momentum | None = None
        if self._momentum is not None:
            assert self._momentum_shares is not None
            r, p = self._momentum_shares.tolist()
            b = inverse @ (self._momentum - r * first - p * first_momentum)
            recovered = (
                torch.addmm(r * weight + p * start, self.codes.T, b),
                r * bias + p * start_bias + b.sum(0),
            )
        d = inverse @ (s * first + q * first_momentum - made)
        for target, its_start in ((weight, start), (bias, start_bias)):
            if s != 1:
                target.mul_(s)
            if q != 0:
                target.add_(its_start, alpha=q)
        weight.addmm_(self.codes.T, d, alpha=-1)
        bias.sub_(d.sum(0))
        return recovered

    def _refuse_if_ahead(self) -> None:
        if self.ahead:
            raise HyperfanError(
                f"head '{self.name}' was written to while its weights were being trained without it, so those steps "
                "would be lost: call opt.sync() (or read net.parameters()) before changing parameters by hand"
            )


def _add_nothing(target: Tensor, alpha: float, beta: float) -> None:
    if beta != 1:
        target.mul_(beta)


class Rows(torch.autograd.Function):
    """What collapsed heads make, as tensors whose gradients become factors of the heads' gradients."""

    @staticmethod
    def forward(ctx: Any, heads: Sequence[Collapsed], *parameters: Tensor) -> Any:
        """One tensor for each code of each head; ``parameters`` are weight and bias of each, for autograd to see."""
        ctx.heads = heads
        return tuple(rows(heads))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The factors, as gradients of weight and bias."""
        flat = [g.reshape(-1) for g in grads]
        out: list[Tensor | None] = []
        for head in ctx.heads:
            m = len(head.codes)
            value = Value(((Factor(head.codes, [g.to(head.codes.dtype) for g in flat[:m]]), 1.0),))
            flat = flat[m:]
            out += [LowRank(head.head.weight, value), LowRank(head.head.bias, Value(value.parts))]
        return None, *out


def rows(heads: Sequence[Collapsed]) -> list[Tensor]:
    """What the heads make, tensor by tensor."""
    made: list[Tensor] = []
    for head in heads:
        assert head.made is not None
        made += head.made.view(-1, *head.shape).unbind(0)
    return made
