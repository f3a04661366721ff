"""A training step of the paper's MNIST hypernet with hyperfan.SGD, against the same step of the plain net."""

import itertools
import json
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn

import hyperfan as hf
from benchmarks.harness import conclude, interleave, medians, summary
from hyperfan.models import mnist_net

CLAIM = (
    "a training step of the MNIST hypernet (fixed embeddings, plain SGD) costs in the median, over rounds in several "
    "processes, at most 1.3 times that of the plain net"
)
BATCH = 10


RATE = 5e-4


def step(net: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()


def hypernet_and_optimiser(embedding: hf.Embedding | int = 50) -> tuple[hf.HyperNet, hf.SGD]:
    """d_k = 50, weights generated, and, by default, heads shared: collapsed."""
    net = hf.HyperNet(mnist_net(), embedding)
    opt = hf.SGD(net, lr=RATE)
    assert {row.kind for row in opt.plan.rows} == {"collapsed"}
    return net, opt


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds of each step in this process."""
    torch.manual_seed(0)
    x, y = torch.randn(rounds, BATCH, 784), torch.randint(10, (rounds, BATCH))
    draws = itertools.cycle(range(rounds)), itertools.cycle(range(rounds))
    net, opt = hypernet_and_optimiser()
    plain = mnist_net()
    plain_opt = torch.optim.SGD(plain.parameters(), lr=51 * RATE)  # what the hypernet's rate comes to
    functions = {
        "ours": lambda: step(net, opt, x[i := next(draws[0])], y[i]),
        "theirs": lambda: step(plain, plain_opt, x[i := next(draws[1])], y[i]),
    }
    return interleave(functions, rounds)


def run(processes: int = 9, rounds: int = 200) -> bool:
    """Over several processes, because how memory happens to lie makes one process differ from the next."""
    command = [sys.executable, "-m", "benchmarks.training_step", str(rounds)]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(processes)]
    pairs = [pair for times in runs for pair in zip(times["ours"], times["theirs"], strict=True)]
    each = [statistics.median(a / b for a, b in zip(t["ours"], t["theirs"], strict=True)) for t in runs]
    more = {
        "median_ms": medians({"ours": [a for a, _ in pairs], "theirs": [b for _, b in pairs]}),
        "median_of_each_process": sorted(each),
    }
    return conclude("training_step", CLAIM, "time", summary([a / b for a, b in pairs]), 1.3, more)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
        raise SystemExit(0)
    raise SystemExit(0 if run() else 1)
