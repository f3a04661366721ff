"""Several processes that train one net on parts of each batch, as torchrun starts them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.optim.exchange import average_gradients


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is, and where it computes."""

    rank: int
    world: int
    device: str

    @classmethod
    def of_environment(cls, device: str) -> "Ranks":
        """From the variables that torchrun sets; without them, one process. Each process on a machine has a GPU."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return cls(0, 1, device)
        local = int(os.environ["LOCAL_RANK"])
        if device == "cuda" and local >= torch.cuda.device_count():
            raise RunError(f"there are {torch.cuda.device_count()} GPUs for more processes: lower --nproc-per-node")
        if not dist.is_initialized():
            # The others wait while the first one tests, which takes long on many pictures.
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=timedelta(hours=12))
        device = f"{device}:{local}" if device == "cuda" else device
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        return cls(dist.get_rank(), world, device)

    def mean(self, value: float) -> float:
        """The mean of a value over all processes."""
        return self._sum(value) / self.world

    def weight(self, count: int) -> float:
        """The weight of a loss over so many pictures, with which the mean over processes is that over all pictures."""
        return count * self.world / self._sum(count)

    def _sum(self, value: float) -> float:
        if self.world == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(shared)
        return shared.item()

    def average(self, optimiser: torch.optim.Optimizer) -> None:
        """Replace the gradients of what an optimiser trains by their means; of gradients in factors, the factors."""
        if self.world > 1:
            average_gradients(optimiser)

    def broadcast(
        self, step: int, state: Callable[[], dict[str, Tensor]], load: Callable[[dict[str, Tensor]], None]
    ) -> int:
        """Give all processes the first one's state; returns its step."""
        if self.world == 1:
            return step
        steps = [step]
        dist.broadcast_object_list(steps)
        tensors = {name: t.detach().to(self.device).contiguous() for name, t in state().items()}
        for name in sorted(tensors):
            dist.broadcast(tensors[name], 0)
        if self.rank:
            load(tensors)
        return steps[0]


def leave_process_group() -> None:
    """Leave the group of processes, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


SINGLE_PROCESS = Ranks(0, 1, "cpu")
