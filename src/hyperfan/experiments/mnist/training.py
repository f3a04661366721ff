"""Training on MNIST: net, optimiser and data, all from one seed."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.data import MNIST, mnist, standardise
from hyperfan.experiments import classifier
from hyperfan.experiments.classifier import Classifier, optimiser
from hyperfan.experiments.mnist import Mnist
from hyperfan.experiments.seeds import generator
from hyperfan.metrics import Kind, Row
from hyperfan.models import mnist_net
from hyperfan.probe import Probe

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "linear": nn.Identity}


class MnistTraining(Classifier):
    """Inputs are standardised with the mean and deviation of the training images."""

    config: Mnist
    TEST_BATCH = 1000

    def __init__(self, config: Mnist, data_dir: Path | None) -> None:
        data = mnist(data_dir)
        self.x, self.test_x = (standardise(t.images, MNIST.mean, MNIST.std).flatten(1) for t in (data.train, data.test))
        self.y, self.test_y = data.train.labels, data.test.labels
        measured = probe_images(config, len(self.test_x))
        self.probe = Probe(self.test_x[measured], self.test_y[measured])
        net, plan = build(config)
        super().__init__(config, net, plan, optimiser(net, config.rate, config.optimiser))

    def probes(self, step: int) -> Iterator[Row]:
        """A diagnosis; then moments of every quantity in every layer, and histograms at the start and at the end."""
        ends = step in (0, self.config.total)
        if step % self.config.probe_every and not ends:
            return
        if step == 0:
            yield from self.diagnosis(self.probe.x, self.probe.y)
        net = self.plain()
        moments = self.probe.moments(net)
        for quantity, layers in moments.items():
            by_layer: dict[str, Any] = {where: [m.mean, m.std] for where, m in layers.items()}
            yield {"kind": Kind.MOMENTS, "step": step, "of": quantity, "layers": by_layer}
        for quantity, counted in self.probe.histograms(net, moments).items() if ends else ():
            by_layer = {where: dataclasses.asdict(h) for where, h in counted.items()}
            yield {"kind": Kind.HISTOGRAMS, "step": step, "of": quantity, "layers": by_layer}


def probe_images(config: Mnist, images: int) -> Tensor:
    """The test images, of so many, that the probe of a run measures on."""
    return torch.randperm(images, generator=generator(config.seed, "probe"))[: config.probe_images]


def build(config: Mnist) -> tuple[nn.Module, Any]:
    """The net of a run, and what was written into it, as JSON."""
    with torch.device("meta"):
        mainnet = mnist_net(ACTIVATIONS[config.activation])
    relu = config.activation == "relu"
    return classifier.build(mainnet, config, config.embedding, relu=relu, generate=config.generate, heads=config.heads)
