"""``SGD``: the results of torch.optim.SGD, without the head's gradient.

SGD is linear, so what maps make can be trained in their place, and the maps left alone until someone looks.
With G = ∂L/∂W, the gradients of a head W = C·H + 1·βᵀ are CᵀG and 1ᵀG, so that a step of SGD on (H, β) moves W by

    W ← W − η·K·G,    K = C·Cᵀ + 1·1ᵀ  (m, m)

and momentum, Nesterov and weight decay, linear all of them, act on W as they would on H. Nothing of the size of H is
touched. All that H can have become is

    H = s·H₀ + q·V₀ − Cᵀ·D        V = r·H₀ + p·V₀ + Cᵀ·B

from what it was, H₀, and the momentum V₀ it came with; the numbers (s, q) and (r, p) follow the same rule with the
gradient left out. Multiplying by C gives D = K⁻¹·(s·W₀ + q·M₀ − W) and B = K⁻¹·(M − r·W₀ − p·M₀), with M the momentum
of W. That needs K to be well conditioned: √cond(K) is what recovery loses in precision.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from hyperfan.generators.part import Part
from hyperfan.optim.factor import Factor, add_to_, addmm_
from hyperfan.optim.form import Form, Group, State
from hyperfan.optim.gradient import FactoredGradient
from hyperfan.optim.map_trainer import StepRule
from hyperfan.optim.optimiser import HyperNetOptimiser
from hyperfan.optim.plan import TrainingKind

CONDITION_LIMIT = 1e4
RANK_PER_THREAD = 24
"""Up to so many rows, one product of the factors δᵀ·x of all layers is faster than G, written out, and K·G.

