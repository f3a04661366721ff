"""Runs of one structure side by side: a hypernet for each, the mainnets they make, and their paths.

The first dimension of every tensor counts runs. A product of matrices for all runs at once is one call, where the many
small steps of an integration would otherwise each cost a call for each run.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import elu
from torch.optim.adam import adam

from hyperfan.hypernet import HyperNet

BETAS, EPS = (0.9, 0.999), 1e-8
"""Torch's defaults for Adam."""
HEAD, HEAD_BIAS, EMBEDDING = "heads.weight", "heads.bias", "embedding"
Tensors = dict[str, Tensor]


def values_of(net: HyperNet) -> tuple[Tensors, Tensor]:
    """What a hypernet is trained by, its heads side by side, and its embeddings, (task, size)."""
    heads = [net.heads.head(name) for name in net.heads.names]
    assert net.trunk is not None
    values: Tensors = {f"trunk.{name}": p for name, p in net.trunk.named_parameters()}
    values[HEAD] = torch.cat([head.weight for head in heads], 1)
    values[HEAD_BIAS] = torch.cat([head.bias for head in heads])
    embeddings = net.embeddings.get_parameter("weight").squeeze(-2)
    return {name: t.detach().clone() for name, t in values.items()}, embeddings.detach().clone()


class Stack:
    """Hypernets of one structure, each with a mainnet of linear layers with ELU between, and an optimiser for a task.

    Args:
        nets: values and embeddings, as :func:`values_of` has them, which are trained at each rate.
        rates: learning rates of Adam. Runs are counted nets fastest.
        widths: of the mainnet's layers, from its inputs to its outputs.
        beta: weight of the regulariser.
    """

    def __init__(
        self, nets: Sequence[tuple[Tensors, Tensor]], rates: Sequence[float], widths: Sequence[int], beta: float
    ) -> None:
        self.rates, self.widths, self.beta = rates, widths, beta
        runs = [*nets] * len(rates)
        self.theta = {name: torch.stack([values[name] for values, _ in runs]) for name in runs[0][0]}
        self.embeddings = torch.stack([embeddings for _, embeddings in runs])
        self.past = self.embeddings.new_empty(len(runs), 0, self.theta[HEAD].shape[-1])
        self.means: Tensors = {}
        self.squares: Tensors = {}
        self.task = -1

    # ── what it computes ───────────────────────────────────────────────────────────────────────────────────────────

    def generate(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """All values of the mainnet from each embedding: (run, n, size) → (run, n, values)."""
        codes = embeddings
        layers = [name.removesuffix(".weight") for name in theta if name.startswith("trunk.") and "weight" in name]
        for layer in layers:
            bias = theta[f"{layer}.bias"].unsqueeze(1)
            codes = torch.baddbmm(bias, codes, theta[f"{layer}.weight"].mT).relu()
        return torch.baddbmm(theta[HEAD_BIAS].unsqueeze(1), codes, theta[HEAD])

    def paths(self, values: Tensor, start: Tensor, times: Tensor, steps: int, dt: float) -> Tensor:
        """Integrate by Euler's rule from positions (run, n, 2) at times (run, n, 1): (run, n, steps + 1, 2)."""
        layers = self._layers(values)
        x, found = start, [start]
        for step in range(steps):
            velocity = torch.cat([x, times + step * dt], -1)
            for i, (weight, bias) in enumerate(layers):
                velocity = torch.baddbmm(bias, velocity if i == 0 else elu(velocity), weight)
            x = torch.add(x, velocity, alpha=dt)
            found.append(x)
        return torch.stack(found, 2)

    def _layers(self, values: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weight (run, in, out) and bias (run, 1, out) of each layer of the mainnet."""
        pairs = list(itertools.pairwise(self.widths))
        sizes = [size for before, after in pairs for size in (before * after, after)]
        parts = torch.split(values, sizes, -1)
        return [
            (parts[2 * i].view(-1, after, before).mT, parts[2 * i + 1].unsqueeze(1))
            for i, (before, after) in enumerate(pairs)
        ]

    def follow(self, task: int, start: Tensor, steps: int, dt: float, times: Tensor | None = None) -> Tensor:
        """The paths of a task as it is known now, from positions (run, n, 2), by default at time 0."""
        with torch.no_grad():
            values = self.generate(self.theta, self.embeddings[:, task : task + 1]).squeeze(1)
            return self.paths(values, start, torch.zeros_like(start[..., :1]) if times is None else times, steps, dt)

    # ── how it learns ──────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, task: int) -> None:
        """Before the first step on a task: remember the values made for earlier ones, and start the optimiser anew."""
        self.task = task
        params = self._params()
        self.means, self.squares = ({name: torch.zeros_like(t) for name, t in params.items()} for _ in range(2))
        with torch.no_grad():
            self.past = self.generate(self.theta, self.embeddings[:, :task])

    def step(self, demonstrated: Tensor, times: Tensor, dt: float, count: int) -> Tensor:
        """One step of each run on its subsequences, the ``count``-th of the task; returns the losses before it."""
        params = {name: t.detach().requires_grad_() for name, t in self._params().items()}
        values = self.generate(params, params[EMBEDDING].unsqueeze(1)).squeeze(1)
        made = self.paths(values, demonstrated[:, :, 0], times, demonstrated.shape[2] - 1, dt)
        losses = errors(made, demonstrated)
        found = torch.autograd.grad(losses.sum(), list(params.values()))
        # The fused kernel reads memory in order, and gradients of transposed weights come transposed.
        grads = {name: grad.contiguous() for name, grad in zip(params, found, strict=True)}
        params = {name: t.detach() for name, t in params.items()}
        if self.task and self.beta:
            self._add_pull(params, grads, count)
        self._adam_(params, grads, self.means, self.squares, count)
        self.embeddings[:, self.task] = params.pop(EMBEDDING)
        self.theta = params
        return losses.detach()

    def _params(self) -> Tensors:
        return {**self.theta, EMBEDDING: self.embeddings[:, self.task].clone()}

    def _add_pull(self, params: Tensors, grads: Tensors, count: int) -> None:
        """Add the regulariser's gradient where the step of the loss alone would lead."""
        ahead = {name: t.clone() for name, t in params.items() if name != EMBEDDING}
        means, squares = ({name: of[name].clone() for name in ahead} for of in (self.means, self.squares))
        self._adam_(ahead, grads, means, squares, count)
        for t in ahead.values():
            t.requires_grad_()
        drift = (self.generate(ahead, self.embeddings[:, : self.task]) - self.past).square().sum() / self.task
        pulls = torch.autograd.grad(self.beta * drift, list(ahead.values()))
        for name, pull in zip(ahead, pulls, strict=True):
            grads[name] += pull

    def _adam_(self, params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, count: int) -> None:
        """Adam's step, the ``count``-th, of the runs at each rate."""
        size = len(self.embeddings) // len(self.rates)
        for i, lr in enumerate(self.rates):
            runs = slice(i * size, (i + 1) * size)
            adam(
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
                weight_decay=0.0,
                eps=EPS,
                maximize=False,
            )

    # ── what a checkpoint holds ────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> Tensors:
        """All that changes in training."""
        parts = {"theta": self.theta, "mean": self.means, "square": self.squares}
        tensors = {f"{part}/{name}": t for part, held in parts.items() for name, t in held.items()}
        return {**tensors, "embeddings": self.embeddings, "past": self.past, "task": torch.tensor(self.task)}

    def load(self, state: Tensors) -> None:
        """Restore such a state."""
        self.theta, self.means, self.squares = (
            {name.removeprefix(f"{part}/"): t for name, t in state.items() if name.startswith(f"{part}/")}
            for part in ("theta", "mean", "square")
        )
        self.embeddings, self.past, self.task = state["embeddings"], state["past"], int(state["task"])


def errors(made: Tensor, demonstrated: Tensor) -> Tensor:
    """Mean squared error of the paths of each run, (run, n, points, 2)."""
    return (made - demonstrated).square().mean((1, 2, 3))
