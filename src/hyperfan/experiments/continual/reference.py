"""One run of a grid by itself, in the plainest way: the reference that each run of the batched program must equal."""

import math
from collections.abc import Iterator

import torch
from torch.nn.functional import mse_loss

from hyperfan.experiments.continual import TASKS, Continual, GridRun
from hyperfan.experiments.continual.training import build, draw, order, points
from hyperfan.hypernet import HyperNet
from hyperfan.optim import Memory


def reference(config: Continual, run: GridRun) -> tuple[HyperNet, Iterator[float]]:
    """The net, and an iterator that trains it by a step each time and yields the batch's loss before it.

    It ends with the last task, or after a loss that is not finite. Only plain SGD.
    """
    net = draw(build(config, run.init), run.seed)
    return net, _training(config, run, net)


def _training(config: Continual, run: GridRun, net: HyperNet) -> Iterator[float]:
    optimiser = torch.optim.SGD(net.parameters(), lr=run.lr)
    tasks = points(config, run.seed)
    for task in range(TASKS):
        memory = Memory(net, tasks=range(task))
        for chosen in order(config, run.seed, task):
            x, y = tasks[task].train_x[chosen], tasks[task].train_y[chosen]
            optimiser.zero_grad()
            loss = mse_loss(net(x, task=task), y)
            torch.autograd.backward(loss)
            torch.autograd.backward(config.beta * memory.drift(lookahead=run.lr))
            optimiser.step()
            yield loss.item()
            if not math.isfinite(loss.item()):
                return
