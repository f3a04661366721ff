"""How nets of experiments get the values of a seed."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet


def draw_init(net: HyperNet, seed: int) -> HyperNet:
    """Write the init's values of a seed into a net; its embeddings have random numbers of their own."""
    net.reset_parameters(generator(seed, "init"), embeddings=generator(seed, "embeddings"))
    return net


class Layer(NamedTuple):
    """A layer of a hypernet: one of its trunk, or a head."""

    weight: Tensor
    bias: Tensor
    fan_in: int


def trunk_layers(net: HyperNet) -> list[Layer]:
    """The linear layers of a net's trunk."""
    assert net.trunk is not None
    return [Layer(m.weight, m.bias, m.in_features) for m in net.trunk.modules() if isinstance(m, nn.Linear)]


def head_layers(net: HyperNet) -> list[Layer]:
    """The heads of a net."""
    heads = (net.heads.head(name) for name in net.heads.names)
    return [Layer(head.weight, head.bias, len(head.weight)) for head in heads]


@torch.no_grad()
def draw_as_torch(tensors: Iterable[tuple[Tensor, int]], draws: Generator) -> None:
    """Draw weights and biases, each with its layer's fan-in, as ``nn.Linear`` does: uniform within ±fan_in^-1/2."""
    for tensor, fan_in in tensors:
        tensor.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=draws)
