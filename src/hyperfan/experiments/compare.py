"""How each init starts the paper's MNIST net: one forward and backward pass on standardised Gaussian input."""

import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

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
class Spread:
    """Mean and sample standard deviation over seeds; one seed has no spread."""

    mean: float
    spread: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of some measurements."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Start:
    """How one init starts: each layer's scale, the loss, and how far it is from the classical net.

    ``ratio`` is the geometric mean over layers of pre-activation std over the classical net's.
    """

    init: str
    preactivation: tuple[Spread, ...]
    gradient: tuple[Spread, ...]
    loss: Spread
    ratio: float


def compare(
    seeds: int = 5, batch: int = 300, fidelity: Fidelity = "paper", progress: Callable[[str], Any] = lambda _: None
) -> list[Start]:
    """Measure every init on the same inputs. The first row is the classical net, against which the others stand."""
    starts: list[Start] = []
    for init in (CLASSICAL, *METHODS):
        progress(init)
        runs = [_measure(init, seed, batch, fidelity) for seed in range(seeds)]
        pre = tuple(Spread.of(layer) for layer in zip(*(r.preactivation for r in runs), strict=True))
        grad = tuple(Spread.of(layer) for layer in zip(*(r.gradient for r in runs), strict=True))
        reference = starts[0].preactivation if starts else pre
        logs = [math.log(layer.mean / classical.mean) for layer, classical in zip(pre, reference, strict=True)]
        ratio = math.exp(statistics.fmean(logs))
        starts.append(Start(init, pre, grad, Spread.of([r.loss for r in runs]), ratio))
    return starts


def _measure(init: str, seed: int, batch: int, fidelity: Fidelity) -> LayerScales:
    with torch.random.fork_rng(devices=[]):
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
