"""How each init starts the paper's MNIST net: one forward and backward pass on standardised Gaussian input."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.mnist import Mnist
from hyperfan.experiments.mnist.training import build
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet
from hyperfan.init.registry import Fidelity
from hyperfan.probe import LayerScales, layer_scales

CLASSICAL_LABEL = "classical net, Xavier"
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
        label = CLASSICAL_LABEL if init == CLASSICAL else init
        progress(label)
        runs = [_measure(init, seed, batch, fidelity) for seed in range(seeds)]
        pre = tuple(map(statistics.fmean, zip(*(r.preactivation for r in runs), strict=True)))
        grad = tuple(map(statistics.fmean, zip(*(r.gradient for r in runs), strict=True)))
        classical = starts[0].preactivation if starts else pre
        ratio = statistics.geometric_mean([a / b for a, b in zip(pre, classical, strict=True)])
        starts.append(Start(label, pre, grad, statistics.fmean(r.loss for r in runs), ratio))
    return starts


def _measure(init: str, seed: int, batch: int, fidelity: Fidelity) -> LayerScales:
    inputs = generator(seed, "inputs")
    x, y = torch.randn(batch, 784, generator=inputs), torch.randint(10, (batch,), generator=inputs)
    net, _ = build(Mnist(init=init, seed=seed, fidelity=fidelity))
    return layer_scales(net.freeze() if isinstance(net, HyperNet) else net, x, y)
