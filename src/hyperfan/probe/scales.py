"""The scale of every layer's pre-activations and of the gradients that reach them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hyperfan.probe.inside import outputs_of_layers


@dataclass(frozen=True)
class LayerScales:
    """One forward and backward pass, layer by layer in the order they ran.

    Args:
        layers: paths of the layers.
        preactivation: standard deviation of each layer's output.
        gradient: standard deviation of ∂L/∂(that output), for a loss summed over samples, so that it does not
            depend on the batch size.
        loss: mean cross-entropy.
    """

    layers: tuple[str, ...]
    preactivation: tuple[float, ...]
    gradient: tuple[float, ...]
    loss: float


def layer_scales(net: nn.Module, x: Tensor, y: Tensor) -> LayerScales:
    """Measure an ordinary module; of a hypernet, measure ``net.freeze()``."""
    outputs, loss = outputs_of_layers(net, x, y)
    gradients = torch.autograd.grad(loss, list(outputs.values()))
    return LayerScales(
        tuple(outputs),
        tuple(t.std().item() for t in outputs.values()),
        tuple(g.std().item() for g in gradients),
        loss.item() / len(x),
    )
