"""The mainnet of the paper's section 4.1: five hidden layers of 500 units on MNIST."""

import itertools

from torch import nn


def mnist_net(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """Build 784-500×5-10, with the activation after every layer but the last."""
    widths = [784, 500, 500, 500, 500, 500, 10]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])
