"""Mainnets that several tests of a hypernet use."""

import torch
from torch import nn

X = torch.zeros(2, 6)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))


class Custom(nn.Module):
    """A mainnet whose flow cannot be read without an example."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class WithToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.linear = nn.Parameter(torch.randn(3)), nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x + self.token)
