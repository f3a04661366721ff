"""Training of a classifier as ``loop.run`` asks. An experiment adds its pictures, its net, and what it looks at."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hyperfan.codes import Embedding
from hyperfan.errors import HyperfanWarning, RunError
from hyperfan.experiments.folder import Row
from hyperfan.experiments.ranks import ALONE, Ranks
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet
from hyperfan.optim import SGD
from hyperfan.probe import Moments, diagnose, first_overflow


class Config(Protocol):
    """What a configuration says about any classifier."""

    @property
    def seed(self) -> int:
        """For everything that is drawn."""

    @property
    def batch(self) -> int:
        """Images in a batch."""

    @property
    def epoch_batches(self) -> int:
        """Batches in an epoch."""

    @property
    def total(self) -> int:
        """Batches in the run."""

    @property
    def tested_every(self) -> int:
        """Batches between two tests."""


class Classifier(ABC):
    """A net, its optimiser and its pictures. The data order and all else follow from seed and step.

    Args:
        config: of the run.
        images: how many there are to train on.
        net, plan: what is trained, and what was written into it, as JSON.
        optimiser: trains the net.
        ranks: the processes that share each batch.
    """

    def __init__(
        self,
        config: Config,
        images: int,
        net: nn.Module,
        plan: Any,
        optimiser: torch.optim.Optimizer,
        ranks: Ranks = ALONE,
    ) -> None:
        self.config, self.images, self.ranks = config, images, ranks
        self.net, self.plan, self.optimiser = net, plan, optimiser
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    @abstractmethod
    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and classes of the batch after so many."""

    @abstractmethod
    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and classes of all test images, in pieces that fit into memory."""

    def step(self, step: int) -> float:
        """Train on one batch. A loss that is not finite is left alone: a step from it would hide where it came from."""
        x, y = self.batch(step)
        self.optimiser.zero_grad()
        loss = cross_entropy(self.net(x), y)
        if (weight := self.ranks.weight(len(y))) != 1:
            loss = loss * weight
        value = self.ranks.mean(loss.item())
        if math.isfinite(value):
            torch.autograd.backward(loss)
            self.ranks.average(self.optimiser)
            self.optimiser.step()
        return value

    def tests(self, step: int) -> Iterator[Row]:
        """Summed cross-entropy and accuracy on the test images, before the start, every so often, and at the end."""
        if step % self.config.tested_every and step != self.config.total:
            return
        net, loss, right, count = self.plain(), 0.0, 0, 0
        with torch.no_grad():
            for x, y in self.test_batches():
                out = net(x)
                loss += cross_entropy(out, y, reduction="sum").item()
                right += int((out.argmax(1) == y).sum())
                count += len(y)
        yield {"kind": "test", "step": step, "loss": loss, "accuracy": right / count}

    def probes(self, step: int) -> Iterator[Row]:
        """Nothing, unless an experiment looks inside."""
        yield from ()

    def diagnosed(self, x: Tensor, y: Tensor) -> Iterator[Row]:
        """What is seen in a hypernet before it is trained."""
        if isinstance(self.net, HyperNet):
            yield {"kind": "diagnosis", "step": 0, **diagnose(self.net, x, y).to_dict()}

    def overflowed(self, step: int) -> str | None:
        """The first layer that is not finite on the batch after so many batches."""
        return first_overflow(self.plain(), *self.batch(step))

    def state(self) -> dict[str, Tensor]:
        """Net and optimiser."""
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

    def together(self, step: int) -> int:
        """Bring all processes to where the first one is; returns how many batches it has trained on."""
        return self.ranks.together(step, lambda: Classifier.state(self), lambda state: Classifier.load(self, state))

    def plain(self) -> nn.Module:
        """The net with its weights written out, as they are now."""
        if not isinstance(self.net, HyperNet):
            return self.net
        with torch.no_grad():
            return self.net.freeze()

    def chosen(self, step: int) -> Tensor:
        """Which images the batch after so many has: each epoch has an order of its own."""
        epoch, batch = divmod(step, self.config.epoch_batches)
        if self._order[0] != epoch:
            self._order = epoch, torch.randperm(self.images, generator=generator(self.config.seed, "order", epoch))
        return self._order[1][batch * self.config.batch : (batch + 1) * self.config.batch]


def sgd(net: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Plain SGD, ours where there is a hypernet."""
    return SGD(net, lr=lr) if isinstance(net, HyperNet) else torch.optim.SGD(net.parameters(), lr=lr)


def hypernet(mainnet: nn.Module, seed: int, embedding: int | Embedding, **settings: Any) -> tuple[HyperNet, Any]:
    """A hypernet for a mainnet on the meta device, and its plan, as JSON, with the warnings it came with."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HyperfanWarning)
        net = HyperNet(mainnet, embedding, **settings)
        net.to_empty(device="cpu")
        net.reset_parameters(generator(seed, "init"), embeddings=generator(seed, "embeddings"))
    return net, {**net.plan.to_dict(), "warnings": [str(w.message) for w in caught]}


def classical(mainnet: nn.Module, seed: int, relu: bool) -> tuple[nn.Module, Any]:
    """The mainnet itself, from the meta device, with Kaiming init for ReLU or else Xavier, and its moments, as JSON."""
    plain, init = mainnet.to_empty(device="cpu"), generator(seed, "init")
    for layer in plain.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            if relu:
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=init)
            else:
                nn.init.xavier_uniform_(layer.weight, generator=init)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    rows = {n: {"mean": m.mean, "std": m.std} for n, p in plain.named_parameters() for m in [Moments.of(p)]}
    return plain, {"init": "kaiming" if relu else "xavier", "parameters": rows}


def device_named(name: str) -> torch.device:
    """The device, if torch can use it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch says it so or so
        raise RunError(
            f"--device {name}: torch cannot use it here. On a CPU, --profile laptop is sized for two cores, and "
            "--device cpu takes any profile"
        ) from error
    return device
