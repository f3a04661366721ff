"""Well-known blocks for pictures and signals, written out as their papers have them, small."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.net import Net, normal

PICTURES = normal(16, 3, 16, 16)


def conv_norm(c_in: int, c_out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without a bias, and a batch norm."""
    conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out))


def vgg() -> nn.Module:
    """Simonyan & Zisserman 2015: pairs of convolutions, pools, a classifier of linear layers."""

    def stage(c_in: int, c_out: int) -> list[nn.Module]:
        convs = [nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU(), nn.Conv2d(c_out, c_out, 3, padding=1), nn.ReLU()]
        return [*convs, nn.MaxPool2d(2)]

    classifier = [nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10)]
    return nn.Sequential(*stage(3, 16), *stage(16, 32), *classifier)


class UNet(nn.Module):
    """Ronneberger et al. 2015: down by pools, up by transposed convolutions, with what was there beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = self._pair(3, 16), self._pair(16, 32), self._pair(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.after2, self.after1, self.out = self._pair(64, 32), self._pair(32, 16), nn.Conv2d(16, 2, 1)

    def _pair(self, c_in: int, c_out: int) -> nn.Sequential:
        convs = nn.Conv2d(c_in, c_out, 3, padding=1), nn.Conv2d(c_out, c_out, 3, padding=1)
        return nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        middle = self.middle(F.max_pool2d(second, 2))
        second = self.after2(torch.cat([second, self.up2(middle)], 1))
        return self.out(self.after1(torch.cat([first, self.up1(second)], 1)))


class DenseNet(nn.Module):
    """Huang et al. 2017: every layer reads what all before it put out."""

    def __init__(self, growth: int = 12, layers: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 2 * growth, 3, padding=1, bias=False)
        widths = [2 * growth + i * growth for i in range(layers + 1)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(w) for w in widths)
        self.convs = nn.ModuleList(nn.Conv2d(w, growth, 3, padding=1, bias=False) for w in widths[:-1])
        self.out = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=False):
            x = torch.cat([x, conv(F.relu(norm(x)))], 1)
        return self.out(F.relu(self.norms[-1](x)).mean((2, 3)))


class Residual(nn.Module):
    """He et al. 2016, with Hu et al.'s squeeze and excitation, or Xie et al.'s groups."""

    def __init__(self, c_in: int, c_out: int, stride: int, squeeze: bool, groups: int) -> None:
        super().__init__()
        self.one, self.two = conv_norm(c_in, c_out, 1), conv_norm(c_out, c_out, 3, stride, groups)
        self.three = conv_norm(c_out, c_out, 1)
        self.squeeze = nn.Sequential(nn.Linear(c_out, c_out // 4), nn.ReLU(), nn.Linear(c_out // 4, c_out))
        self.shortcut = conv_norm(c_in, c_out, 1, stride) if stride > 1 or c_in != c_out else nn.Identity()
        if not squeeze:
            self.squeeze = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.three(F.relu(self.two(F.relu(self.one(x)))))
        if not isinstance(self.squeeze, nn.Identity):
            y = y * torch.sigmoid(self.squeeze(y.mean((2, 3))))[:, :, None, None]
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """Four residual blocks of one kind."""

    def __init__(self, squeeze: bool, groups: int) -> None:
        super().__init__()
        self.stem = conv_norm(3, 16)
        sizes = ((16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 32, 1))
        self.blocks = nn.Sequential(*(Residual(*size, squeeze, groups) for size in sizes))
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.adaptive_avg_pool2d(self.blocks(F.relu(self.stem(x))), 1).flatten(1))


class WaveNet(nn.Module):
    """Van den Oord et al. 2016: dilated convolutions, gates of tanh and sigmoid, a sum of skips."""

    def __init__(self, channels: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, channels, 1)
        self.gates = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=2**i) for i in range(layers))
        self.residuals = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(layers - 1))
        self.skips = nn.ModuleList(nn.Conv1d(channels, 32, 1) for _ in range(layers))
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(32, 32, 1), nn.ReLU(), nn.Conv1d(32, 16, 1))

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.stem(x), 0
        for i, (gate, skip) in enumerate(zip(self.gates, self.skips, strict=True)):
            a, b = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(z)
            if i < len(self.residuals):
                x = x + self.residuals[i](z)
        return self.out(total)


def dcgan() -> nn.Module:
    """Radford et al. 2016: the generator, from noise to pictures."""
    first = [nn.ConvTranspose2d(32, 64, 4, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    second = [nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())


PICTURE_BLOCKS: dict[str, Net] = {
    "VGG": Net(vgg, PICTURES),
    "U-Net": Net(UNet, PICTURES, "values"),
    "DenseNet": Net(DenseNet, PICTURES),
    "SE-ResNet": Net(lambda: ResNet(squeeze=True, groups=1), PICTURES),
    "ResNeXt": Net(lambda: ResNet(squeeze=False, groups=4), PICTURES),
    "WaveNet": Net(WaveNet, normal(8, 1, 32), "values"),
    "DCGAN": Net(dcgan, normal(16, 32, 1, 1), "values"),
}
