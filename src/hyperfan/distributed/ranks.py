"""Processes that train one net together: what they say of themselves, and an error in all where that differs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from hyperfan.errors import HyperfanError

if dist.is_available():
    from torch.nn.parallel import DistributedDataParallel


def active_ddp() -> "DistributedDataParallel | None":
    """The DDP in whose forward pass this is called, if any."""
    return DistributedDataParallel._active_ddp_module if dist.is_available() else None


def gather_objects(mine: Any, group: Any = None) -> list[Any]:
    """What each process says."""
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group)
    return everyone


def check_same(what: str, everyone: Sequence[Mapping[str, Any]]) -> None:
    """Raise in all processes, with one line, if what they say by name differs."""
    first = everyone[0]
    for rank, other in enumerate(everyone):
        for name in {**first, **other}:
            if first.get(name) != other.get(name):
                then, now = (str(each.get(name, "absent")) for each in (first, other))
                raise HyperfanError(
                    f"{what} differ between processes: '{name}' is {then} on rank 0 and {now} on rank {rank}. Build "
                    "the same net, and the same optimiser, on every rank"
                )
