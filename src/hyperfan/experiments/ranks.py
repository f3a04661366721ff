"""Several processes that train one net on parts of each batch, as torchrun starts them."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from hyperfan.optim.lowrank import LowRank


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is, and where it computes."""

    rank: int
    world: int
    device: str

    @classmethod
    def of_environment(cls, device: str) -> "Ranks":
        """As torchrun says; without it, one process. Of a kind of device, each process on a machine has its own."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return cls(0, 1, device)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        own = f"{device}:{os.environ['LOCAL_RANK']}" if device == "cuda" else device
        if own.startswith("cuda"):
            torch.cuda.set_device(own)
        return cls(dist.get_rank(), world, own)

    def mean(self, value: float) -> float:
        """Over all processes."""
        if self.world == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(shared)
        return shared.item() / self.world

    def average(self, optimiser: torch.optim.Optimizer) -> None:
        """The gradients of what an optimiser trains; of those in factors the factors, whose codes must be the same."""
        if self.world == 1:
            return
        grads = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
        rows: dict[int, Tensor] = {}
        for grad in grads:
            if not isinstance(grad, LowRank):
                rows[id(grad)] = grad
                continue
            for factor, _ in grad.parts or ():
                rows |= {id(row): row for row in (factor.matrix,)}
        for row in rows.values():
            dist.all_reduce(row)
            row.div_(self.world)

    def together(
        self, step: int, state: Callable[[], dict[str, Tensor]], load: Callable[[dict[str, Tensor]], None]
    ) -> int:
        """Give all processes the first one's state; returns its step."""
        if self.world == 1:
            return step
        told = [step]
        dist.broadcast_object_list(told)
        mine = {name: t.detach().to(self.device) for name, t in state().items()}
        for name in sorted(mine):
            dist.broadcast(mine[name].contiguous(), 0)
        if self.rank:
            load(mine)
        return told[0]


ALONE = Ranks(0, 1, "cpu")
"""One process."""
