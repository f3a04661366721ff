"""Encodings of a condition, to be put in front of a trunk."""

import math

import torch
from torch import Tensor, nn


class CosSin(nn.Module):
    """(cos(π·z/2), sin(π·z/2)) of conditions z in [0, 1]: twice as many coordinates, and the same norm for all.

    The input of Magnitude Invariant Parametrizations (Gonzalez Ortiz et al. 2023).

    Shape:
        (…, size) → (…, 2·size), with ‖·‖² = size

    >>> CosSin()(torch.tensor([[0.0, 1.0]])).round(decimals=6).abs()
    tensor([[1., 0., 0., 1.]])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Encode conditions: cosines of all coordinates, then their sines."""
        angle = z * (math.pi / 2)
        return torch.cat([angle.cos(), angle.sin()], -1)
