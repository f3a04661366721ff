"""Jobs on handwritten digits: a neural field from a picture, and clients that each have digits of their own."""

import functools
from pathlib import Path
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn.functional import avg_pool2d, log_softmax

from hyperfan.data import mnist
from hyperfan.experiments.conditions.jobs import TRAINED, Batch, Job, Mainnets, World
from hyperfan.experiments.seeds import generator

CLASSES, MNIST_SIDE = 10, 28
MAX_PICTURES = 10_000
"""Pictures of the training set that are used; the test set has no more."""
Digits = tuple[Tensor, Tensor]
"""Pictures, one row for each, and labels."""


@functools.cache
def digits(data_dir: Path | None, side: int) -> tuple[Digits, Digits]:
    """Training and test digits of MNIST, made smaller, with the training pixels at mean 0 and variance 1."""
    found = mnist(data_dir)
    small = [
        avg_pool2d(part.images[:MAX_PICTURES].unsqueeze(1).float(), MNIST_SIDE // side).flatten(1)
        for part in (found.train, found.test)
    ]
    mean, std = small[0].mean(), small[0].std()
    train, test = ((pictures - mean) / std for pictures in small)
    return (train, found.train.labels[:MAX_PICTURES]), (test, found.test.labels[:MAX_PICTURES])


class Field(Job):
    """A digit's pixels → a field with sines that gives the picture at any place."""

    label = "neural field of a digit"
    size, inputs = 196, 2
    distribution = "pixels, standardised"
    known = 256
    points = 32
    nonlinearity = "sin"
    SIDE: ClassVar[int] = 14
    REACH: ClassVar[float] = 8.0
    """Coordinates go from minus to plus this, which sets the frequencies of the first layer."""

    def world(self, seed: int, data_dir: Path | None) -> World:
        """Digits of the training set to learn, and of the test set as those unseen; each is its own condition."""
        draws = generator(seed, "world")
        (train, _), (test, _) = digits(data_dir, self.SIDE)
        drawn = [
            part[torch.randperm(len(part), generator=draws)[:count]]
            for part, count in ((train, self.known), (test, self.unseen))
        ]
        pictures, ticks = torch.cat(drawn), torch.linspace(-self.REACH, self.REACH, self.SIDE)

        def batch(chosen: Tensor, points: int, draws: Generator, test: bool) -> Batch:
            at = torch.randint(self.SIDE**2, (len(chosen), points), generator=draws)
            x = torch.stack([ticks[at // self.SIDE], ticks[at % self.SIDE]], -1)
            return {"x": x, "y": pictures[chosen].gather(1, at).unsqueeze(-1)}

        return World(pictures, batch)


class Clients(Job):
    """Clients that each have three of the ten digits: an embedding for each in a table that is trained."""

    label = "federated clients"
    size, inputs, outputs = 8, 49, CLASSES
    distribution = TRAINED
    known, unseen = 16, 0
    batch, points = 4, 16
    SIDE: ClassVar[int] = 7
    CLASSES_EACH: ClassVar[int] = 3
    PICTURES_EACH: ClassVar[int] = 60

    def world(self, seed: int, data_dir: Path | None) -> World:
        """The pictures of each client, and those to test it on."""
        draws = generator(seed, "world")
        own = [torch.randperm(CLASSES, generator=draws)[: self.CLASSES_EACH] for _ in range(self.known)]
        parts = digits(data_dir, self.SIDE)
        held = [torch.stack([self._some(labels, classes, draws) for classes in own]) for _, labels in parts]

        def batch(chosen: Tensor, points: int, draws: Generator, test: bool) -> Batch:
            pictures, labels = parts[test]
            at = torch.randint(self.PICTURES_EACH, (len(chosen), points), generator=draws)
            index = held[test][chosen].gather(1, at)
            return {"x": pictures[index], "label": labels[index].unsqueeze(-1)}

        return World(None, batch)

    def _some(self, labels: Tensor, classes: Tensor, draws: Generator) -> Tensor:
        """As many pictures of these classes as a client has, by index; where there are fewer, some of them twice."""
        fitting = torch.isin(labels, classes).nonzero().squeeze(1)
        order = torch.randperm(len(fitting), generator=draws)
        return fitting[order[torch.arange(self.PICTURES_EACH) % len(order)]]

    def loss(self, call: Mainnets, batch: Batch) -> Tensor:
        """Cross-entropy."""
        return -log_softmax(call(batch["x"]), -1).gather(-1, batch["label"]).mean((2, 3))
