"""Heads that are sharded over their outputs, beside ``fully_shard``, which shards all else."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from hyperfan.distributed.sharded import sharded_modules
from hyperfan.errors import HyperfanError

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def shard_heads_(net: "HyperNet", mesh: Any) -> set[nn.Parameter]:
    """Shard all heads that have an output for each process; returns their parameters."""
    if not (dist.is_available() and dist.is_initialized()):
        raise HyperfanError(
            "shard_heads_() shards heads between processes, and there is no group of them: start with torchrun, and "
            "call torch.distributed.init_process_group() before"
        )
    if sharded_modules(net):
        raise HyperfanError("fully_shard has divided the heads already: call shard_heads_() before fully_shard")
    if mesh is None:
        accelerator = torch.accelerator.current_accelerator()
        kind = "cpu" if accelerator is None else accelerator.type
        mesh = dist.device_mesh.init_device_mesh(kind, (dist.get_world_size(),))  # as fully_shard does
    if mesh.ndim != 1:
        raise HyperfanError(f"shard_heads_() shards heads along one dimension, and the mesh has {mesh.ndim}: pass one")
    maps = [part.map for part in net.heads.parts()]
    for linear_map in maps:
        linear_map.shard_(mesh)
    return {p for linear_map in maps if linear_map.sharded for p in (linear_map.weight, linear_map.bias)}
