"""Labelled pictures, and their standardisation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hyperfan.errors import DataError


@dataclass(frozen=True, eq=False)
class Labelled:
    """Pictures, uint8, the first dimension over pictures, and a label for each, int64."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Splits:
    """The training set and the test set."""

    train: Labelled
    test: Labelled


@dataclass(frozen=True)
class PixelStatistics:
    """Mean and standard deviation of the training pixels, between 0 and 1: one number, or one for each channel."""

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]


MNIST = PixelStatistics(mean=0.13066, std=0.30811)
IMAGENET = PixelStatistics(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
CIFAR10 = PixelStatistics(mean=(0.49140, 0.48216, 0.44653), std=(0.24703, 0.24349, 0.26159))


def standardise(images: Tensor, mean: float | Sequence[float], std: float | Sequence[float]) -> Tensor:
    """Standardise uint8 pictures of any leading shape: (images / 255 − mean) / std, in float32.

    A batch of pictures with a mean for each channel comes with its channels last in memory.

    >>> standardise(torch.tensor([[0, 255]], dtype=torch.uint8), mean=0.5, std=0.25)
    tensor([[-2.,  2.]])
    """
    if images.dtype != torch.uint8:
        raise DataError(f"pictures of {images.dtype} cannot be standardised, only uint8: was it done already?")
    shift, scale = (torch.tensor(v, dtype=torch.float32, device=images.device)[..., None, None] for v in (mean, std))
    # One for each channel fits only pictures of as many channels; broadcasting would let others pass.
    if any(v.ndim == 3 and images.shape[-3:-2] != v.shape[:1] for v in (shift, scale)):
        raise DataError(
            f"mean {mean} and std {std} do not fit pictures of shape {tuple(images.shape)}: "
            "give one number, or one for each channel of (…, channels, height, width)"
        )
    # Convolutions on CPUs are faster in this order of memory.
    coloured = images.ndim == 4 and any(v.ndim == 3 for v in (shift, scale))
    order = torch.channels_last if coloured else torch.preserve_format
    return images.to(torch.float32, memory_format=order).sub_(shift * 255).div_(scale * 255)
