"""Pictures changed at random, so that none is seen twice the same."""

import torch
from torch import Tensor


def shift_and_flip(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each picture of (n, channels, height, width) moved by up to ``most`` pixels both ways, and mirrored or not.

    What comes in from outside is zero: black, for pictures that are not standardised yet. It is the usual augmentation
    for CIFAR-10 with ``most=4``, elsewhere called a random crop with padding.
    """
    n, _, height, width = images.shape
    top, left = torch.randint(2 * most + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    rows, columns = torch.arange(height) + top, torch.arange(width)
    columns = torch.where(mirrored, columns.flip(0), columns) + left
    padded = torch.nn.functional.pad(images, [most] * 4)
    every = torch.arange(n).view(n, 1, 1)
    device = images.device
    taken = padded[every.to(device), :, rows.unsqueeze(2).to(device), columns.unsqueeze(1).to(device)]
    return taken.permute(0, 3, 1, 2)
