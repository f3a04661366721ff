"""The mainnet of the paper's section 4.2: two hidden layers of 10 units, from one number to one number."""

from torch import nn


def regression_net(width: int = 10) -> nn.Sequential:
    """Build 1-10-10-1 with ReLU."""
    return nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
