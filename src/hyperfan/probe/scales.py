"""The scale of every layer's pre-activations and of the gradients that reach them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hyperfan.mainnet.rules import uses


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
    outputs: dict[str, Tensor] = {}

    def watch(path: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            outputs[path] = output

        return hook

    layers = [(p, m) for p, m in net.named_modules() if any(use.role == "weight" for use in uses(m).values())]
    handles = [module.register_forward_hook(watch(path)) for path, module in layers]
    try:
        with torch.enable_grad():
            loss = cross_entropy(net(x), y, reduction="sum")
    finally:
        for handle in handles:
            handle.remove()
    gradients = torch.autograd.grad(loss, list(outputs.values()))
    return LayerScales(
        tuple(outputs),
        tuple(t.std().item() for t in outputs.values()),
        tuple(g.std().item() for g in gradients),
        loss.item() / len(x),
    )
