"""What tests assert about random tensors. Tolerances come from sampling errors, never from taste."""

import math

import torch
from torch import Tensor

SIGMAS = 5.0
"""How many standard errors a fixed-seed draw may be off: one in two million by chance."""


def assert_variance(x: Tensor, target: float) -> None:
    """Assert that zero-mean values have this variance, within the sampling error of a second moment."""
    squares = x.detach().double().flatten().square()
    seen = squares.mean().item()
    if target == 0:
        assert seen == 0, f"variance {seen:.4g}, expected exactly 0"
        return
    error = squares.std().item() / math.sqrt(len(squares))
    off = (seen - target) / error
    assert abs(off) < SIGMAS, f"variance {seen:.6g}, expected {target:.6g}: {off:+.1f} standard errors"


def assert_mean(values: Tensor, target: float) -> None:
    """Assert that independent measurements average to the target, within their own standard error."""
    values = values.detach().double().flatten()
    error = values.std().item() / math.sqrt(len(values))
    off = (values.mean().item() - target) / error
    assert abs(off) < SIGMAS, f"mean {values.mean():.6g}, expected {target:.6g}: {off:+.1f} standard errors"


def assert_close(a: Tensor, b: Tensor) -> None:
    """Assert equality to float64 rounding."""
    assert a.dtype == b.dtype == torch.float64
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
