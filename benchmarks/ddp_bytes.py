"""Bytes that a step of data-parallel training sends, counted on the wire: the MNIST hypernet, against the plain net.

Two processes train under torch's DDP over loopback in a network namespace of their own, where nobody else sends; the
kernel's counters of the device say how many bytes were sent, with TCP's headers and acknowledgements.
"""

import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hyperfan as hf
from benchmarks.harness import conclude, main, measured
from hyperfan.errors import DataError
from hyperfan.models import mnist_net
from hyperfan.optim.ddp import SHARED_HEADS

CLAIM = (
    "a step of the MNIST hypernet under DDP in two processes sends at most 1.1 times the bytes of the plain net's, in "
    "collapsed and factored plans, and its gradients travel in at most as many calls as the plain net's DDP has buckets"
)
LIMIT, WORLD, BATCH, WARM_UP, STEPS = 1.1, 2, 10, 3, 10
NETS = {
    "plain": (None, "SGD"),
    "collapsed": (hf.Embedding(50), "hf.SGD"),
    "collapsed AdamW": (hf.Embedding(50), "hf.AdamW"),
    "factored, trained embeddings": (hf.Embedding(50, trainable=True), "hf.SGD"),
    "factored, noise of each process": (hf.Embedding(50, noise=0.1), "hf.SGD"),
    "torch's optimiser": (hf.Embedding(50), "SGD"),
}
"""Each embedding, or none for the plain net, and the optimiser."""


def sent_bytes() -> int:
    """Bytes that were sent over loopback."""
    (line,) = [line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:")]
    return int(line.split(":")[1].split()[8])


def train(embedding: hf.Embedding | None, optimiser: str) -> dict[str, Any]:
    """Bytes that all processes send in a step, seconds, and calls for the gradients."""
    torch.manual_seed(0)
    net: nn.Module = mnist_net() if embedding is None else hf.HyperNet(mnist_net(), embedding)
    ddp = DistributedDataParallel(net)
    ours = optimiser.startswith("hf.")
    kind = getattr(hf if ours else torch.optim, optimiser.removeprefix("hf."))
    opt = kind(net if ours else net.parameters(), lr=1e-5)
    torch.manual_seed(1 + dist.get_rank())
    times, start = [], 0
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            dist.barrier()
            start = sent_bytes()
        began = time.perf_counter()
        opt.zero_grad()
        F.cross_entropy(ddp(torch.randn(BATCH, 784)), torch.randint(10, (BATCH,))).backward()
        opt.step()
        times.append(time.perf_counter() - began)
    dist.barrier()
    shared = SHARED_HEADS.get(ddp)
    buckets = ddp._get_ddp_logging_data().get("rebuilt_bucket_sizes") or ""
    trained = any(p.requires_grad and (shared is None or not shared.has(p)) for p in net.parameters())
    return {
        "bytes": (sent_bytes() - start) / STEPS,
        "median_ms": 1e3 * statistics.median(times[WARM_UP:]),
        "buckets of DDP": len(buckets.split(",")) if trained else 0,
        "calls for heads": [] if shared is None else shared.exchange.calls,
        "parameters": sum(p.numel() for p in net.parameters()),
    }


def cases() -> dict[str, Any]:
    """What is measured in all processes at once."""
    return {name: train(*net) for name, net in NETS.items()}


def work(benchmark: str, rank: int) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    dist.init_process_group("gloo")
    found = importlib.import_module(f"benchmarks.{benchmark}").cases()
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def in_processes(benchmark: str) -> Any:
    """The cases of a benchmark in all processes, started in this network namespace; those of the first process."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    code = f"import sys; from benchmarks.ddp_bytes import work; work('{benchmark}', int(sys.argv[1]))"
    command = [sys.executable, "-c", code]
    pipes = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE) for rank in range(WORLD)]
    printed = [pipe.communicate()[0] for pipe in pipes]
    return json.loads(printed[0])


def in_namespace(benchmark: str) -> tuple[Any, dict[str, Any]]:
    """The plain net of a benchmark, and its other cases by name, measured in a network namespace."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        raise DataError("Linux's unshare and ip are needed, to count the bytes of these processes alone")
    found = measured(benchmark, "all", before=["unshare", "--map-root-user", "--net"])
    return found.pop("plain"), found


def label(benchmark: str, case: str) -> str:
    """The name under which a case is stored."""
    return f"{benchmark}_" + re.sub("[,']", "", case).replace(" ", "_")


def measure(what: str) -> Any:
    """All cases, in this network namespace."""
    return in_processes("ddp_bytes")


def run() -> bool:
    plain, found = in_namespace("ddp_bytes")
    holds = True
    for name, seen in found.items():
        calls = seen["buckets of DDP"] + len(seen["calls for heads"])
        few = calls <= plain["buckets of DDP"]
        more = {"per step": seen, "per step of the plain net": plain, "calls": calls, "processes": WORLD}
        ratio = {"median": seen["bytes"] / plain["bytes"]}
        stored, limited = label("ddp_bytes", name), name != "torch's optimiser"
        within = conclude(stored, CLAIM, "bytes on the wire", ratio, LIMIT if limited else None, more)
        holds &= within and (few or not limited)
        print(f"  {calls} calls, the plain net {plain['buckets of DDP']}; {seen['median_ms']:.1f} ms a step")
    return holds


if __name__ == "__main__":
    main("ddp_bytes", run, measure)
