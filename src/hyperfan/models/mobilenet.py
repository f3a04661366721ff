"""The mainnet of the paper's section 4.4: MobileNet v1 (Howard et al., 2017)."""

from torch import nn

BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
"""Channels and stride of the depthwise-separable blocks."""


def mobilenet(classes: int = 1000, width: float = 1.0, norm: bool = True) -> nn.Sequential:
    """Build a convolution, 13 depthwise-separable blocks, a global average and a linear layer; for images of any size.

    Args:
        classes: outputs.
        width: multiplies the channels of every layer.
        norm: whether batch norm comes after every convolution.
    """
    before = round(32 * width)
    blocks = [_convolution(3, before, 3, norm, stride=2)]
    for channels, stride in BLOCKS:
        after = round(channels * width)
        depthwise = _convolution(before, before, 3, norm, stride, groups=before)
        blocks.append(depthwise + _convolution(before, after, 1, norm))
        before = after
    ending = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return nn.Sequential(*(nn.Sequential(*layers) for layers in blocks), *ending)


def _convolution(before: int, after: int, kernel: int, norm: bool, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [layer, *([nn.BatchNorm2d(after)] if norm else []), nn.ReLU()]
