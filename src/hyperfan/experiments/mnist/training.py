"""The MNIST experiment under way: net, optimiser and data, all from one seed."""

import dataclasses
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hyperfan.data import MNIST, mnist, standardise
from hyperfan.errors import HyperfanWarning
from hyperfan.experiments.folder import Row
from hyperfan.experiments.mnist.config import CLASSICAL, Mnist
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet
from hyperfan.models import mnist_net
from hyperfan.optim import SGD
from hyperfan.probe import Moments, Probe, first_overflow

PIECE = 1000
"""Test images that go through at once."""
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class MnistTraining:
    """Trains as ``loop.run`` asks. Inputs are standardised with the mean and deviation of the training images."""

    def __init__(self, config: Mnist, data_dir: Path | None) -> None:
        self.config = config
        splits = mnist(data_dir)
        self.x = standardise(splits.train.images[: config.images], MNIST.mean, MNIST.std).flatten(1)
        self.y = splits.train.labels[: config.images]
        self.test_x = standardise(splits.test.images, MNIST.mean, MNIST.std).flatten(1)
        self.test_y = splits.test.labels
        seen = probed(config, len(self.test_x))
        self.probe = Probe(self.test_x[seen], self.test_y[seen])
        self.net, self.plan = build(config)
        self.optimiser = _optimiser(self.net, config)
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def step(self, step: int) -> float:
        """Train on one batch. A loss that is not finite is left alone: a step from it would hide where it came from."""
        x, y = self._batch(step)
        self.optimiser.zero_grad()
        loss = cross_entropy(self.net(x), y)
        value = loss.item()
        if math.isfinite(value):
            torch.autograd.backward(loss)
            self.optimiser.step()
        return value

    def tests(self, step: int) -> Iterator[Row]:
        """Summed cross-entropy and accuracy on all test images, before the start and after every epoch."""
        if step % self.config.epoch_batches and step != self.config.total:
            return
        net, loss, right = self._plain(), 0.0, 0
        with torch.no_grad():
            for x, y in zip(torch.split(self.test_x, PIECE), torch.split(self.test_y, PIECE), strict=True):
                out = net(x)
                loss += cross_entropy(out, y, reduction="sum").item()
                right += int((out.argmax(1) == y).sum())
        yield {"kind": "test", "step": step, "loss": loss, "accuracy": right / len(self.test_y)}

    def probes(self, step: int) -> Iterator[Row]:
        """Moments of every quantity in every layer, and histograms before the start and at the end."""
        ends = step in (0, self.config.total)
        if step % self.config.probe_every and not ends:
            return
        net = self._plain()
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

    def overflowed(self, step: int) -> str | None:
        """The first layer that is not finite on the batch after so many batches."""
        return first_overflow(self._plain(), *self._batch(step))

    def state(self) -> dict[str, Tensor]:
        """Net and optimiser. The data order and all else follow from seed and step."""
        tensors = {f"net.{name}": t for name, t in self.net.state_dict().items()}
        for index, held in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{name}": t for name, t in held.items()}
        return tensors

    def load(self, state: dict[str, Tensor]) -> None:
        """Go back to such a state."""
        self.net.load_state_dict({k.removeprefix("net."): t for k, t in state.items() if k.startswith("net.")})
        held: dict[int, dict[str, Tensor]] = {}
        for key, tensor in state.items():
            if key.startswith("optimiser."):
                _, index, name = key.split(".", 2)
                held.setdefault(int(index), {})[name] = tensor
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": held})

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The batch after so many: each epoch has an order of its own."""
        epoch, batch = divmod(step, self.config.epoch_batches)
        if self._order[0] != epoch:
            self._order = epoch, torch.randperm(len(self.x), generator=generator(self.config.seed, "order", epoch))
        chosen = self._order[1][batch * self.config.batch : (batch + 1) * self.config.batch]
        return self.x[chosen], self.y[chosen]

    def _plain(self) -> nn.Module:
        if not isinstance(self.net, HyperNet):
            return self.net
        with torch.no_grad():
            return self.net.freeze()


def probed(config: Mnist, images: int) -> Tensor:
    """Which of so many test images the probe of a run looks at."""
    return torch.randperm(images, generator=generator(config.seed, "probe"))[: config.probe_images]


def build(config: Mnist) -> tuple[nn.Module, Any]:
    """The net, and what was written into it, as JSON."""
    init = generator(config.seed, "init")
    with torch.device("meta"):
        mainnet = mnist_net(ACTIVATIONS[config.activation])
    if config.init == CLASSICAL:
        plain = mainnet.to_empty(device="cpu")
        for layer in plain:
            if isinstance(layer, nn.Linear):
                if config.activation == "relu":
                    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=init)
                else:
                    nn.init.xavier_uniform_(layer.weight, generator=init)
                nn.init.zeros_(layer.bias)
        rows = {n: {"mean": m.mean, "std": m.std} for n, p in plain.named_parameters() for m in [Moments.of(p)]}
        return plain, {"init": "kaiming" if config.activation == "relu" else "xavier", "parameters": rows}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HyperfanWarning)
        net = HyperNet(
            mainnet,
            config.embedding,
            generate=config.generate,
            heads=config.heads,
            init=config.init,
            fidelity=config.fidelity,
        )
        net.to_empty(device="cpu").reset_parameters(init, embeddings=generator(config.seed, "embeddings"))
    return net, {**net.plan.to_dict(), "warnings": [str(w.message) for w in caught]}


def _optimiser(net: nn.Module, config: Mnist) -> torch.optim.Optimizer:
    if config.optimiser == "adam":
        return torch.optim.Adam(net.parameters(), lr=config.rate)
    if isinstance(net, HyperNet):
        return SGD(net, lr=config.rate)
    return torch.optim.SGD(net.parameters(), lr=config.rate)
