"""On which nets? The paper's mainnets, and a small language model."""

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

MOBILENET_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
"""Channels and stride of the depthwise-separable blocks."""


def mnist_net(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """The paper's section 4.1: 784-500×5-10 on MNIST, with the activation after every layer but the last."""
    widths = [784, 500, 500, 500, 500, 500, 10]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def regression_net() -> nn.Sequential:
    """The paper's section 4.2: 1-10-10-1 with ReLU."""
    return nn.Sequential(nn.Linear(1, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 1))


def all_cnn() -> nn.Sequential:
    """The paper's section 4.3: All-CNN-C (Springenberg et al., 2015) on CIFAR-10, (n, 3, 32, 32) → (n, 10).

    Nine convolutions, ReLU after each, and a global average.
    """
    layers: list[nn.Module] = []
    before = 3
    for after, kernel, stride in [
        (96, 3, 1), (96, 3, 1), (96, 3, 2), (192, 3, 1), (192, 3, 1), (192, 3, 2), (192, 3, 1), (192, 1, 1),
        (10, 1, 1),
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


class Llama(nn.Module):
    """A language model as Llama is built (Touvron et al., 2023): tokens (n, length) → logits (n, length, vocabulary).

    Each block adds causal attention with rotary positions and then a gated MLP to the residual stream, each on what an
    RMSNorm makes of the stream.

    Args:
        vocabulary: number of tokens.
        width: of the residual stream; the MLPs are twice as wide.
        blocks: how many.
        heads: of the attention in each.
    """

    def __init__(self, vocabulary: int, width: int, blocks: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(_LlamaBlock(width, heads) for _ in range(blocks))
        self.norm = nn.RMSNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of what comes after each token, or in its place, as it is trained."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits


class _LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.self_attn = _RotaryAttention(width, heads)
        self.mlp = _GatedMLP(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.attention_norm(x))
        found: Tensor = x + self.mlp(self.mlp_norm(x))
        return found


class _RotaryAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[-2:]
        q, k, v = (
            project(x).view(-1, length, self.heads, width // self.heads).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        made = scaled_dot_product_attention(_rotated(q), _rotated(k), v, is_causal=True)
        found: Tensor = self.o_proj(made.transpose(1, 2).reshape(-1, length, width))
        return found


def _rotated(x: Tensor) -> Tensor:
    """Rotary positions (Su et al., 2021) on (…, length, size): pairs of coordinates turned by the position's angles."""
    half = x.shape[-1] // 2
    frequencies = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class _GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return found
