"""The MNIST experiment under way: net, optimiser and data, all from one seed."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.data import MNIST, mnist, standardise
from hyperfan.experiments.classifier import Classifier, classical, hypernet, sgd
from hyperfan.experiments.folder import Row
from hyperfan.experiments.mnist.config import Mnist
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.settings import CLASSICAL
from hyperfan.models import mnist_net
from hyperfan.probe import Probe

PIECE = 1000
"""Test images that go through at once."""
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class MnistTraining(Classifier):
    """Inputs are standardised with the mean and deviation of the training images."""

    config: Mnist

    def __init__(self, config: Mnist, data_dir: Path | None) -> None:
        splits = mnist(data_dir)
        self.x = standardise(splits.train.images[: config.images], MNIST.mean, MNIST.std).flatten(1)
        self.y = splits.train.labels[: config.images]
        self.test_x = standardise(splits.test.images, MNIST.mean, MNIST.std).flatten(1)
        self.test_y = splits.test.labels
        seen = probed(config, len(self.test_x))
        self.probe = Probe(self.test_x[seen], self.test_y[seen])
        net, plan = build(config)
        super().__init__(config, len(self.x), net, plan, _optimiser(net, config))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """As they are."""
        chosen = self.chosen(step)
        return self.x[chosen], self.y[chosen]

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All of them."""
        return zip(torch.split(self.test_x, PIECE), torch.split(self.test_y, PIECE), strict=True)

    def probes(self, step: int) -> Iterator[Row]:
        """A diagnosis; then moments of every quantity in every layer, and histograms at the start and at the end."""
        ends = step in (0, self.config.total)
        if step % self.config.probe_every and not ends:
            return
        if step == 0:
            yield from self.diagnosed(self.probe.x, self.probe.y)
        net = self.plain()
        moments = self.probe.moments(net)
        for quantity, layers in moments.items():
            yield {
                "kind": "moments",
                "step": step,
                "of": quantity,
                "layers": {where: [m.mean, m.std] for where, m in layers.items()},
            }
        if ends:
            for quantity, counted in self.probe.histograms(net, moments).items():
                layers_ = {where: dataclasses.asdict(h) for where, h in counted.items()}
                yield {"kind": "histograms", "step": step, "of": quantity, "layers": layers_}


def probed(config: Mnist, images: int) -> Tensor:
    """Which of so many test images the probe of a run looks at."""
    return torch.randperm(images, generator=generator(config.seed, "probe"))[: config.probe_images]


def build(config: Mnist) -> tuple[nn.Module, Any]:
    """The net, and what was written into it, as JSON."""
    with torch.device("meta"):
        mainnet = mnist_net(ACTIVATIONS[config.activation])
    if config.init == CLASSICAL:
        return classical(mainnet, config.seed, relu=config.activation == "relu")
    return hypernet(
        mainnet,
        config.seed,
        config.embedding,
        generate=config.generate,
        heads=config.heads,
        init=config.init,
        fidelity=config.fidelity,
    )


def _optimiser(net: nn.Module, config: Mnist) -> torch.optim.Optimizer:
    if config.optimiser == "adam":
        return torch.optim.Adam(net.parameters(), lr=config.rate)
    return sgd(net, config.rate)
