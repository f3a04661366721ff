"""Bytes that a step under FSDP2 sends, counted on the wire: heads sharded over their outputs, against the plain net.

As in ``ddp_bytes.py``, two processes are alone on a loopback device. A head that ``fully_shard`` divides is gathered
forward, and its gradient is sent; of a head that is sharded over its outputs only what it makes travels.
"""

import time
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

import hyperfan as hf
from benchmarks import ddp_bytes
from benchmarks.ddp_bytes import BATCH, LIMIT, STEPS, WARM_UP, WORLD, in_namespace, in_processes, label, sent_bytes
from benchmarks.harness import conclude, main
from hyperfan.models import mnist_net

CLAIM = (
    "a step of the MNIST hypernet under FSDP2 in two processes, with heads sharded over their outputs, sends at most "
    "1.1 times the bytes of the plain net's under DDP"
)
NETS = {
    "sharded heads": (hf.Embedding(50), True),
    "sharded heads, noise of each process": (hf.Embedding(50, noise=0.1), True),
    "fully_shard alone": (hf.Embedding(50), False),
}
"""Each embedding, and whether heads are sharded over their outputs."""


def train(embedding: hf.Embedding, sharded_heads: bool) -> dict[str, Any]:
    """Bytes that all processes send in a step, and its seconds."""
    torch.manual_seed(0)
    net = hf.HyperNet(mnist_net(), embedding)
    fully_shard(net, ignored_params=net.shard_heads_() if sharded_heads else None)
    opt = hf.SGD(net, lr=1e-5)
    torch.manual_seed(1 + dist.get_rank())
    start, began = 0, 0.0
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            dist.barrier()
            start, began = sent_bytes(), time.perf_counter()
        opt.zero_grad()
        F.cross_entropy(net(torch.randn(BATCH, 784)), torch.randint(10, (BATCH,))).backward()
        opt.step()
    dist.barrier()
    plans = {row.head: row.kind for row in opt.plan.rows}
    seconds = (time.perf_counter() - began) / STEPS
    return {"bytes": (sent_bytes() - start) / STEPS, "mean_ms": 1e3 * seconds, "plans": plans}


def cases() -> dict[str, Any]:
    """What is measured in all processes at once."""
    return {"plain": ddp_bytes.train(None, "SGD"), **{name: train(*net) for name, net in NETS.items()}}


def measure(what: str) -> Any:
    """All cases, in this network namespace."""
    return in_processes("fsdp_bytes")


def run() -> bool:
    plain, found = in_namespace("fsdp_bytes")
    holds = True
    for name, seen in found.items():
        more = {"per step": seen, "per step of the plain net": plain, "processes": WORLD}
        ratio = {"median": seen["bytes"] / plain["bytes"]}
        holds &= conclude(
            label("fsdp_bytes", name), CLAIM, "bytes on the wire", ratio, LIMIT if NETS[name][1] else None, more
        )
    return holds


if __name__ == "__main__":
    main("fsdp_bytes", run, measure)
