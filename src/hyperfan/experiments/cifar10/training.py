"""Training on CIFAR-10: net, optimiser and data, all from one seed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.data import CIFAR10, cifar10, standardise
from hyperfan.data.augment import shift_and_flip
from hyperfan.experiments import classifier
from hyperfan.experiments.cifar10 import Cifar10
from hyperfan.experiments.classifier import Classifier, join_ranks, optimiser
from hyperfan.experiments.seeds import generator
from hyperfan.generators import Chunks
from hyperfan.metrics import Row
from hyperfan.models import all_cnn

MAX_SHIFT = 4
"""Pixels by which augmentation moves a picture at most."""
DIAGNOSED_IMAGES = 20
"""Images that a net is diagnosed on, which takes many times as long as training on them."""


class Cifar10Training(Classifier):
    """Inputs are standardised with the means and deviations of the training images' channels."""

    config: Cifar10

    def __init__(self, config: Cifar10, data_dir: Path | None) -> None:
        ranks, device = join_ranks(config.device)
        data = cifar10(data_dir)
        self.x, self.y = data.train.images.to(device), data.train.labels.to(device)
        self.test_x = data.test.images[: config.test_images].to(device)
        self.test_y = data.test.labels[: config.test_images].to(device)
        net, plan = build(config)
        super().__init__(config, net, plan, optimiser(net.to(device), config.rate), ranks)

    def inputs(self, images: Tensor, step: int | None) -> Tensor:
        """Standardised images, in training also augmented if so configured."""
        if self.config.augment and step is not None:
            images = shift_and_flip(images, MAX_SHIFT, generator(self.config.seed, "augment", step))
        return standardise(images, CIFAR10.mean, CIFAR10.std)

    def probes(self, step: int) -> Iterator[Row]:
        """A diagnosis on images of the first batch, before it is trained on."""
        if step == 0:
            yield from self.diagnosis(*(t[:DIAGNOSED_IMAGES] for t in self.batch(0)))

    def step(self, step: int) -> float:
        """Train on one batch, at the rate of its epoch."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.rate_at(step)
        return super().step(step)


def build(config: Cifar10) -> tuple[nn.Module, Any]:
    """The net of a run, and what was written into it, as JSON."""
    with torch.device("meta"):
        mainnet = all_cnn()
    return classifier.build(mainnet, config, config.embedding, heads=Chunks(one_head=True))
