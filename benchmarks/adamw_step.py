"""A training step of the MNIST hypernet with hyperfan.AdamW, against dense autograd with torch's fused AdamW."""

import copy
import functools
import itertools
from collections.abc import Callable

import torch

import hyperfan as hf
from benchmarks.harness import Times, compare_times, conclude, interleave, main, memory_pass, peak_bytes, pooled
from benchmarks.training_step import batches, step
from hyperfan.models import mnist_net

TIME = (
    "a training step of the MNIST hypernet (a head for each weight, constant codes, AdamW) is in the median, over "
    "rounds in several processes, at least 4 times faster than with torch's fused AdamW on dense autograd"
)
UNCOMPILED = "… without a compiler: the ratio, whatever it is"
BANDWIDTH = "… over the time of reading each head twice and writing it once, at the machine's own rate: whatever it is"
MEMORY = "it holds at most 1.3 times the bytes of the parameters, its state included"
OURS, NOT_COMPILED, DENSE, IN_PLACE = "ours", "ours, not compiled", "dense", "in place"
RATE = 1e-5
OPTIMISERS: dict[str, Callable[[hf.HyperNet], torch.optim.Optimizer]] = {
    OURS: lambda net: hf.AdamW(net, lr=RATE),
    NOT_COMPILED: lambda net: hf.AdamW(net, lr=RATE, compile=False),
    DENSE: lambda net: torch.optim.AdamW(net.parameters(), lr=RATE, fused=True),
}
Step = Callable[[hf.HyperNet, torch.optim.Optimizer], object]


def hypernet() -> hf.HyperNet:
    return hf.HyperNet(mnist_net(), embedding=50, heads="separate")


def size(net: hf.HyperNet) -> int:
    """Values of all parameters."""
    return sum(p.numel() for p in net.parameters())


def peaks(build: Callable[[], hf.HyperNet], train: Step) -> dict[str, float]:
    """Bytes at peak in two steps of each optimiser, parameters and state included, over those of the parameters."""
    held = {}
    for name in (OURS, DENSE):
        for _ in range(2):  # the first compiles
            net = build()
            parameters = 4 * size(net)
            held[name] = (parameters + peak_bytes(functools.partial(_train, net, OPTIMISERS[name], train))) / parameters
    return held


def _train(net: hf.HyperNet, make: Callable[[hf.HyperNet], torch.optim.Optimizer], train: Step) -> None:
    opt = make(net)
    for _ in range(2):
        train(net, opt)


def conclude_memory(name: str, claim: str, held: dict[str, float], limit: float) -> bool:
    what = "bytes at peak over bytes of parameters"
    return conclude(name, claim, what, {"median": held[OURS]}, limit, {"dense_autograd": held[DENSE]})


def measure(rounds: str) -> Times:
    """Seconds of each step in this process."""
    torch.manual_seed(0)
    net = hypernet()
    draws = itertools.tee(batches(int(rounds)), len(OPTIMISERS))
    functions: dict[str, Callable[[], object]] = {IN_PLACE: memory_pass(size(net))}
    for (name, make), its in zip(OPTIMISERS.items(), draws, strict=True):
        own = copy.deepcopy(net)
        opt = make(own)
        functions[name] = lambda own=own, opt=opt, its=its: step(own, opt, *next(its))
        if name == OURS:
            assert {row.kind for row in opt.plan.rows} == {"collapsed"}
    return interleave(functions, int(rounds))


def run(processes: int = 5, rounds: int = 40) -> bool:
    torch.manual_seed(0)
    x, y = next(batches(1))
    held = peaks(hypernet, lambda net, opt: step(net, opt, x, y))
    runs = pooled("adamw_step", rounds, processes)
    return all(
        [
            conclude_memory("adamw_step_memory", MEMORY, held, 1.3),
            compare_times("adamw_step", TIME, runs, 1 / 4, OURS, DENSE),
            compare_times("adamw_step_uncompiled", UNCOMPILED, runs, None, NOT_COMPILED, DENSE),
            compare_times("adamw_step_bandwidth", BANDWIDTH, runs, None, OURS, IN_PLACE, scale=3 / 2),
        ]
    )


if __name__ == "__main__":
    main("adamw_step", run, measure)
