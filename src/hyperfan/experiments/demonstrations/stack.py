"""Hypernets side by side that learn one path after another, and the paths that their mainnets make."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import elu

from hyperfan.experiments.stack import TaskStack, Tensors


class PathStack(TaskStack):
    """A stack whose mainnets, with ELU, put out velocities; trained by Adam.

    Args:
        nets, rates, widths, beta: as for :class:`hyperfan.experiments.stack.TaskStack`.
    """

    def __init__(
        self, nets: Sequence[tuple[Tensors, Tensor]], rates: Sequence[float], widths: Sequence[int], beta: float
    ) -> None:
        super().__init__(nets, rates, widths, elu, "Adam", beta)

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
            times = torch.zeros_like(start[..., :1]) if times is None else times
            return self.paths(self.task_values(task), start, times, steps, dt)

    def losses(self, values: Tensor, demonstrated: Tensor, times: Tensor, dt: float) -> Tensor:
        """The error of each run on its subsequences, (run, n, points, 2), which begin at times (run, n, 1)."""
        return errors(self.paths(values, demonstrated[:, :, 0], times, demonstrated.shape[2] - 1, dt), demonstrated)


def errors(made: Tensor, demonstrated: Tensor) -> Tensor:
    """Mean squared error of the paths of each run, (run, n, points, 2)."""
    return (made - demonstrated).square().mean((1, 2, 3))
