"""Conditioned hypernets of one structure side by side, with the mainnets they make under many conditions at once.

The first dimension of every tensor counts runs, so that a product for all runs is one call.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from hyperfan.experiments.conditions import Optimiser
from hyperfan.hypernet import HyperNet

BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 1e-2
"""Torch's defaults for AdamW."""
TRUNK, HEAD, TABLE = "trunk.0", "heads", "table"
Tensors = dict[str, Tensor]


def values_of(net: HyperNet) -> Tensors:
    """What a hypernet with one hidden layer and separate heads is trained by, its heads side by side."""
    heads = [net.heads.head(name) for name in net.heads.names]
    assert net.trunk is not None
    values = {
        **{f"trunk.{name}": p for name, p in net.trunk.named_parameters()},
        f"{HEAD}.weight": torch.cat([head.weight for head in heads], 1),
        f"{HEAD}.bias": torch.cat([head.bias for head in heads]),
    }
    if net.embeddings.config.tasks is not None:
        values[TABLE] = net.embeddings.get_parameter("weight").squeeze(-2)
    return {name: t.detach().clone() for name, t in values.items()}


class Stack:
    """Hypernets of one structure, each with a mainnet of linear layers, and an optimiser.

    Args:
        nets: values, as :func:`values_of` has them, which are trained at each rate.
        rates: learning rates. Runs are counted nets fastest.
        widths: of the mainnet's layers, from its inputs to its outputs.
        nonlinearity: between them.
        optimiser: how they are trained.
    """

    def __init__(
        self,
        nets: Sequence[Tensors],
        rates: Sequence[float],
        widths: Sequence[int],
        nonlinearity: Callable[[Tensor], Tensor],
        optimiser: Optimiser,
    ) -> None:
        self.rates, self.widths, self.nonlinearity, self.optimiser = rates, widths, nonlinearity, optimiser
        runs = [*nets] * len(rates)
        self.theta = {name: torch.stack([values[name] for values in runs]) for name in runs[0]}
        self.past = torch.empty(len(runs), 0, 0)
        """What was generated for earlier tasks when the present one began, (run, task, values)."""
        self.mask: Tensor | None = None
        """1 for values that depend on the condition, and 0 for those that do not; by default all do."""
        self.means: Tensors = {}
        self.squares: Tensors = {}
        self.begin(0)

    # ── what it computes ───────────────────────────────────────────────────────────────────────────────────────────

    def conditions(self, theta: Tensors, chosen: Tensor) -> Tensor:
        """The conditions themselves, or the rows of the table that these indices choose: (run, condition, size)."""
        if chosen.is_floating_point():
            return chosen
        return theta[TABLE].gather(1, chosen.unsqueeze(-1).expand(-1, -1, theta[TABLE].shape[-1]))

    def codes(self, theta: Tensors, chosen: Tensor) -> Tensor:
        """What the heads read, (run, condition, width)."""
        bias = theta[f"{TRUNK}.bias"].unsqueeze(1)
        return torch.baddbmm(bias, self.conditions(theta, chosen), theta[f"{TRUNK}.weight"].mT).relu()

    def generate(self, theta: Tensors, chosen: Tensor) -> Tensor:
        """All values of the mainnet under each condition, (run, condition, values)."""
        weight = theta[f"{HEAD}.weight"] if self.mask is None else theta[f"{HEAD}.weight"] * self.mask
        return torch.baddbmm(theta[f"{HEAD}.bias"].unsqueeze(1), self.codes(theta, chosen), weight)

    def call(self, values: Tensor) -> Callable[[Tensor], Tensor]:
        """The mainnets with these values, (run, condition, values)."""
        pairs = list(itertools.pairwise(self.widths))
        parts = torch.split(values, [size for before, after in pairs for size in (before * after, after)], -1)
        layers = [
            (parts[2 * i].reshape(-1, after, before).mT, parts[2 * i + 1].reshape(-1, 1, after))
            for i, (before, after) in enumerate(pairs)
        ]

        def run(x: Tensor) -> Tensor:
            found = x.reshape(-1, *x.shape[2:])
            for i, (weight, bias) in enumerate(layers):
                found = torch.baddbmm(bias, found if i == 0 else self.nonlinearity(found), weight)
            return found.view(*x.shape[:-1], -1)

        return run

    # ── how it learns ──────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, task: int) -> None:
        """Before the first step on a task: start the optimiser anew, and remember what is made for earlier ones."""
        if self.optimiser == "AdamW":
            self.means, self.squares = ({n: torch.zeros_like(t) for n, t in self.theta.items()} for _ in range(2))
        if task:
            with torch.no_grad():
                self.past = self.generate(self.theta, self._tasks(task))

    def _tasks(self, count: int) -> Tensor:
        """The indices of the first tasks, for every run."""
        return torch.arange(count).expand(len(self.past), -1)

    def step(self, loss: Callable[[Tensors], Tensor], count: int, beta: float = 0.0) -> Tensor:
        """One step of each run, the ``count``-th of its optimiser; returns the losses before it, (run).

        Args:
            loss: from parameters to the losses of every run under each condition.
            count: from 1.
            beta: weight of the squared change of all that was made for earlier tasks.
        """
        theta = {name: t.detach().requires_grad_() for name, t in self.theta.items()}
        losses = loss(theta).mean(1)
        if beta and (earlier := self.past.shape[1]):
            drift = self.generate(theta, self._tasks(earlier)) - self.past
            losses = losses + beta * drift.square().sum((1, 2)) / earlier
        found = torch.autograd.grad(losses.sum(), list(theta.values()))
        # The fused kernel reads memory in order, and gradients of transposed weights come transposed.
        grads = {name: grad.contiguous() for name, grad in zip(theta, found, strict=True)}
        size = len(losses) // len(self.rates)
        for i, lr in enumerate(self.rates):
            self._update(slice(i * size, (i + 1) * size), lr, grads, count)
        return losses.detach()

    @torch.no_grad()
    def _update(self, runs: slice, lr: float, grads: Tensors, count: int) -> None:
        if self.optimiser == "SGD":
            for name, t in self.theta.items():
                t[runs].sub_(grads[name][runs], alpha=lr)
            return
        adamw(
            [t[runs] for t in self.theta.values()],
            [grads[name][runs] for name in self.theta],
            [self.means[name][runs] for name in self.theta],
            [self.squares[name][runs] for name in self.theta],
            max_exp_avg_sqs=[],
            state_steps=[torch.tensor(count - 1.0) for _ in self.theta],
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=lr,
            weight_decay=DECAY,
            eps=EPS,
            maximize=False,
        )

    # ── what a checkpoint holds ────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> Tensors:
        """All that changes in training."""
        parts = {"theta": self.theta, "mean": self.means, "square": self.squares}
        return {**{f"{part}/{name}": t for part, held in parts.items() for name, t in held.items()}, "past": self.past}

    def load(self, state: Tensors) -> None:
        """Restore such a state."""
        self.theta, self.means, self.squares = (
            {name.removeprefix(f"{part}/"): t for name, t in state.items() if name.startswith(f"{part}/")}
            for part in ("theta", "mean", "square")
        )
        self.past = state["past"]
