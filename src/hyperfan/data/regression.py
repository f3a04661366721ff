"""The three regression tasks of the paper's section 4.2, learnt one after another; after von Oswald et al. 2020."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """Points of one function, each tensor (points, 1): noisy ones to train on, exact ones to test on."""

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


FUNCTIONS: tuple[tuple[str, Callable[[Tensor], Tensor], float, float], ...] = (
    ("x + 3", lambda x: x + 3, -4, -2),
    ("2x² − 1", lambda x: 2 * x**2 - 1, -1, 1),
    ("(x − 3)³", lambda x: (x - 3) ** 3, 2, 4),
)
"""Name, function, and the ends of its domain."""

NOISE = 0.05
"""Standard deviation of the noise on the training points."""


def regression_tasks(
    generator: torch.Generator | None = None, *, train: int = 100, test: int = 50, noise: float = NOISE
) -> tuple[Task, ...]:
    """Draw ``train`` points uniform in each domain, with normal noise on y; and ``test`` equidistant points without.

    >>> [task.train_x.shape for task in regression_tasks(torch.Generator().manual_seed(0))]
    [torch.Size([100, 1]), torch.Size([100, 1]), torch.Size([100, 1])]
    """
    tasks = []
    for name, function, low, high in FUNCTIONS:
        x = low + (high - low) * torch.rand(train, 1, generator=generator)
        y = function(x) + noise * torch.randn(train, 1, generator=generator)
        grid = torch.linspace(low, high, test)[:, None]
        tasks.append(Task(name, x, y, grid, function(grid)))
    return tuple(tasks)
