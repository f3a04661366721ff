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
    """The values of all processes, in the order of their ranks."""
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group)
    return everyone


def check_same(what: str, everyone: Sequence[Mapping[str, Any]]) -> None:
    """Raise in all processes, with one line, if what they say by name differs."""
    rank, differences = first_difference(everyone)
    if differences:
        name, values = next(iter(differences.items()))
        seen = ["absent" if value is None else value for value in values]
        raise HyperfanError(
            f"{what} differ between processes: '{name}' is {seen[0]} on rank 0 and {seen[1]} on rank {rank}. Build "
            "the same net, and the same optimiser, on every rank"
        )


def first_difference(everyone: Sequence[Mapping[str, Any]]) -> tuple[int, dict[str, tuple[Any, Any]]]:
    """The first rank with other values than rank 0, and by name both values; nothing where all have the same."""
    first = everyone[0]
    for rank, other in enumerate(everyone):
        names = [name for name in {**first, **other} if first.get(name) != other.get(name)]
        if names:
            return rank, {name: (first.get(name), other.get(name)) for name in names}
    return 0, {}
