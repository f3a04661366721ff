"""A training step of the paper's MNIST hypernet, against the same in other libraries for hypernetworks."""

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import hyperfan as hf
from benchmarks.harness import Times, compare_times, conclude, interleave, main, medians, pooled, summary
from benchmarks.peers import AS_THEY_COME, EMBEDDING, TUNED, Trainer, batch, classical
from benchmarks.training_step import beside_plain, hypernet_and_optimiser, step

BESIDE_PLAIN = (
    "a training step of an MNIST hypernet with one fixed embedding and a head for each weight costs in the median, "
    "over rounds in several processes, at most 1.3 times that of the plain net"
)
AS_DOCUMENTED = "… over a step in the fastest of other libraries as documented: the ratio, whatever it is"
AT_BEST = "with shared heads, over a step in the fastest set-up of another library that we found: whatever it is"
BLOCK = 5
"""Steps of each in a row, after a rest: one library's idle threads and cold caches are not another's time."""
CLASSICAL, OURS, ONE_EMBEDDING = "classical", "ours", "ours, one embedding"
Pair = tuple[hf.HyperNet, torch.optim.Optimizer]


def one_embedding() -> hf.Embedding:
    return hf.Embedding(EMBEDDING, per="net")


def block(function: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(BLOCK):
            function()

    return run


def race(
    ours: Mapping[str, Pair], trainers: Mapping[str, Trainer], x: Tensor, y: Tensor, rounds: int
) -> tuple[Times, dict[str, object]]:
    """Seconds of each step, and what to store of all together."""
    functions = {name: block(functools.partial(step, *pair, x, y)) for name, pair in ours.items()}
    times = interleave(functions | {name: block(t) for name, t in trainers.items()}, rounds, warm_up=2, rest=0.25)
    times = {name: [t / BLOCK for t in values] for name, values in times.items()}
    sizes = {name: sum(p.numel() for p in net.parameters()) for name, (net, _) in ours.items()}
    sizes |= {name: trainer.parameters for name, trainer in trainers.items()}
    return times, {"median_ms": medians(times), "parameters": sizes}


def report(
    name: str, claim: str, mine: str, peers: Mapping[str, object], times: Times, more: dict[str, object]
) -> bool:
    """Store and print how ours compares with the fastest of some peers."""
    speed = medians(times)
    faster = {peer: speed[peer] / speed[mine] for peer in peers}
    fastest = min(faster, key=faster.__getitem__)
    ratios = [a / b for a, b in zip(times[mine], times[fastest], strict=True)]
    more = {"ours": mine, "fastest_peer": fastest, "times_ours": faster, **more}
    return conclude(name, claim, "time", summary(ratios), None, more)


def measure(rounds: str) -> Times:
    """Seconds of each step in this process, in which no other library has threads."""
    return beside_plain(one_embedding(), int(rounds))


def run(rounds: int = 15) -> bool:
    torch.manual_seed(0)
    x, y = batch()
    trainers = {name: build(x, y) for name, build in {CLASSICAL: classical, **AS_THEY_COME, **TUNED}.items()}
    ours = {OURS: hypernet_and_optimiser(), ONE_EMBEDDING: hypernet_and_optimiser(one_embedding())}
    times, more = race(ours, trainers, x, y, rounds)
    return all(
        [
            compare_times("peer_step_plain", BESIDE_PLAIN, pooled("peer_step", 200, 9), limit=1.3),
            report("peer_step", AS_DOCUMENTED, ONE_EMBEDDING, AS_THEY_COME, times, more),
            report("peer_step_tuned", AT_BEST, OURS, TUNED, times, more),
        ]
    )


if __name__ == "__main__":
    main("peer_step", run, measure)
