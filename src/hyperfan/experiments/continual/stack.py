"""Hypernets side by side that learn one regression task after another."""

import math

import torch
from torch import Tensor

from hyperfan.experiments.stack import HEAD_BIAS, TaskStack, TensorFunction, Tensors


class RegressionStack(TaskStack):
    """A stack on points. A run whose loss was not finite once has NaN from then on."""

    def generate(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """All values of each task, (run, task, values), from an embedding for the task, or for each of its tensors."""
        if embeddings.ndim == 3:
            return super().generate(theta, embeddings)
        values = super().generate(theta, embeddings.flatten(1, 2)).view(*embeddings.shape[:3], sum(self.sizes))
        by_tensor = torch.split(values, self.sizes, -1)  # each by the codes of all tensors, of which it takes its own
        return torch.cat([columns[:, :, i] for i, columns in enumerate(by_tensor)], -1)

    def losses(self, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean squared error of each run with these values of its mainnet, on (run, points, 1)."""
        return (self.call(values)(x) - y).square().mean((1, 2))

    def predict(self, task: int, x: Tensor) -> Tensor:
        """The outputs of each run in a task, (run, points, 1)."""
        with torch.no_grad():
            return self.call(self.task_values(task))(x)

    def step(self, loss: TensorFunction, count: int) -> Tensor:
        """One step of each run, as in every stack; a run whose loss is not finite is lost."""
        losses = super().step(loss, count)
        # Squares may overflow where gradients do not, and such a run could become finite again.
        self.theta[HEAD_BIAS][~losses.isfinite()] = math.nan
        return losses
