"""How a setting starts on real images, over more seeds than are trained: a start costs a second, a run minutes."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hyperfan.data import MNIST, mnist, standardise
from hyperfan.experiments.mnist.config import Mnist
from hyperfan.experiments.mnist.training import build, probed
from hyperfan.hypernet import HyperNet
from hyperfan.probe.inside import outputs_of_layers


@dataclass(frozen=True)
class Start:
    """One net before training.

    Args:
        activations: standard deviation of each layer's outputs, before the nonlinearity.
        flow: for each generated weight, Var(∂L/∂h) over Var(∂L/∂W), the step of a gradient from mainnet to hypernet.
    """

    activations: tuple[float, ...]
    flow: tuple[float, ...]


class Images:
    """The test images, read once."""

    def __init__(self, data_dir: Path | None) -> None:
        test = mnist(data_dir).test
        self.x, self.y = standardise(test.images, MNIST.mean, MNIST.std).flatten(1), test.labels

    def seen_by(self, config: Mnist) -> tuple[Tensor, Tensor]:
        """Those that the probe of a run looks at."""
        chosen = probed(config, len(self.x))
        return self.x[chosen], self.y[chosen]


def start(config: Mnist, images: Images) -> Start:
    """Build a net and look at it."""
    net, _ = build(config)
    x, y = images.seen_by(config)
    if not isinstance(net, HyperNet):
        outputs, _ = outputs_of_layers(net, x, y)
        return Start(tuple(t.std().item() for t in outputs.values()), ())
    plain = net.freeze()
    outputs, loss = outputs_of_layers(plain, x, y)
    names = [t.name for t in net.generated if t.role == "weight"]
    grads = torch.autograd.grad(loss / len(x), [plain.get_parameter(name) for name in names])
    return Start(tuple(t.std().item() for t in outputs.values()), tuple(_flow(net, names, grads)))


def _flow(net: HyperNet, names: list[str], grads: tuple[Tensor, ...]) -> list[float]:
    """∂L/∂h = H·∂L/∂W for each tensor by itself. Second moments, since both have mean zero in expectation."""
    heads = dict(zip((t.name for t in net.generated), net.heads.names, strict=True))
    ratios = []
    for name, grad in zip(names, grads, strict=True):
        into = net.heads.head(heads[name]).weight.detach() @ grad.flatten()
        ratios.append((into.square().mean() / grad.square().mean()).item())
    return ratios
