"""Many hypernets of one structure as one program: the first dimension of every tensor counts runs.

A product of matrices for all runs is one call, where many small nets would otherwise each cost a call. Heads that read
the same code are one matrix, since a few large products cost less than many small ones.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from hyperfan.hypernet import HyperNet

Tensors = dict[str, Tensor]
Call = Callable[[Tensor], Tensor]
Optimiser = Literal["SGD", "Adam", "AdamW"]
BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 1e-2
"""Torch's defaults; the decay is AdamW's."""
HEAD, HEAD_BIAS = "heads.weight", "heads.bias"


def values_of(net: HyperNet) -> Tensors:
    """The values of a net with a ReLU trunk and separate heads, whose heads are put side by side."""
    heads = [net.heads.head(name) for name in net.heads.names]
    assert net.trunk is not None
    values: Tensors = {f"trunk.{name}": p for name, p in net.trunk.named_parameters()}
    values[HEAD] = torch.cat([head.weight for head in heads], 1)
    values[HEAD_BIAS] = torch.cat([head.bias for head in heads])
    return {name: t.detach().clone() for name, t in values.items()}


class Stack:
    """Hypernets of one structure, each with a mainnet of linear layers, and an optimiser.

    Args:
        nets: values of each, as :func:`values_of` has them, with whatever else is trained; trained at each rate.
        rates: learning rates. Runs are counted nets fastest.
        widths: of the mainnet's layers, from its inputs to its outputs.
        nonlinearity: between them.
        optimiser: how they are trained.

    Attributes:
        theta: what is trained, by name.
        means, squares: the optimiser's moments, if it has any, by the same names.
        past: what was generated for earlier tasks when the present one began, (run, task, values).
    """

    def __init__(
        self,
        nets: Sequence[Tensors],
        rates: Sequence[float],
        widths: Sequence[int],
        nonlinearity: Call,
        optimiser: Optimiser,
    ) -> None:
        self.rates, self.widths, self.nonlinearity, self.optimiser = rates, widths, nonlinearity, optimiser
        runs = [*nets] * len(rates)
        self.theta = {name: torch.stack([values[name] for values in runs]) for name in runs[0]}
        self.past = self.theta[HEAD].new_empty(len(runs), 0, self.theta[HEAD].shape[-1])
        self.means: Tensors = {}
        self.squares: Tensors = {}
        self.reset_moments(self.theta)

    def codes(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """What the heads read: (run, n, size) → (run, n, width)."""
        layers = [name.removesuffix(".weight") for name in theta if name.startswith("trunk.") and "weight" in name]
        for layer in layers:
            bias = theta[f"{layer}.bias"].unsqueeze(1)
            embeddings = torch.baddbmm(bias, embeddings, theta[f"{layer}.weight"].mT).relu()
        return embeddings

    def generate(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """All values of the mainnet from each embedding: (run, n, size) → (run, n, values)."""
        return torch.baddbmm(theta[HEAD_BIAS].unsqueeze(1), self.codes(theta, embeddings), theta[HEAD])

    def call(self, values: Tensor) -> Call:
        """The mainnets with these values, (run, …, values), as a function of (run, …, points, inputs)."""
        pairs = list(itertools.pairwise(self.widths))
        parts = torch.split(values, [size for before, after in pairs for size in (before * after, after)], -1)
        layers = [
            (parts[2 * i].reshape(-1, after, before).mT, parts[2 * i + 1].reshape(-1, 1, after))
            for i, (before, after) in enumerate(pairs)
        ]

        def run(x: Tensor) -> Tensor:
            found = x.flatten(0, -3)
            for i, (weight, bias) in enumerate(layers):
                found = torch.baddbmm(bias, found if i == 0 else self.nonlinearity(found), weight)
            return found.view(*x.shape[:-1], -1)

        return run

    def reset_moments(self, params: Tensors) -> None:
        """Start the optimiser of these parameters anew."""
        if self.optimiser != "SGD":
            self.means, self.squares = ({name: torch.zeros_like(t) for name, t in params.items()} for _ in range(2))

    @torch.no_grad()
    def update_(self, params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, count: int) -> None:
        """The optimiser's step, the ``count``-th, of the runs at each rate."""
        size = len(next(iter(params.values()))) // len(self.rates)
        for i, lr in enumerate(self.rates):
            runs = slice(i * size, (i + 1) * size)
            if self.optimiser == "SGD":
                for name, t in params.items():
                    t[runs].sub_(grads[name][runs], alpha=lr)
                continue
            step = adamw if self.optimiser == "AdamW" else adam
            step(
                [t[runs] for t in params.values()],
                [grads[name][runs] for name in params],
                [means[name][runs] for name in params],
                [squares[name][runs] for name in params],
                max_exp_avg_sqs=[],
                state_steps=[torch.tensor(count - 1.0) for _ in params],
                fused=True,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=lr,
                weight_decay=DECAY if self.optimiser == "AdamW" else 0.0,
                eps=EPS,
                maximize=False,
            )

    def state(self) -> Tensors:
        """All that changes in training."""
        parts = {"theta": self.theta, "mean": self.means, "square": self.squares}
        return {**{f"{part}/{name}": t for part, of in parts.items() for name, t in of.items()}, "past": self.past}

    def load(self, state: Tensors) -> None:
        """Restore what ``state`` returned."""
        self.theta, self.means, self.squares = (
            {name.removeprefix(f"{part}/"): t for name, t in state.items() if name.startswith(f"{part}/")}
            for part in ("theta", "mean", "square")
        )
        self.past = state["past"]


def gradients(losses: Tensor, params: Tensors) -> Tensors:
    """The gradients of all runs' losses by name, in memory order: those of transposed weights come transposed."""
    found = torch.autograd.grad(losses.sum(), list(params.values()))
    return {name: grad.contiguous() for name, grad in zip(params, found, strict=True)}
