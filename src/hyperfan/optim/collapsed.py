"""Linear maps whose codes never change: train what they make, and leave them alone until someone looks.

Let C (m, d_k) be the codes that share a head and W = C·H + 1·βᵀ what it makes. With G = ∂L/∂W, the gradients are CᵀG
and 1ᵀG, so that a step of SGD on (H, β) moves W by

    W ← W − η·K·G,    K = C·Cᵀ + 1·1ᵀ  (m, m)

and momentum, Nesterov and weight decay, linear all of them, act on W as they would on H. Nothing of the size of H is
touched. All that H can have become is

    H = s·H₀ + q·V₀ − Cᵀ·D        V = r·H₀ + p·V₀ + Cᵀ·B

from what it was, H₀, and the momentum V₀ it came with; the numbers (s, q) and (r, p) follow the same rule with the
gradient left out. Multiplying by C gives D = K⁻¹·(s·W₀ + q·M₀ − W) and B = K⁻¹·(M − r·W₀ − p·M₀), with M the momentum
of W. That needs K to be well conditioned: √cond(K) is what recovery loses in precision.

The input layers of chunks are the same with one code for each layer, so that K is a number for each, ‖e‖² + 1.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.base import Part
from hyperfan.hypernet.changes import fingerprint, versions
from hyperfan.optim.factor import Blocks, Factor
from hyperfan.optim.gradient import gradients, is_batched
from hyperfan.optim.rule import Settings, update

Momentum = tuple[Tensor, Tensor]
"""The momentum buffers of a head's weight and bias."""

CONDITION_LIMIT = 1e4
MAX_ROWS_ONE_BY_ONE = 4
"""Codes up to which adding rows one by one is faster than stacking them for a product."""


