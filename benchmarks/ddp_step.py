"""The constants of this machine in the model of many machines, and its prediction for two processes against a run."""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import hyperfan as hf
from benchmarks.harness import conclude, main
from benchmarks.many_machines import HypernetSize, Machine, wire_bytes
from hyperfan.models import mnist_net

CLAIM = (
    "forward and backward of the MNIST hypernet (collapsed) in two processes that average their gradients take what "
    "the model predicts from the same without averaging, and from the latency and bandwidth of all-reduces, within a "
    "factor of 1.5"
)
WORLD, BATCH, ROUNDS, LIMIT = 2, 10, 30, 1.5
FEW, MANY = 1 << 4, 1 << 21
"""Values of the all-reduces that latency and bandwidth are taken from."""


def timed(function: Callable[[], object]) -> float:
    dist.barrier()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def work(rank: int, port: int) -> None:
    """One of the processes: everything is timed in turn."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = hf.HyperNet(mnist_net(), 50)
    ddp = DistributedDataParallel(net)
    opt = hf.SGD(net, lr=1e-5)
    x, y, few, many = torch.randn(BATCH, 784), torch.randint(10, (BATCH,)), torch.zeros(FEW), torch.zeros(MANY)
    a, values = torch.randn(512, 512), torch.ones(1 << 24)

    def passes() -> None:
        opt.zero_grad()
        F.cross_entropy(ddp(x), y).backward()

    def alone() -> None:
        with ddp.no_sync():
            passes()

    functions: dict[str, Callable[[], object]] = {
        "shared": passes,
        "alone": alone,
        "few": lambda: dist.all_reduce(few),
        "many": lambda: dist.all_reduce(many),
        "product": lambda: a @ a,
        "memory": lambda: values.mul_(1.0),
    }
    for _ in range(3):
        for function in functions.values():
            function()
    times = {name: [timed(function) for _ in range(1)] for name, function in functions.items()}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            times[name].append(timed(function))
    if rank == 0:
        print(json.dumps({"times": times, "generated": sum(t.numel for t in net.generated)}))
    dist.destroy_process_group()


def measured() -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "import sys; from benchmarks.ddp_step import work; work(*map(int, sys.argv[1:]))"]
    started = [subprocess.Popen([*command, str(r), str(port)], stdout=subprocess.PIPE) for r in range(WORLD)]
    first, *_ = [process.communicate()[0] for process in started]
    return json.loads(first)


def run() -> bool:
    told = measured()
    medians = {name: statistics.median(times) for name, times in told["times"].items()}
    link = 4 * (MANY - FEW) / (medians["many"] - medians["few"])  # of two processes each sends as much as it has
    machine = Machine(2 * 512**3 / medians["product"], 2 * 4 * (1 << 24) / medians["memory"], link, medians["few"])
    sent = wire_bytes(HypernetSize(0, told["generated"], 0, 0), WORLD, "summed")
    # Two calls: the heads', and the bucket of what is not generated.
    predicted = medians["alone"] + 2 * machine.latency + sent / machine.link
    ratio = medians["shared"] / predicted
    more = {"predicted_ms": 1e3 * predicted, "measured_ms": 1e3 * medians["shared"], "machine": machine._asdict()}
    more |= {"medians_ms": {name: 1e3 * value for name, value in medians.items()}, "rounds": ROUNDS}
    return conclude(
        "ddp_step", CLAIM, "time", {"median": max(ratio, 1 / ratio), "measured/predicted": ratio}, LIMIT, more
    )


if __name__ == "__main__":
    main("ddp_step", run)
