"""Mean squares with their sampling intervals."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hyperfan.formulas.student import student_quantile
from hyperfan.probe.diagnosis import Scale


def measured_scale(values: Tensor, units: int) -> Scale:
    """Mean square of a layer's values over inputs (dimension 0) and units, with a 95 % interval.

    Units and inputs are both drawn at random, so the variance of the mean has a part from each. The interval is taken
    on a logarithmic scale, where it cannot reach below zero.
    """
    squares = values.detach().double().square()
    mean = squares.mean().item()
    if not 0 < mean < math.inf:
        return Scale(mean, mean, mean)
    parts = [squares.movedim(d, 0).flatten(1).mean(1) for d in {0, units % squares.ndim}] if squares.ndim > 1 else []
    parts = [p for p in parts or [squares.flatten()] if len(p) > 1]
    if not parts:
        return Scale(mean, 0.0, math.inf)
    error = math.sqrt(sum(p.var().item() / len(p) for p in parts)) / mean
    reach = student_quantile(min(len(p) for p in parts) - 1) * error
    return Scale(mean, mean, mean).widened(reach)


def predicted_scale(draws: Sequence[float]) -> Scale:
    """Geometric mean over several nets, and the interval in which one more would lie in 95 % of cases."""
    if not all(0 < d < math.inf for d in draws):
        middle = sorted(draws)[len(draws) // 2]
        return Scale(middle, min(draws), max(draws))
    logs, n = torch.tensor(draws, dtype=torch.float64).log(), len(draws)
    middle = math.exp(logs.mean().item())
    reach = student_quantile(n - 1) * logs.std().item() * math.sqrt(1 + 1 / n) if n > 1 else 0.0
    return Scale(middle, middle, middle).widened(reach)
