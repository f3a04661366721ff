"""A net trained by an optimiser of hyperfan beside its twin under torch's and dense autograd: the oracle."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hyperfan as hf

STEPS = 16


def mainnet() -> nn.Module:
    """Repeated shapes, a shape of its own, biases; smooth, so that rounding does not grow."""
    return nn.Sequential(
        nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)
    ).double()


def build(embedding: hf.Embedding | int = 7, **kwargs: Any) -> hf.HyperNet:
    torch.manual_seed(0)
    return hf.HyperNet(mainnet(), embedding, **kwargs)


def batches(steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(6, 4, generator=g, dtype=torch.float64), torch.randint(3, (6,), generator=g)


def loss_of(net: nn.Module, x: Tensor, y: Tensor, **call: Any) -> Tensor:
    return F.cross_entropy(net(x, **call), y)


class Twins:
    """Two equal nets, ours with an optimiser of hyperfan, the other with torch's that it equals."""

    def __init__(self, net: hf.HyperNet, optimiser: str = "SGD", **options: Any) -> None:
        self.ours, self.theirs = net, copy.deepcopy(net)
        self.options = options
        kind = getattr(hf, optimiser)
        self.opt = kind(self.ours, **options)
        self.oracle = kind.torch_class(self.theirs.parameters(), **options)

    def train(self, steps: int = STEPS, between: Callable[["Twins", int], None] | None = None, **call: Any) -> None:
        """Train both on the same data and noise, and compare losses at each step and everything at the end."""
        for i, (x, y) in enumerate(batches(steps)):
            if between is not None:
                between(self, i)
            losses = []
            for net, opt in ((self.ours, self.opt), (self.theirs, self.oracle)):
                torch.default_generator.manual_seed(i)
                opt.zero_grad()
                loss = loss_of(net, x, y, **call)
                loss.backward()
                opt.step()
                losses.append(loss.detach())
            assert_same(*losses)
        self.compare()

    def compare(self, tolerance: float = 1e-12) -> None:
        """Parameters, and the momentum or the moments behind them."""
        self.opt.sync()
        for (name, a), (_, b) in zip(self.ours.state_dict().items(), self.theirs.state_dict().items(), strict=True):
            assert_same(a, b, name, tolerance)
        ours, theirs = self.opt.state_dict()["state"], self.oracle.state_dict()["state"]
        for i, entry in theirs.items():
            held = {key: value for key, value in entry.items() if value is not None}
            assert {key for key, value in ours.get(i, {}).items() if value is not None} == set(held), i
            for key, value in held.items():
                assert_same(ours[i][key].double(), value.double(), f"{key} {i}", tolerance)


def assert_same(a: Tensor, b: Tensor, name: str = "loss", tolerance: float = 1e-12) -> None:
    """Equal to 1e-12 or so of the tensor's largest value; integers, such as signs, equal."""
    if not a.is_floating_point():
        assert torch.equal(a, b), name
        return
    assert a.dtype == b.dtype == torch.float64
    scale = b.abs().max().item() if b.numel() else 0.0
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance * max(scale, 1e-300), msg=lambda m: f"{name}: {m}")
