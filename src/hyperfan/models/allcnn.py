"""The mainnet of the paper's section 4.3: All-CNN-C (Springenberg et al., 2015) on CIFAR-10."""

from torch import nn


def all_cnn(classes: int = 10) -> nn.Sequential:
    """Build nine convolutions, ReLU after each, and a global average; images (n, 3, 32, 32) → (n, classes)."""
    layers: list[nn.Module] = []
    before = 3
    for after, kernel, stride in [
        (96, 3, 1), (96, 3, 1), (96, 3, 2), (192, 3, 1), (192, 3, 1), (192, 3, 2), (192, 3, 1), (192, 1, 1),
        (classes, 1, 1),
    ]:  # fmt: skip
        layers += [nn.Conv2d(before, after, kernel, stride, padding=kernel // 2), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
