"""Hypernets side by side that learn one path after another, and the paths that their mainnets make."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import elu

from hyperfan.experiments import stack
from hyperfan.experiments.stack import Tensors, gradients
from hyperfan.hypernet import HyperNet

EMBEDDING = "embedding"


def values_of(net: HyperNet) -> tuple[Tensors, Tensor]:
    """What a hypernet is trained by, its heads side by side, and its embeddings, (task, size)."""
    return stack.values_of(net), net.embeddings.get_parameter("weight").squeeze(-2).detach().clone()


class PathStack(stack.Stack):
    """A stack with an embedding for each task, whose mainnets, with ELU, put out velocities; trained by Adam.

    Args:
        nets: values and embeddings, as :func:`values_of` has them.
        rates, widths: as for :class:`hyperfan.experiments.stack.Stack`.
        beta: weight of the regulariser.
    """

    def __init__(
        self, nets: Sequence[tuple[Tensors, Tensor]], rates: Sequence[float], widths: Sequence[int], beta: float
    ) -> None:
        super().__init__([values for values, _ in nets], rates, widths, elu, "Adam")
        self.embeddings = torch.stack([embeddings for _, embeddings in nets] * len(rates))
        self.beta, self.task = beta, -1

    # ── what it computes ───────────────────────────────────────────────────────────────────────────────────────────

    def paths(self, values: Tensor, start: Tensor, times: Tensor, steps: int, dt: float) -> Tensor:
        """Integrate by Euler's rule from positions (run, n, 2) at times (run, n, 1): (run, n, steps + 1, 2)."""
        velocity = self.call(values)
        x, found = start, [start]
        for step in range(steps):
            x = torch.add(x, velocity(torch.cat([x, times + step * dt], -1)), alpha=dt)
            found.append(x)
        return torch.stack(found, 2)

    def follow(self, task: int, start: Tensor, steps: int, dt: float, times: Tensor | None = None) -> Tensor:
        """The paths of a task as it is known now, from positions (run, n, 2), by default at time 0."""
        with torch.no_grad():
            values = self.generate(self.theta, self.embeddings[:, task : task + 1]).squeeze(1)
            return self.paths(values, start, torch.zeros_like(start[..., :1]) if times is None else times, steps, dt)

    # ── how it learns ──────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, task: int) -> None:
        """Before the first step on a task: remember the values made for earlier ones, and start the optimiser anew."""
        self.task = task
        self.reset_moments(self._params())
        with torch.no_grad():
            self.past = self.generate(self.theta, self.embeddings[:, :task])

    def step(self, demonstrated: Tensor, times: Tensor, dt: float, count: int) -> Tensor:
        """One step of each run on its subsequences, the ``count``-th of the task; returns the losses before it."""
        params = {name: t.detach().requires_grad_() for name, t in self._params().items()}
        values = self.generate(params, params[EMBEDDING].unsqueeze(1)).squeeze(1)
        made = self.paths(values, demonstrated[:, :, 0], times, demonstrated.shape[2] - 1, dt)
        losses = errors(made, demonstrated)
        grads = gradients(losses, params)
        params = {name: t.detach() for name, t in params.items()}
        if self.task and self.beta:
            self._add_pull(params, grads, count)
        self.update_(params, grads, self.means, self.squares, count)
        self.embeddings[:, self.task] = params.pop(EMBEDDING)
        self.theta = params
        return losses.detach()

    def _params(self) -> Tensors:
        return {**self.theta, EMBEDDING: self.embeddings[:, self.task].clone()}

    def _add_pull(self, params: Tensors, grads: Tensors, count: int) -> None:
        """Add the regulariser's gradient where the step of the loss alone would lead."""
        ahead = {name: t.clone() for name, t in params.items() if name != EMBEDDING}
        means, squares = ({name: of[name].clone() for name in ahead} for of in (self.means, self.squares))
        self.update_(ahead, grads, means, squares, count)
        for t in ahead.values():
            t.requires_grad_()
        drift = (self.generate(ahead, self.embeddings[:, : self.task]) - self.past).square().sum() / self.task
        pulls = torch.autograd.grad(self.beta * drift, list(ahead.values()))
        for name, pull in zip(ahead, pulls, strict=True):
            grads[name] += pull

    # ── what a checkpoint holds ────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> Tensors:
        """All that changes in training."""
        return {**super().state(), "embeddings": self.embeddings, "task": torch.tensor(self.task)}

    def load(self, state: Tensors) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        self.embeddings, self.task = state["embeddings"], int(state["task"])


def errors(made: Tensor, demonstrated: Tensor) -> Tensor:
    """Mean squared error of the paths of each run, (run, n, points, 2)."""
    return (made - demonstrated).square().mean((1, 2, 3))
