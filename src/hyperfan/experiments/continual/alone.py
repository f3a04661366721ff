"""One run of the grid by itself, in the plainest way: what a run among others must equal, and a loop to start from."""

import math
from collections.abc import Iterator

import torch
from torch.nn.functional import mse_loss

from hyperfan.experiments.continual.build import build, draw, order, points
from hyperfan.experiments.continual.config import TASKS, Continual, Run
from hyperfan.hypernet import HyperNet
from hyperfan.optim import Memory


def alone(config: Continual, run: Run) -> tuple[HyperNet, Iterator[float]]:
    """The net, and an iterator that trains it by a step each time and yields the batch's loss before it.

    It ends with the last task, or after a loss that is not finite. Only plain SGD.
    """
    net = draw(build(config, run.init), run.seed)
    return net, _training(config, run, net)


def _training(config: Continual, run: Run, net: HyperNet) -> Iterator[float]:
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