It multiplies more and moves less through memory: threads share the one, and not the other.
"""
MOMENTUM, MOMENTUM_OF_OUTPUTS = "momentum_buffer", "momentum_of_outputs"
"""Keys of the optimiser's state: torch's buffer, and, in its place while a map is collapsed, M."""
Add = Callable[[Tensor, float, float], object]
"""``add(target, alpha, beta)``: target ← beta·target + alpha·gradient, in place."""


def update(p: Tensor, buffer: Tensor | None, add: Add, group: Group) -> Tensor | None:
    """One step of torch.optim.SGD on ``p`` in place; returns its momentum buffer.

    Every term is linear in parameter, buffer and gradient, so the same rule holds for W = C·H + β as for H and β.
    """
    lr, momentum, decay = float(group["lr"]), float(group["momentum"]), float(group["weight_decay"])
    sign, shrink = -1.0 if group["maximize"] else 1.0, 1 - lr * decay
    if momentum == 0:
        add(p, -lr * sign, shrink)
        return buffer
    if buffer is None:
        buffer = p * decay if decay else torch.zeros_like(p)
        add(buffer, sign, 1.0)
    else:
        undamped = 1 - float(group["dampening"])
        if decay:
            buffer.mul_(momentum).add_(p, alpha=undamped * decay)
        add(buffer, undamped * sign, 1.0 if decay else momentum)
    if group["nesterov"]:
        add(p, -lr * sign, shrink)
        p.add_(buffer, alpha=-lr * momentum)
    else:
        p.add_(buffer, alpha=-lr)
    return buffer


class Collapsed(Form):
    """One map, trained by SGD through what it makes."""

    def __init__(self, part: Part, codes: Tensor, state: Callable[[], State]) -> None:
        super().__init__(part, codes, state)
        exact = self.codes.detach().double()
        self.gram = exact @ exact.mT + 1
        """K, in double precision."""
        self._factor = self.gram.item() if self.gram.numel() == 1 else None
        self._shares = torch.tensor([1.0, 0.0], dtype=torch.float64)
        self._momentum_shares: Tensor | None = None
        self._start: tuple[Tensor, Tensor] | None = None
        self._memory: Tensor | None = None

    def why_impossible(self) -> str | None:
        """Why the map could not be recovered from what its codes made."""
        if len({self.held_state(p, MOMENTUM) is None for p in self.pair}) > 1:
            return "only one of its parameters has momentum"
        condition = float(torch.linalg.cond(self.gram).max())
        return None if condition <= CONDITION_LIMIT else f"its codes are nearly dependent (condition {condition:.0e})"

    def make(self) -> None:
        """Compute W from the head, and its momentum from the head's, which nobody can read or change meanwhile."""
        super().make()
        weight, bias = (self.held_state(p, MOMENTUM) for p in self.pair)
        self._start = None if weight is None or bias is None else (weight, bias)
        self._shares = torch.tensor([1.0, 0.0], dtype=torch.float64)
        self._momentum_shares = None
        if self._start is not None:
            self._set_state(MOMENTUM_OF_OUTPUTS, self.through(*self._start))
            self._momentum_shares = torch.tensor([0.0, 1.0], dtype=torch.float64)

    def step(self, factor: Factor, scale: float, group: Group) -> None:
        """One step of SGD on W. Its momentum is in the optimiser's state: who empties that forgets it."""
        assert self.outputs is not None
        self.check_state(MOMENTUM_OF_OUTPUTS)

        def add(target: Tensor, alpha: float, beta: float) -> None:
            self._add(target, factor, alpha * scale, beta)

        held = self._state().get(self.weight, {}).get(MOMENTUM_OF_OUTPUTS)
        shares = None if held is None else self._momentum_shares
        momentum = update(self.outputs, held, add, group)
        self._momentum_shares = update(self._shares, shares, _add_nothing, group)
        if momentum is not None and held is None:
            self._set_state(MOMENTUM_OF_OUTPUTS, momentum)
        self.ahead = True

    def write(self) -> None:
        """Recover the head, and its momentum."""
        momentum = self._state().get(self.weight, {}).get(MOMENTUM_OF_OUTPUTS)
        if self.outputs is None or not (self.ahead and self.holds()):
            if momentum is not None:
                self._set_state(MOMENTUM, *(self._start or ()))
            self.outputs = None
            return
        self.check_state(MOMENTUM_OF_OUTPUTS)
        first = self.through(self.weight, self.bias)
        zero = torch.zeros((), dtype=first.dtype, device=first.device)
        start, start_bias = (zero, zero) if self._start is None else self._start
        first_momentum = zero if self._start is None else self.through(start, start_bias)
        recovered: tuple[Tensor, ...] = ()
        if momentum is not None and self._momentum_shares is not None:
            r, p = self._momentum_shares.tolist()
            recovered = (r * self.weight + p * start, r * self.bias + p * start_bias)
            self._back(recovered[0], recovered[1], self._solve(momentum - r * first - p * first_momentum), 1.0)
        s, q = self._shares.tolist()
        d = self._solve(s * first + q * first_momentum - self.outputs)
        self.ahead, self.outputs = False, None  # from here on nothing is left to fail
        for target, its_start in ((self.weight, start), (self.bias, start_bias)):
            if s != 1:
                target.mul_(s)
            if q != 0:
                target.add_(its_start, alpha=q)
        self._back(self.weight, self.bias, d, -1.0)
        if momentum is not None:
            self._set_state(MOMENTUM, *recovered)

    def _set_state(self, key: str, *values: Tensor) -> None:
        """Hold momentum in the optimiser's state under this key alone: for both parameters, for each, or none."""
        for p, value in itertools.zip_longest(self.pair, values * 2 if len(values) == 1 else values):
            entry = self._state()[p]
            for old in (MOMENTUM, MOMENTUM_OF_OUTPUTS):
                entry.pop(old, None)
            if value is not None:
                entry[key] = value

    # ── the linear algebra ─────────────────────────────────────────────────────────────────────────────────────────

    def _solve(self, outputs: Tensor) -> Tensor:
        """K⁻¹ times something of the shape of W."""
        inverse: Tensor = torch.linalg.inv(self.gram)
        return inverse.to(self.codes) @ outputs

    def _back(self, weight: Tensor, bias: Tensor, d: Tensor, alpha: float) -> None:
        """Add alpha·CᵀD and alpha·1ᵀD, in place."""
        addmm_(weight, self.codes.mT, d, alpha)
        bias.add_(d.sum(-2), alpha=alpha)

    def _add(self, target: Tensor, factor: Factor, alpha: float, beta: float) -> None:
        """``target ← beta·target + alpha·K·G``."""
        if self._factor is not None and not isinstance(factor.grads, Tensor):
            (row,) = factor.grads  # one code: its gradient need not be multiplied out
            add_to_(target.view(row.shape), row, alpha * self._factor, beta)
            return
        gram, products = self.gram.to(target), factor.products(RANK_PER_THREAD * torch.get_num_threads())
        if products is not None:
            a, b = products
            mixed = gram[:, None, :, None] * a[:, :, None]  # (m, rank, m, n): that of layer j in layer i's step
            addmm_(target.view(-1, b.shape[-1]), mixed.flatten(2).flatten(0, 1).mT, b.flatten(0, 1), alpha, beta)
            return
        if self._memory is None:
            self._memory = torch.empty_like(target)
        addmm_(target, gram, factor.join(self._memory), alpha, beta)


