"""Mean squares with their sampling intervals."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

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
    reach = _student(min(len(p) for p in parts) - 1) * error
    return Scale(mean, mean, mean).widened(reach)


def predicted_scale(draws: Sequence[float]) -> Scale:
    """Geometric mean over several nets, and the interval in which one more would lie in 95 % of cases."""
    if not all(0 < d < math.inf for d in draws):
        middle = sorted(draws)[len(draws) // 2]
        return Scale(middle, min(draws), max(draws))
    logs = torch.tensor(draws, dtype=torch.float64).log()
    mean = logs.mean().item()
    reach = _student(len(draws) - 1) * logs.std().item() * math.sqrt(1 + 1 / len(draws)) if len(draws) > 1 else 0.0
    return Scale(math.exp(mean), math.exp(mean - reach), math.exp(min(mean + reach, 700)))


def _student(freedom: int) -> float:
    """97.5 % quantile of Student's t: in closed form, then the first terms of its expansion in 1/freedom."""
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025))
    z = 1.959964
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
