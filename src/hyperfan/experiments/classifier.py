"""Training of a classifier for the loop. An experiment adds its pictures, its net, and what its probe measures."""

import functools
import math
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hyperfan.codes import Embedding
from hyperfan.errors import HyperfanWarning, RunError
from hyperfan.experiments.draws import draw_init
from hyperfan.experiments.experiment import CLASSICAL, ClassifierConfiguration
from hyperfan.experiments.ranks import Ranks
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.state import join_states, part_of
from hyperfan.experiments.training import Training
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import Kind, Row
from hyperfan.optim import SGD, Adam
from hyperfan.probe import Moments, diagnose, first_overflow


class Classifier(Training):
    """A net, its optimiser and its pictures. The data order and all else follow from seed and step.

    The plan is what was written into the net, as JSON; ranks are the processes that share each batch.
    """

    def __init__(
        self,
        config: ClassifierConfiguration,
        net: nn.Module,
        plan: Any,
        optimiser: torch.optim.Optimizer,
        ranks: Ranks | None = None,
    ) -> None:
        self.config, self.ranks = config, ranks or Ranks.join(config.device)
        if config.batch < self.ranks.world:
            raise RunError(f"--batch {config.batch} cannot be shared by {self.ranks.world} processes: use a larger one")
        self.net, self.plan, self.optimiser = net, plan, optimiser

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    TEST_BATCH: ClassVar[int] = 100

    def inputs(self, images: Tensor, step: int | None) -> Tensor:
        """What the net is given of images: those of the batch after so many, or with ``None`` of a test."""
        return images

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and classes of this process's part of the batch after so many."""
        x, y = self.full_batch(step)
        part = slice(self.ranks.rank, None, self.ranks.world)
        return x[part], y[part]

    def full_batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and classes of the batch after so many, of all processes."""
        chosen = indices(self.config, step).to(self.x.device)
        return self.inputs(self.x[chosen], step), self.y[chosen]

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and classes of all test images, in pieces that fit into memory."""
        for x, y in zip(*(torch.split(t, self.TEST_BATCH) for t in (self.test_x, self.test_y)), strict=True):
            yield self.inputs(x, None), y

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
        yield {"kind": Kind.TEST, "step": step, "loss": loss, "accuracy": right / count}

    def diagnosis(self, x: Tensor, y: Tensor) -> Iterator[Row]:
        """A diagnosis of a hypernet before it is trained."""
        if isinstance(self.net, HyperNet):
            found = diagnose(self.net, x, y, optimiser=self.config.optimiser)
            yield {"kind": Kind.DIAGNOSIS, "step": 0, **found.to_dict()}

    def first_overflow(self, step: int) -> str | None:
        """The first layer that is not finite on the batch after so many batches, whichever process it was in."""
        return first_overflow(self.plain(), *self.full_batch(step))

    @property
    def state_is_exact(self) -> bool:
        """Unless a head is trained collapsed: then a state has the head, which rounds what is trained from then on."""
        plan = getattr(self.optimiser, "plan", None)
        return plan is None or all(row.kind != "collapsed" for row in plan.rows)

    def state(self) -> dict[str, Tensor]:
        """Net and optimiser."""
        return state_of(self.net, self.optimiser)

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        load_into(self.net, self.optimiser, state)

    def synchronise(self, step: int) -> int:
        """Give all processes the state of the first one; returns how many batches it has trained on."""
        return self.ranks.broadcast(step, lambda: Classifier.state(self), lambda state: Classifier.load(self, state))

    def plain(self) -> nn.Module:
        """The net with its weights written out, as they are now."""
        if not isinstance(self.net, HyperNet):
            return self.net
        with torch.no_grad():
            return self.net.freeze()


def state_of(net: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of a net and its optimiser as tensors by name, for a checkpoint."""
    held = {f"optimiser.{index}.": tensors for index, tensors in optimiser.state_dict()["state"].items()}
    return join_states({"net.": net.state_dict(), **held})


def load_into(net: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    """Restore what :func:`state_of` returned."""
    net.load_state_dict(part_of(state, "net."))
    held: dict[int, dict[str, Tensor]] = {}
    for key, tensor in part_of(state, "optimiser.").items():
        index, _, name = key.partition(".")
        held.setdefault(int(index), {})[name] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": held})


def indices(config: ClassifierConfiguration, step: int) -> Tensor:
    """The images of the batch after so many: each epoch has a new order."""
    epoch, batch = divmod(step, config.epoch_batches)
    return _order(config.seed, config.images, epoch)[batch * config.batch : (batch + 1) * config.batch]


@functools.lru_cache(maxsize=2)
def _order(seed: int, images: int, epoch: int) -> Tensor:
    return torch.randperm(images, generator=generator(seed, "order", epoch))


def optimiser(net: nn.Module, lr: float, name: str = "sgd") -> torch.optim.Optimizer:
    """Plain SGD or Adam: hyperfan's for a hypernet, torch's for another net.

    Nothing is compiled, so that a run has the same bits wherever there is a compiler or none.
    """
    if name == "adam":
        return Adam(net, lr, compile=False) if isinstance(net, HyperNet) else torch.optim.Adam(net.parameters(), lr)
    return SGD(net, lr) if isinstance(net, HyperNet) else torch.optim.SGD(net.parameters(), lr)


def build(
    mainnet: nn.Module, config: Any, embedding: int | Embedding, *, relu: bool = True, **settings: Any
) -> tuple[nn.Module, Any]:
    """The net of a run from a mainnet on the meta device, and what was written into it, as JSON.

    That is a hypernet, or for the init "classical" the mainnet itself, with Kaiming init for ReLU or else Xavier.
    """
    if config.init != CLASSICAL:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", HyperfanWarning)
            net = HyperNet(mainnet, embedding, init=config.init, fidelity=config.fidelity, **settings)
            draw_init(net.to_empty(device="cpu"), config.seed)
        return net, {**net.plan.to_dict(), "warnings": [str(w.message) for w in caught]}
    plain, init = mainnet.to_empty(device="cpu"), generator(config.seed, "init")
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


def join_ranks(device: str) -> tuple[Ranks, torch.device]:
    """This process among those of a run on such devices, and its own device."""
    device_named(device)  # before the others are waited for
    ranks = Ranks.join(device)
    return ranks, device_named(ranks.device)


def device_named(name: str) -> torch.device:
    """The device, if torch can use it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # which of them depends on the device
        raise RunError(
            f"--device {name}: torch cannot use it here. On a CPU, --profile laptop is sized for two cores, and "
            "--device cpu takes any profile"
        ) from error
    return device