def _add_nothing(target: Tensor, alpha: float, beta: float) -> None:
    if beta != 1:
        target.mul_(beta)


class SGDRule(StepRule):
    """SGD on gradients in factors."""

    def why_dense(self, part: Part) -> None:
        """None: SGD trains every map faster by its structure."""

    def why_not_collapsed(self, part: Part, group: Group) -> None:
        """None: SGD can collapse every map whose codes are constant."""

    def form(self, part: Part, codes: Tensor, state: Callable[[], State]) -> Form:
        """The form of a map whose outputs are trained in its place."""
        return Collapsed(part, codes, state)

    def step(self, p: Tensor, state: State, grad: FactoredGradient, group: Group) -> bool:
        """Multiply the factors into the parameter, or into its momentum."""
        held = state.get(p, {}).get(MOMENTUM)
        buffer = update(p, None if held is None else held.to(p), grad.add_to_, group)
        if group["momentum"]:
            state[p][MOMENTUM] = buffer
        return True

    def saved_state(self, part: Part, kind: TrainingKind, group: Group) -> int:
        """The momentum of a collapsed map, but that of what it makes."""
        momentum = bool(group["momentum"]) and kind == "collapsed"
        weight, bias = part.map.held
        return momentum * (weight.numel() + bias.numel() * (1 - part.gradient_rank))

    def compiled(self, part: Part) -> bool:
        """False: a step of SGD is mostly products of matrices, which gain nothing."""
        return False


class SGD(HyperNetOptimiser, torch.optim.SGD):
    """Stochastic gradient descent on a hypernet: the results of :class:`torch.optim.SGD`, for a fraction of its work.

    Heads whose codes are constant are *collapsed*: the weights they make are trained in their place, at the price of
    training the mainnet, and the heads are recovered when someone looks (``net.state_dict()``, ``net.parameters()``,
    a copy). Other heads are *factored*: their gradient is never written out. ``opt.plan`` tells which, and why.

    Args:
        net: a :class:`HyperNet`, or a module that holds some.
        args, options: those of torch.optim.SGD from lr on; foreach and fused are for what is not a head's.
        params: parameters or groups as torch takes them; by default all parameters of the net in one group.

    >>> from torch import nn
    >>> from hyperfan import HyperNet
    >>> net = HyperNet(nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10)), embedding=50)
    >>> opt = SGD(net, lr=5e-4)
    >>> print(opt.plan)
    head     codes  plan       saves    because
    ───────  ─────  ─────────  ───────  ──────────────────────
    500x784      1  collapsed  78.4 MB  its codes are constant
    10x500       1  collapsed  1.0 MB   its codes are constant
    saves 79.4 MB in all
    """

    rule = SGDRule()
    torch_class = torch.optim.SGD
