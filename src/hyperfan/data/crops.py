"""The usual crops for photographs: a random part of one to train on, its middle to test on."""

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_TRIES = 10
MIN_AREA_SHARE = 0.08
"""The smallest share of a picture's area to train on."""
MAX_SIDE_RATIO = 4 / 3
"""The largest ratio of a crop's sides to each other."""
TEST_MARGIN = 256 / 224
"""How much larger than the crop a test picture's shorter side is."""


def random_crop(picture: "Image", size: int, generator: torch.Generator) -> "Image":
    """Crop a random part of a picture, of any shape within bounds; resize it to (size, size); mirror half of them."""
    from PIL.Image import Resampling, Transpose

    resized = picture.resize((size, size), Resampling.BILINEAR, box=random_box(picture.size, generator))
    mirrored = torch.rand((), generator=generator).item() < 0.5
    return resized.transpose(Transpose.FLIP_LEFT_RIGHT) if mirrored else resized


def random_box(size: tuple[int, int], generator: torch.Generator) -> tuple[int, int, int, int]:
    """Draw left, top, right and bottom of a part of 8 to 100 % of the area, with sides up to 4 : 3.

    Where none is found that fits, it is the middle, as much of it as has such sides.
    """
    width, height = size
    for _ in range(MAX_TRIES):
        area = width * height * torch.empty(()).uniform_(MIN_AREA_SHARE, 1, generator=generator).item()
        reach = math.log(MAX_SIDE_RATIO)
        ratio = math.exp(torch.empty(()).uniform_(-reach, reach, generator=generator).item())
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(torch.randint(width - w + 1, (), generator=generator))
            top = int(torch.randint(height - h + 1, (), generator=generator))
            return left, top, left + w, top + h
    w, h = min(width, round(height * MAX_SIDE_RATIO)), min(height, round(width * MAX_SIDE_RATIO))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def centre_crop(picture: "Image", size: int) -> "Image":
    """Crop the middle, (size, size), of a picture after resizing its shorter side to an eighth more than that."""
    from PIL.Image import Resampling

    shorter, sides = round(size * TEST_MARGIN), picture.size
    width, height = (shorter if side == min(sides) else shorter * side // min(sides) for side in sides)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return picture.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))
