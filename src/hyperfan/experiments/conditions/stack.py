"""Conditioned hypernets side by side, with the mainnets they make under many conditions at once."""

from collections.abc import Callable

import torch
from torch import Tensor

from hyperfan.experiments import stack
from hyperfan.experiments.stack import Tensors, gradients
from hyperfan.hypernet import HyperNet

TABLE = "table"


def values_of(net: HyperNet) -> Tensors:
    """What a hypernet is trained by, its heads side by side, with its table of conditions if it has one."""
    values = stack.values_of(net)
    if net.embeddings.config.tasks is not None:
        values[TABLE] = net.embeddings.get_parameter("weight").squeeze(-2).detach().clone()
    return values


class ConditionStack(stack.Stack):
    """A stack whose conditions are given, or are rows of a table that is trained."""

    def codes(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """What the heads read, from conditions, or from the indices of rows of the table: (run, condition, width)."""
        if not embeddings.is_floating_point():
            rows = embeddings.unsqueeze(-1).expand(-1, -1, theta[TABLE].shape[-1])
            embeddings = theta[TABLE].gather(1, rows)
        return super().codes(theta, embeddings)

    def begin(self, task: int) -> None:
        """Before the first step on a task: start the optimiser anew, and remember what is made for earlier ones."""
        super().begin(task)
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
        self.update_(self.theta, gradients(losses, theta), self.means, self.squares, count)
        return losses.detach()
