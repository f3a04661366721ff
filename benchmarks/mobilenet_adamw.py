"""Generating MobileNet's weights from noisy embeddings and updating the head weights with AdamW."""

import copy
from collections.abc import Callable

import torch

from benchmarks.adamw_step import DENSE, IN_PLACE, NOT_COMPILED, OPTIMISERS, OURS, conclude_memory, peaks, size
from benchmarks.harness import Times, compare_times, interleave, main, memory_pass, pooled
from benchmarks.mobilenet_head import hypernet, step

TIME = (
    "generating and updating MobileNet's 134.7 M head weights (noisy embeddings, AdamW) is in the median, over rounds "
    "in several processes, at least 2.5 times faster than with torch's fused AdamW on dense autograd"
)
UNCOMPILED = "… without a compiler, at least 1.3 times faster"
BANDWIDTH = (
    "… over the time of reading each head and its moments and writing them, and reading the head to generate, at the "
    "machine's own rate: whatever it is"
)
MEMORY = "beside the mainnet itself, it holds at most 3.1 times the bytes of the parameters, its state included"


def measure(rounds: str) -> Times:
    """Seconds of each step in this process."""
    torch.manual_seed(0)
    net = hypernet()
    functions: dict[str, Callable[[], object]] = {IN_PLACE: memory_pass(size(net))}
    for name, make in OPTIMISERS.items():
        own = copy.deepcopy(net)
        opt = make(own)
        functions[name] = lambda own=own, opt=opt: step(own, opt)
        if name == OURS:
            assert {row.kind for row in opt.plan.rows} == {"factored", "dense"}  # small heads: torch
    return interleave(functions, int(rounds), warm_up=2)


def run(processes: int = 5, rounds: int = 10) -> bool:
    torch.manual_seed(0)
    held = peaks(hypernet, step)
    runs = pooled("mobilenet_adamw", rounds, processes)
    return all(
        [
            conclude_memory("mobilenet_adamw_memory", MEMORY, held, 3.1),
            compare_times("mobilenet_adamw", TIME, runs, 1 / 2.5, OURS, DENSE),
            compare_times("mobilenet_adamw_uncompiled", UNCOMPILED, runs, 1 / 1.3, NOT_COMPILED, DENSE),
            compare_times("mobilenet_adamw_bandwidth", BANDWIDTH, runs, None, OURS, IN_PLACE, scale=7 / 2),
        ]
    )


if __name__ == "__main__":
    main("mobilenet_adamw", run, measure)
