"""How each init starts the paper's MNIST net: one forward and backward pass on standardised Gaussian input."""

import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hyperfan.codes.draw import preserved_random_state
from hyperfan.errors import HyperfanWarning
from hyperfan.hypernet import HyperNet
from hyperfan.init.registry import Fidelity
from hyperfan.models import mnist_net
from hyperfan.probe import LayerScales, layer_scales

CLASSICAL = "classical net, Xavier"
METHODS = (
    *(f"xavier-{fans}" for fans in ("fan-in", "fan-out", "harmonic")),  # the last is torch's xavier
    *("m2", "m3", "m4"),
    *(f"hyperfan-{fans}" for fans in ("in", "out", "harmonic", "geometric", "arithmetic")),
)


@dataclass(frozen=True)
class Start:
    """How one init starts, in means over seeds: each layer's scale, the loss, and the distance to the classical net.

    ``ratio`` is the geometric mean over layers of pre-activation std over the classical net's.
    """

    init: str
    preactivation: tuple[float, ...]
    gradient: tuple[float, ...]
    loss: float
    ratio: float


def compare(
    seeds: int = 5, batch: int = 300, fidelity: Fidelity = "paper", progress: Callable[[str], Any] = lambda _: None
) -> list[Start]:
    """Measure every init on the same inputs. The first row is the classical net, against which the others stand."""
    starts: list[Start] = []
    for init in (CLASSICAL, *METHODS):
        progress(init)
        runs = [_measure(init, seed, batch, fidelity) for seed in range(seeds)]
        pre = tuple(map(statistics.fmean, zip(*(r.preactivation for r in runs), strict=True)))
        grad = tuple(map(statistics.fmean, zip(*(r.gradient for r in runs), strict=True)))
        classical = starts[0].preactivation if starts else pre
        ratio = statistics.geometric_mean([a / b for a, b in zip(pre, classical, strict=True)])
        starts.append(Start(init, pre, grad, statistics.fmean(r.loss for r in runs), ratio))
    return starts


def _measure(init: str, seed: int, batch: int, fidelity: Fidelity) -> LayerScales:
    with preserved_random_state():
        torch.manual_seed(seed)
        x, y = torch.randn(batch, 784), torch.randint(10, (batch,))
        net = mnist_net()
        if init == CLASSICAL:
            for layer in net:
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
                    nn.init.zeros_(layer.bias)
            return layer_scales(net, x, y)
        with warnings.catch_warnings():
            # M4 makes the four hidden layers equal; that is part of what is compared.
            warnings.simplefilter("ignore", HyperfanWarning)
            return layer_scales(HyperNet(net, embedding=50, init=init, fidelity=fidelity).freeze(), x, y)
