"""Heads sharded between processes over their outputs: H never travels, only what it makes.

Process r holds the columns H_r (d_k, outputs_r) of a head, and has codes C_r (n_r, d_k) of its own, as with noise or a
condition for each sample. All processes gather the codes C = (C_1, C_2, …), each makes C·H_r + 1·β_rᵀ, its columns of
what everyone's codes make, and sends every process the rows of that one's codes. Going backward, the gradients G of
these rows travel the other way, and what H_r gets is Cᵀ·G with the rows of all processes, divided by their number, as
``fully_shard`` averages. Where all processes have the same codes, these need not be gathered.

All processes run, and differentiate, the same heads in the same order.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from hyperfan.errors import HyperfanError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

HeadProduct = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From codes, weight and bias to what a head makes."""


def shard_parameter(parameter: Tensor, mesh: "DeviceMesh") -> nn.Parameter:
    """A parameter of which each process of a mesh has its shard of the last dimension; all had the same values."""
    from torch.distributed.tensor import DTensor, Shard

    full = parameter.detach()
    mine = full.chunk(mesh.size(), -1)[mesh.get_local_rank()].clone(memory_format=torch.contiguous_format)
    mine = mine if mine.is_meta else mine.to(mesh.device_type)
    shard = DTensor.from_local(
        mine, mesh, [Shard(full.ndim - 1)], run_check=False, shape=full.shape, stride=full.stride()
    )
    return nn.Parameter(shard, parameter.requires_grad)


def is_shardable(parameter: Tensor, processes: int) -> bool:
    """Whether each of a number of processes would get a part of the outputs."""
    return len(parameter.chunk(processes, -1)) == processes


def local_shard(parameter: Tensor) -> Tensor:
    """What this process has of a sharded tensor, always the same object, in the tensor's own memory."""
    shard: Any = parameter
    local: Tensor = shard._local_tensor  # of a parameter, to_local() would make a new one
    return local


def local_shard_with_grad(parameter: Tensor) -> Tensor:
    """What this process has of a sharded parameter, whose gradient becomes that of the mean over processes."""
    made: Tensor = apply_function(_LocalShard, parameter)
    return made


def shard_like(parameter: Tensor, values: Tensor) -> "DTensor":
    """A tensor of which each process has these values, as it has its shard of a sharded parameter."""
    from torch.distributed import tensor

    shard: Any = parameter
    make: Any = tensor.DTensor  # itself, since from_local() would write out a gradient in factors
    made: DTensor = make(values, shard._spec, requires_grad=False)
    return made


def product(codes: Tensor, weight: Tensor, bias: Tensor, multiply: HeadProduct | None = None) -> Tensor:
    """What a sharded head makes of this process's codes, as ``addmm(bias, codes, weight)``."""
    if is_functorch_wrapped_tensor(codes):
        raise HyperfanError(
            "a sharded head makes nothing inside torch.func, where processes cannot exchange what they make"
        )
    group = group_of(weight)
    count = torch.tensor([len(codes)], device=codes.device)
    counts = [int(n) for n in _gathered(count, group)]
    everyone: Tensor = apply_function(_GatherCodes, codes.to(weight.dtype), counts, group)
    pair = local_shard_with_grad(weight), local_shard_with_grad(bias)
    made = torch.addmm(pair[1], everyone, pair[0]) if multiply is None else multiply(everyone, *pair)
    return _exchanged(made, counts, weight)


def joined(made: Tensor, weight: Tensor) -> Tensor:
    """All outputs of a sharded head, from those that each process made of the same codes."""
    world = dist.get_world_size(group_of(weight))
    return _exchanged(made.repeat(world, 1), [len(made)] * world, weight)


def _exchanged(made: Tensor, counts: Sequence[int], weight: Tensor) -> Tensor:
    """This process's rows of all columns, from this process's columns of all rows."""
    group = group_of(weight)
    widths = [part.shape[-1] for part in torch.empty(0, weight.shape[-1]).chunk(dist.get_world_size(group), -1)]
    rows: Tensor = apply_function(_Exchange, made, counts, widths, group)
    return rows


def group_of(parameter: Tensor) -> Any:
    """The processes that have the shards of a parameter."""
    shard: Any = parameter
    return shard.device_mesh.get_group()


def _gathered(mine: Tensor, group: Any) -> list[Tensor]:
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, mine.contiguous(), group)
    return everyone


class _GatherCodes(torch.autograd.Function):
    """The codes of all processes; each has a part of what their gradients are sums of."""

    @staticmethod
    def forward(ctx: Any, codes: Tensor, counts: list[int], group: Any) -> Tensor:
        ctx.counts, ctx.group = counts, group
        padded = codes.new_zeros(max(counts), codes.shape[1])
        padded[: len(codes)] = codes
        return torch.cat([rows[:n] for rows, n in zip(_gathered(padded, group), counts, strict=True)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad, group=ctx.group)
        return torch.split(grad, ctx.counts)[dist.get_rank(ctx.group)], None, None


class _Exchange(torch.autograd.Function):
    """From some columns of the rows of all processes to all columns of this process's rows; gradients go back."""

    @staticmethod
    def forward(ctx: Any, made: Tensor, counts: list[int], widths: list[int], group: Any) -> Tensor:
        rank = dist.get_rank(group)
        ctx.group, ctx.shape, ctx.widths = group, made.shape, widths
        ctx.of_rows, ctx.of_columns = [n * widths[rank] for n in counts], [counts[rank] * width for width in widths]
        received = made.new_empty(sum(ctx.of_columns))
        dist.all_to_all_single(received, made.reshape(-1), ctx.of_columns, ctx.of_rows, group)
        return torch.cat([part.view(counts[rank], -1) for part in torch.split(received, ctx.of_columns)], 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        sent = torch.cat([part.reshape(-1) for part in torch.split(grad, ctx.widths, 1)])
        received = sent.new_empty(sum(ctx.of_rows))
        dist.all_to_all_single(received, sent, ctx.of_rows, ctx.of_columns, ctx.group)
        return received.view(ctx.shape), None, None, None


class _LocalShard(torch.autograd.Function):
    """This process's part of a parameter; its gradient becomes that of the mean of the processes' losses."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor) -> Tensor:
        ctx.parameter = parameter
        local = local_shard(parameter)
        return local.view_as(local)  # another tensor, since autograd writes to what is returned

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return shard_like(ctx.parameter, grad * (1 / ctx.parameter.device_mesh.size()))


def apply_function(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Apply a function of autograd, which torch leaves without types."""
    apply: Callable[..., Any] = function.apply
    return apply(*args)
