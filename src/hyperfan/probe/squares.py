"""Sums and means of squares, in double precision and without a copy in it."""

import torch
from torch import Tensor


def square(values: Tensor) -> float:
    """Mean square."""
    return sum_of_squares(values) / values.numel()


def sum_of_squares(values: Tensor | None) -> float:
    """Of nothing, 0."""
    if values is None:
        return 0.0
    return float(torch.linalg.vector_norm(values.detach(), dtype=torch.float64).item() ** 2)
