"""Whether parameters are still what they were, at the price of looking at a few of their values."""

from collections.abc import Iterable

import torch
from torch import Tensor

SAMPLES = 32


def versions(tensors: Iterable[Tensor]) -> tuple[tuple[int, int], ...]:
    """Changes with each in-place operation that autograd sees, and with each new storage."""
    return tuple((t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors)


def fingerprint(tensors: Iterable[Tensor]) -> Tensor:
    """Evenly spaced values of each tensor, as bits.

    Shows writes through ``.data``, which raise no version counter, if they change more than a few values.
    """
    picked = []
    for t in tensors:
        flat = t.detach().reshape(-1)
        flat = torch.view_as_real(flat.resolve_conj()).reshape(-1) if flat.is_complex() else flat
        step = max(1, len(flat) // SAMPLES) | 1  # odd, so as not to stay in one column
        picked.append(flat[::step].cpu().double())
    return torch.cat(picked).view(torch.int64)  # NaN equals NaN
