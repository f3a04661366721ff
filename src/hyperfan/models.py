"""On which nets? The paper's mainnets."""

import itertools

from torch import nn

MOBILENET_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
"""Channels and stride of the depthwise-separable blocks."""


def mnist_net(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """The paper's section 4.1: 784-500×5-10 on MNIST, with the activation after every layer but the last."""
    widths = [784, 500, 500, 500, 500, 500, 10]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def regression_net(width: int = 10) -> nn.Sequential:
    """The paper's section 4.2: 1-10-10-1 with ReLU."""
    return nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def all_cnn(classes: int = 10) -> nn.Sequential:
    """The paper's section 4.3: All-CNN-C (Springenberg et al., 2015) on CIFAR-10, (n, 3, 32, 32) → (n, classes).

    Nine convolutions, ReLU after each, and a global average.
    """
    layers: list[nn.Module] = []
    before = 3
    for after, kernel, stride in [
        (96, 3, 1), (96, 3, 1), (96, 3, 2), (192, 3, 1), (192, 3, 1), (192, 3, 2), (192, 3, 1), (192, 1, 1),
        (classes, 1, 1),
    ]:  # fmt: skip
        layers += [nn.Conv2d(before, after, kernel, stride, padding=kernel // 2), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def mobilenet(classes: int = 1000, width: float = 1.0, norm: bool = True) -> nn.Sequential:
    """The paper's section 4.4: MobileNet v1 (Howard et al., 2017), for images of any size.

    A convolution, 13 depthwise-separable blocks, a global average and a linear layer.

    Args:
        classes: outputs.
        width: multiplies the channels of every layer.
        norm: whether batch norm comes after every convolution.
    """
    before = round(32 * width)
    blocks = [_convolution(3, before, 3, norm, stride=2)]
    for channels, stride in MOBILENET_BLOCKS:
        after = round(channels * width)
        depthwise = _convolution(before, before, 3, norm, stride, groups=before)
        blocks.append(depthwise + _convolution(before, after, 1, norm))
        before = after
    ending = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return nn.Sequential(*(nn.Sequential(*layers) for layers in blocks), *ending)


def _convolution(before: int, after: int, kernel: int, norm: bool, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [layer, *([nn.BatchNorm2d(after)] if norm else []), nn.ReLU()]
