"""A run of the continual-learning grid by itself, in the plainest way: what it must equal in the batched program."""

import math

import torch
from torch.nn.functional import mse_loss

from hyperfan.experiments.continual.training import build, order, points
from hyperfan.experiments.draws import draw_init
from hyperfan.optim import Memory


def alone(config, run):
    """The net of a run, and an iterator that trains it by a step of plain SGD each time and yields the loss before it.

    It ends with the last task, or after a loss that is not finite.
    """
    net = draw_init(build(config, run.init), run.seed)
    return net, _training(config, run, net)


def _training(config, run, net):
    optimiser = torch.optim.SGD(net.parameters(), lr=run.lr)
    for task, data in enumerate(points(config, run.seed)):
        memory = Memory(net, tasks=range(task))
        for chosen in order(config, run.seed, task):
            optimiser.zero_grad()
            loss = mse_loss(net(data.train_x[chosen], task=task), data.train_y[chosen])
            loss.backward()
            (config.beta * memory.drift(lookahead=run.lr)).backward()
            optimiser.step()
            yield loss.item()
            if not math.isfinite(loss.item()):
                return
