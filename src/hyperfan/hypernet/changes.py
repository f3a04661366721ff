"""Whether parameters are still what they were, at the price of looking at a few of their values."""

from collections.abc import Iterable

import torch
from torch import Tensor

SAMPLES = 32


def versions(tensors: Iterable[Tensor]) -> tuple[tuple[int, int], ...]:
    """Changes with each in-place operation that autograd sees, and with each new storage."""
    return tuple((t.data_ptr(), t._version) for t in tensors)


def fingerprint(tensors: Iterable[Tensor]) -> Tensor:
    """Evenly spaced values of each: shows writes through ``.data``, which raise no version counter."""
    picked = []
    for t in tensors:
        flat = t.detach().reshape(-1) if t.is_contiguous() else t.detach().flatten()
        picked.append(flat[:: max(1, len(flat) // SAMPLES)].double())
    return torch.cat(picked) if picked else torch.empty(0)
