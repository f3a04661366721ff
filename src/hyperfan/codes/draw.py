"""Random values of a given mean and variance, by which an init fills tensors.

Beside it, what keeps torch's random numbers as they are where something else is drawn.
"""

import math
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor

from hyperfan.distributed.sharded import is_sharded_tensor, set_shards_
from hyperfan.errors import InitError

Distribution = Literal["uniform", "normal"]


def fill_(
    tensor: Tensor,
    variance: float,
    distribution: Distribution = "uniform",
    mean: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill a tensor with independent draws of this mean and variance; variance 0 is a constant.

    A tensor of which each process has a part gets parts of one draw, as if it were not sharded.
    """
    if is_sharded_tensor(tensor):
        full = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        with torch.no_grad():
            set_shards_(tensor, fill_(full, variance, distribution, mean, generator))
        return tensor
    with torch.no_grad():
        if variance == 0:
            return tensor.fill_(mean)
        if distribution == "uniform":
            bound = uniform_bound(variance)
            return tensor.uniform_(mean - bound, mean + bound, generator=generator)
        if distribution == "normal":
            return tensor.normal_(mean, variance**0.5, generator=generator)
    raise InitError(f"distribution '{distribution}' is not known: use 'uniform' or 'normal'")


def preserved_random_state() -> AbstractContextManager[None]:
    """Let torch's random numbers, of every device, go on afterwards as if nothing had been seeded or drawn."""
    return torch.random.fork_rng(range(torch.cuda.device_count()), device_type="cuda")


def uniform_bound(variance: float) -> float:
    """The bound a of U(−a, a) with this variance: Var = a²/3, so a = √(3·Var)."""
    return math.sqrt(3 * variance)
