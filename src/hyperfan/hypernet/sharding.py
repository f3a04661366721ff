"""Heads that are sharded over their outputs, beside ``fully_shard``, which shards all else."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from hyperfan.errors import HyperfanError
from hyperfan.generators.head_shards import is_shardable
from hyperfan.generators.linear_map import Head

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def shard_heads_(net: "HyperNet", mesh: Any) -> set[nn.Parameter]:
    """Shard all heads that have an output for each process; returns their parameters."""
    if not (dist.is_available() and dist.is_initialized()):
        raise HyperfanError(
            "shard_heads_() shards heads between processes, and there is no group of them: start with torchrun, and "
            "call torch.distributed.init_process_group() before"
        )
    if mesh is None:
        accelerator = torch.accelerator.current_accelerator()
        kind = "cpu" if accelerator is None else accelerator.type
        mesh = dist.device_mesh.init_device_mesh(kind, (dist.get_world_size(),))  # as fully_shard does
    if mesh.ndim != 1:
        raise HyperfanError(f"shard_heads_() shards heads along one dimension, and the mesh has {mesh.ndim}: pass one")
    sharded: set[nn.Parameter] = set()
    for part in net.heads.parts():
        if isinstance(part.map, Head) and is_shardable(part.map.bias, mesh.size()) and not part.map.sharded:
            part.map.shard_(mesh)
            sharded |= {part.map.weight, part.map.bias}
    return sharded
