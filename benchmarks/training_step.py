"""A training step of the paper's MNIST hypernet with hyperfan.SGD, against the same step of the plain net."""

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

import hyperfan as hf
from benchmarks.harness import Times, compare_times, interleave, main, measured
from hyperfan.models import mnist_net

CLAIM = (
    "a training step of the MNIST hypernet (fixed embeddings, plain SGD) costs{where} in the median, over rounds in "
    "several processes, at most {limit} times that of the plain net"
)
BATCH = 10
RATE = 5e-4


def batches(number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random images and labels, over and over: what one batch alone teaches is soon learnt, and numbers get small."""
    x, y = torch.randn(number, BATCH, 784), torch.randint(10, (number, BATCH))
    return itertools.cycle(zip(x, y, strict=True))


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


def beside_plain(embedding: hf.Embedding | int, rounds: int) -> Times:
    """Seconds of each step of the hypernet and of the plain net, on the same batches."""
    torch.manual_seed(0)
    draws = itertools.tee(batches(rounds))
    net, opt = hypernet_and_optimiser(embedding)
    plain = mnist_net()
    plain_opt = torch.optim.SGD(plain.parameters(), lr=51 * RATE)  # what the hypernet's rate comes to
    functions = {
        "ours": lambda: step(net, opt, *next(draws[0])),
        "theirs": lambda: step(plain, plain_opt, *next(draws[1])),
    }
    return interleave(functions, rounds)


def measure(argument: str) -> Times:
    """Seconds of each step in this process: the argument has rounds and, behind a comma, threads."""
    rounds, threads = map(int, argument.split(","))
    torch.set_num_threads(threads)
    return beside_plain(50, rounds)


def run(processes: int = 9, rounds: int = 200) -> bool:
    """In as many threads as there are, and in one."""
    held = []
    for name, threads, limit, where in (
        ("training_step", torch.get_num_threads(), 1.15, ""),
        ("training_step_one_thread", 1, 1.5, ", in one thread,"),
    ):
        torch.set_num_threads(threads)  # which the result names
        runs = [measured("training_step", f"{rounds},{threads}") for _ in range(processes)]
        held.append(compare_times(name, CLAIM.format(where=where, limit=limit), runs, limit))
    return all(held)


if __name__ == "__main__":
    main("training_step", run, measure)
