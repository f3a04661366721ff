"""A training step of the paper's MNIST hypernet with hyperfan.SGD, against the same step of the plain net."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

import hyperfan as hf
from benchmarks.harness import compare
from hyperfan.models import mnist_net

CLAIM = "a training step of the MNIST hypernet costs at most 1.3 times that of the plain net"
BATCH = 10


RATE = 5e-4


def step(net: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()


def hypernet_and_optimiser() -> tuple[hf.HyperNet, hf.SGD]:
    """Shared heads, d_k = 50, weights generated: collapsed."""
    net = hf.HyperNet(mnist_net(), embedding=50)
    opt = hf.SGD(net, lr=RATE)
    assert {row.kind for row in opt.plan.rows} == {"collapsed"}
    return net, opt


def run(rounds: int = 600) -> bool:
    torch.manual_seed(0)
    x, y = torch.randn(rounds, BATCH, 784), torch.randint(10, (rounds, BATCH))
    draws = itertools.cycle(range(rounds)), itertools.cycle(range(rounds))
    net, opt = hypernet_and_optimiser()
    plain = mnist_net()
    plain_opt = torch.optim.SGD(plain.parameters(), lr=51 * RATE)  # what the hypernet's rate comes to
    return compare(
        "training_step",
        CLAIM,
        lambda: step(net, opt, x[i := next(draws[0])], y[i]),
        lambda: step(plain, plain_opt, x[i := next(draws[1])], y[i]),
        limit=1.3,
        rounds=rounds,
    )


if __name__ == "__main__":
    raise SystemExit(0 if run() else 1)
