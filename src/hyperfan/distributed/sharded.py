"""Nets whose parameters torch's ``fully_shard`` divided between processes: how they are seen, drawn and gathered.

What torch needs for that takes long to import, and is only looked at where someone else has imported it.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hyperfan.errors import HyperfanError


def is_sharded_tensor(tensor: Tensor) -> bool:
    """Whether each process has a part of a tensor."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def sharded_modules(net: nn.Module) -> list[Any]:
    """The modules that ``fully_shard`` was called on; none in a net that is whole in each process."""
    module: Any = sys.modules.get("torch.distributed.fsdp")
    return [] if module is None else [m for m in net.modules() if isinstance(m, module.FSDPModule)]


def is_sharded(net: nn.Module) -> bool:
    """Whether a parameter of a net is divided between processes."""
    if "torch.distributed.tensor" not in sys.modules:
        return False
    held: list[dict[str, Any]] = [m._parameters for m in net.modules()]  # as they are: nothing is brought up to date
    return bool(sharded_modules(net)) or any(
        p is not None and is_sharded_tensor(p) for parameters in held for p in dict.values(parameters)
    )


def set_shards_(tensor: Tensor, values: Tensor) -> None:
    """Write the values of the first process to a tensor of which each process has a part."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    tensor.copy_(distribute_tensor(values, tensor.device_mesh, tensor.placements))


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of which each process had a part, whole in each process; all processes call this."""
    return {name: full(t) for name, t in tensors.items()}


def full(tensor: Tensor) -> Tensor:
    """A tensor, gathered if each process has a part of it; all processes call this."""
    sharded: Any = tensor
    return sharded.full_tensor() if is_sharded_tensor(tensor) else tensor


@contextlib.contextmanager
def unsharded(net: nn.Module) -> Iterator[None]:
    """Hold all parameters whole meanwhile, in every process, without gradients, which nobody would average."""
    modules = sharded_modules(net)
    if not modules:
        yield
        return
    for module in modules:
        module.unshard()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in modules:
            module.reshard()


def check_unsharded(net: nn.Module, what: str) -> None:
    """Raise if a net is sharded, for work that needs all of each tensor in every process."""
    if is_sharded(net):
        raise HyperfanError(
            f"{what} needs a net that is whole in each process, and fully_shard divided this one: call it before "
            "fully_shard, or save_pretrained() this net, and call it on what from_pretrained() loads"
        )


def check_equal(tensors: Mapping[str, Tensor]) -> None:
    """Raise in all processes if tensors that each of them holds, as fixed embeddings, are not the same in all."""
    if not tensors:
        return
    mine = torch.cat([t.detach().flatten().double() for t in tensors.values()])
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    if not torch.equal(low, high):
        raise HyperfanError(
            f"{', '.join(tensors)} differ between processes, and fully_shard broadcasts no buffers: call "
            "torch.manual_seed with one seed in all processes before the net is built or reset_parameters() is called"
        )
