"""Fans: how many values a layer sums, forward into each output (fan-in) and backward into each input (fan-out)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperfan.errors import MainnetError


@dataclass(frozen=True)
class Fans:
    """The fans of one weight tensor, kept in their factors so that each reading of them can be derived.

    Args:
        channels_in: input channels that one output sees, d_j (per group).
        channels_out: output channels that one input reaches, d_i (per group).
        receptive: number of kernel positions.
        stride: product of the strides.
        transposed: whether the layer is a transposed convolution, where the stride thins out the forward sum.

    >>> Fans.conv(64, 128, kernel=(3, 3), stride=(2, 2))
    Fans(channels_in=64, channels_out=128, receptive=9, stride=4, transposed=False)
    >>> _.fan_in, _.fan_out
    (576.0, 288.0)
    """

    channels_in: float
    channels_out: float
    receptive: int = 1
    stride: int = 1
    transposed: bool = False

    def __post_init__(self) -> None:
        if not (self.channels_in > 0 and self.channels_out > 0 and self.receptive > 0 and self.stride > 0):
            raise MainnetError(f"{self}: a layer sums at least one value each way")

    @classmethod
    def conv(
        cls,
        in_channels: int,
        out_channels: int,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        groups: int = 1,
        transposed: bool = False,
    ) -> "Fans":
        """The fans of a convolution with any number of dimensions. Dilation and padding do not change the sums."""
        return cls(in_channels // groups, out_channels // groups, math.prod(kernel), math.prod(stride), transposed)

    @classmethod
    def of_weight(cls, shape: Sequence[int], stride: int | Sequence[int], groups: int, transposed: bool) -> "Fans":
        """The fans of a convolution by its weight (out, in / groups, *kernel), transposed (in, out / groups, *kernel).

        >>> Fans.of_weight((6, 4, 3), stride=2, groups=1, transposed=True) == Fans.conv(6, 4, (3,), (2,), 1, True)
        True
        """
        first, second, *kernel = shape
        sizes = (first, second * groups) if transposed else (second * groups, first)
        strides = [stride] * len(kernel) if isinstance(stride, int) else stride
        return cls.conv(*sizes, kernel, strides, groups, transposed)

    @property
    def fan_in(self) -> float:
        """Terms in the forward sum. A transposed convolution hits each output 1/stride as often."""
        return self.channels_in * self.receptive / (self.stride if self.transposed else 1)

    @property
    def fan_out(self) -> float:
        """Terms in the backward sum. A strided convolution reads each input 1/stride as often."""
        return self.channels_out * self.receptive / (1 if self.transposed else self.stride)

    def unstrided(self) -> "Fans":
        """The fans as the paper's table has them: the stride plays no part."""
        return replace(self, stride=1)