class Collapsed:
    """One map, trained through what it makes.

    Args:
        weight, bias: of the map.
        name: for messages.
        codes: (m, d_k), which the caller never changes.
    """

    def __init__(self, weight: Tensor, bias: Tensor, name: str, codes: Tensor) -> None:
        self.weight, self.bias, self.name = weight, bias, name
        self.codes = codes.to(weight.dtype)
        self.count = len(codes)
        """Number of tensors that the map makes."""
        self.gram = self._gram(codes.detach().double())
        """K, in double precision."""
        self.outputs: Tensor | None = None
        self._versions: object = None
        self._fingerprint = torch.empty(0)
        self.ahead = False
        """Whether ``outputs`` has been trained since the head was last written."""

    def make(self, momentum: Momentum | None) -> None:
        """Compute W from the head, and its momentum from the head's."""
        self._start = momentum
        self.outputs = self._through(self.weight, self.bias)
        self._momentum = None if momentum is None else self._through(*momentum)
        self._shares = torch.tensor([1.0, 0.0], dtype=torch.float64)
        self._momentum_shares = None if momentum is None else torch.tensor([0.0, 1.0], dtype=torch.float64)
        self._versions, self._fingerprint = versions((self.weight, self.bias)), fingerprint((self.weight, self.bias))
        self._outputs_fingerprint = fingerprint((self.outputs,))

    def holds(self, thorough: bool = True) -> bool:
        """Whether W is what the head made, and what was trained since. Raises if that would be lost."""
        assert self.outputs is not None
        if not self.ahead and not torch.equal(self._outputs_fingerprint, fingerprint((self.outputs,))):
            raise HyperfanError(
                f"what '{self.name}' makes was changed in place, as by the mainnet itself, while it was "
                "being trained in the head's place: call opt.use('factored'), or let the mainnet change a copy"
            )
        pair = (self.weight, self.bias)
        same = self._versions == versions(pair)
        if same and (thorough or not self.ahead):
            same = torch.equal(self._fingerprint, fingerprint(pair))
        if not same and self.ahead:
            raise HyperfanError(
                f"'{self.name}' was written to, by hand or by another optimiser, while what it makes was being "
                "trained without it. Before that, call opt.sync(), or opt.release() to hand over for good; now only "
                "opt.release(discard=True) is left, which drops the steps since the last sync"
            )
        return same

    def why_unrecoverable(self) -> str | None:
        """Why the map cannot be recovered from what its codes made, if so."""
        condition = float(torch.linalg.cond(self.gram))
        if condition <= CONDITION_LIMIT:
            return None
        return f"its codes are nearly dependent (condition number {condition:.0e})"

    def forget_momentum(self) -> None:
        """Drop the momentum, as if its buffers had been taken from the optimiser's state."""
        self._momentum = self._momentum_shares = None

    @property
    def has_momentum(self) -> bool:
        """Whether there is momentum of W."""
        return self.outputs is not None and self._momentum is not None

    def step(self, factor: Factor, scale: float, settings: Settings) -> None:
        """One step of SGD on W."""
        assert self.outputs is not None

        def add(target: Tensor, alpha: float, beta: float) -> None:
            self._add(target, factor, alpha * scale, beta)

        self._momentum = update(self.outputs, self._momentum, add, settings)
        self._momentum_shares = update(self._shares, self._momentum_shares, _add_nothing, settings)
        self.ahead = True

    def recover(self) -> Momentum | None:
        """Write the head, and return its momentum buffers. What is made afterwards is made from the head."""
        if self.outputs is None or not (self.ahead and self.holds()):
            self.outputs = None
            return None
        first = self._through(self.weight, self.bias)
        zero = torch.zeros((), dtype=first.dtype, device=first.device)
        (start, start_bias), first_momentum = (zero, zero), zero
        if self._start is not None:
            start, start_bias = self._start
            first_momentum = self._through(start, start_bias)
        recovered: Momentum | None = None
        if self._momentum is not None and self._momentum_shares is not None:
            r, p = self._momentum_shares.tolist()
            recovered = (r * self.weight + p * start, r * self.bias + p * start_bias)
            self._back(*recovered, self._solve(self._momentum - r * first - p * first_momentum), 1.0)
        s, q = self._shares.tolist()
        d = self._solve(s * first + q * first_momentum - self.outputs)
        self.ahead, self.outputs = False, None  # from here on nothing is left to fail
        for target, its_start in ((self.weight, start), (self.bias, start_bias)):
            if s != 1:
                target.mul_(s)
            if q != 0:
                target.add_(its_start, alpha=q)
        self._back(self.weight, self.bias, d, -1.0)
        return recovered

    def tensors(self) -> Sequence[Tensor]:
        """The outputs, a tensor for each code."""
        assert self.outputs is not None
        return self.outputs.unbind(0)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """These tensors in one, as the map itself would make it."""
        return torch.stack(tuple(tensors))

    def gradients(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Of weight and bias, from those of the tensors made; none if none of these was used."""
        seen = [g for g in grads if g is not None]
        if not seen:
            return [None, None]
        flat = [torch.zeros_like(self.bias) if g is None else g.reshape(-1) for g in grads]
        if any(map(is_batched, seen)):
            rows = torch.stack(flat)
            return [self.codes.T @ rows, rows.sum(0)]
        return [*gradients(Factor(self.codes, flat), self.weight, self.bias)]

    # ── the linear algebra ─────────────────────────────────────────────────────────────────────────────────────────

    def _gram(self, codes: Tensor) -> Tensor:
        return codes @ codes.T + 1

    @cached_property
    def _columns(self) -> list[list[float]]:
        columns: list[list[float]] = self.gram.T.tolist()
        return columns

    def _through(self, weight: Tensor, bias: Tensor) -> Tensor:
        """C·H + 1·βᵀ."""
        return torch.addmm(bias, self.codes, weight)

    def _solve(self, outputs: Tensor) -> Tensor:
        """K⁻¹ times something of the shape of W."""
        inverse: Tensor = torch.linalg.inv(self.gram)
        return inverse.to(self.codes) @ outputs

    def _back(self, weight: Tensor, bias: Tensor, d: Tensor, alpha: float) -> None:
        """Add alpha·CᵀD and alpha·1ᵀD, in place."""
        weight.addmm_(self.codes.T, d, alpha=alpha)
        bias.add_(d.sum(0), alpha=alpha)

    def _add(self, target: Tensor, factor: Factor, alpha: float, beta: float) -> None:
        """``target ← beta·target + alpha·K·G``."""
        if self.count > MAX_ROWS_ONE_BY_ONE:
            target.addmm_(self.gram.to(target), factor.matrix, alpha=alpha, beta=beta)
            return
        if beta != 1:
            target.mul_(beta)
        rows = target.unbind(0)
        for g, column in zip(factor.rows, self._columns, strict=True):  # each g is read from memory once
            for row, weight in zip(rows, column, strict=True):
                row.add_(g, alpha=alpha * weight)


class CollapsedBlocks(Collapsed):
    """Many small maps, each with one code, trained through what they make.

    Args:
        weight, bias: of all maps, (b, size, width) and (b, width).
        name: what to call them in messages.
        codes: (b, size), which the caller never changes.
    """

    def __init__(self, weight: Tensor, bias: Tensor, name: str, codes: Tensor) -> None:
        super().__init__(weight, bias, name, codes)
        self.count = 1

    def tensors(self) -> Sequence[Tensor]:
        """What all maps make, in one tensor."""
        assert self.outputs is not None
        return (self.outputs.view_as(self.outputs),)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """The only tensor, which has the outputs of all maps."""
        return tensors[0]

    def gradients(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Of weight and bias, from that of the codes."""
        (codes,) = grads
        if codes is None:
            return [None, None]
        if is_batched(codes):
            return [self.codes.unsqueeze(2) * codes.unsqueeze(1), codes.clone()]
        return [*gradients(Blocks(self.codes, codes), self.weight, self.bias)]

    def why_unrecoverable(self) -> str | None:
        """Nothing: where each map has one code, K is a number of at least 1."""
        return None

    def _gram(self, codes: Tensor) -> Tensor:
        return codes.square().sum(1, keepdim=True) + 1

    def _through(self, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.baddbmm(bias.unsqueeze(1), self.codes.unsqueeze(1), weight).squeeze(1)

    def _solve(self, outputs: Tensor) -> Tensor:
        return outputs / self.gram.to(outputs)

    def _back(self, weight: Tensor, bias: Tensor, d: Tensor, alpha: float) -> None:
        weight.baddbmm_(self.codes.unsqueeze(2), d.unsqueeze(1), alpha=alpha)
        bias.add_(d, alpha=alpha)

    def _add(self, target: Tensor, factor: Factor, alpha: float, beta: float) -> None:
        (target.mul_(beta) if beta != 1 else target).addcmul_(self.gram.to(target), factor.matrix, value=alpha)


def _add_nothing(target: Tensor, alpha: float, beta: float) -> None:
    if beta != 1:
        target.mul_(beta)


class Rows(torch.autograd.Function):
    """What a collapsed map makes, as tensors whose gradients become factors of the map's gradient."""

    @staticmethod
    def forward(ctx: Any, collapsed: Collapsed, weight: Tensor, bias: Tensor) -> Any:
        """One tensor for each code; ``weight`` and ``bias`` are the map's, for autograd to see."""
        ctx.collapsed = collapsed
        ctx.set_materialize_grads(False)
        return tuple(collapsed.tensors())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The factors, as gradients of weight and bias."""
        return None, *ctx.collapsed.gradients(grads)


def collapse(part: Part, codes: Tensor) -> Collapsed:
    """The collapsed form of a map, from (n, d_k) codes."""
    form = CollapsedBlocks if part.map.layer_per_code else Collapsed
    return form(*part.map.held, part.name, codes)
