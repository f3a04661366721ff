"""Several processes that train one net on parts of each batch, as torchrun starts them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.optim.gradient import FactoredGradient


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
        local = int(os.environ["LOCAL_RANK"])
        if device == "cuda" and local >= torch.cuda.device_count():
            raise RunError(f"there are {torch.cuda.device_count()} GPUs for more processes: lower --nproc-per-node")
        if not dist.is_initialized():
            # The others wait while the first one tests, which takes long on many pictures.
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=timedelta(hours=12))
        own = f"{device}:{local}" if device == "cuda" else device
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

    def weight(self, count: int) -> float:
        """Of a loss over so many pictures, so that the mean over processes is that over all pictures."""
        if self.world == 1:
            return 1.0
        shared = torch.tensor(count, dtype=torch.float64, device=self.device)
        dist.all_reduce(shared)
        return count * self.world / shared.item()

    def average(self, optimiser: torch.optim.Optimizer) -> None:
        """The gradients of what an optimiser trains; of those in factors the factors, whose codes must be the same."""
        if self.world == 1:
            return
        grads = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
        rows: dict[int, Tensor] = {}
        for grad in grads:
            if not isinstance(grad, FactoredGradient):
                rows[id(grad)] = grad
                continue
            if grad.parts is None:
                rows[id(grad)] = grad.to_dense()
            for factor, _ in grad.parts or ():
                rows[id(factor.matrix)] = factor.matrix
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
        mine = {name: t.detach().to(self.device).contiguous() for name, t in state().items()}
        for name in sorted(mine):
            dist.broadcast(mine[name], 0)
        if self.rank:
            load(mine)
        return told[0]


def leave() -> None:
    """Say goodbye to the other processes, if there are any."""
    if dist.is_initialized():
        dist.destroy_process_group()


ALONE = Ranks(0, 1, "cpu")
"""One process."""
