"""Data augmentation: random shifts and mirror images."""

import torch
from torch import Tensor


def shift_and_flip(images: Tensor, max_shift: int, generator: torch.Generator) -> Tensor:
    """Move each picture of (n, channels, height, width) by up to ``max_shift`` pixels both ways, and mirror it or not.

    Pixels that come in from outside are zero: black, for pictures that are not standardised yet. It is the usual
    augmentation for CIFAR-10 with ``max_shift=4``, elsewhere called a random crop with padding.
    """
    n, _, height, width = images.shape
    top, left = torch.randint(2 * max_shift + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    rows, columns = torch.arange(height) + top, torch.arange(width)
    columns = torch.where(mirrored, columns.flip(0), columns) + left
    padded = torch.nn.functional.pad(images, [max_shift] * 4)
    indices = torch.arange(n).view(n, 1, 1)
    device = images.device
    moved = padded[indices.to(device), :, rows.unsqueeze(2).to(device), columns.unsqueeze(1).to(device)]
    return moved.permute(0, 3, 1, 2)
