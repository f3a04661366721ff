"""Several processes that train one net on parts of each batch, as torchrun starts them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.experiments import group
from hyperfan.experiments.launch import Launch
from hyperfan.optim.exchange import average_gradients


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is, and where it computes."""

    rank: int
    world: int
    device: str

    @classmethod
    def join(cls, device: str) -> "Ranks":
        """Join the processes that torchrun or srun started, or be the only one. Each process on a machine has a GPU."""
        launch = Launch.of_environment()
        if launch.world == 1:
            return cls(0, 1, device)
        if device == "cuda":
            if launch.local is None:
                raise RunError("LOCAL_RANK is not set, by which each process has a GPU: torchrun and srun set it")
            if launch.local >= torch.cuda.device_count():
                raise RunError(f"there are {torch.cuda.device_count()} GPUs for more processes: lower --nproc-per-node")
            device = f"cuda:{launch.local}"
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        group.join(launch, "nccl" if device.startswith("cuda") else "gloo")
        return cls(launch.rank, launch.world, device)

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
        tensors = {name: t.detach().to(self.device).contiguous() for name, t in state().items()}
        # The first one may have more, as an optimiser has a momentum from its first step on.
        header: list[Any] = [step, {name: (t.shape, t.dtype) for name, t in tensors.items()}]
        dist.broadcast_object_list(header)
        if self.rank:
            tensors = {name: torch.empty(s, dtype=dtype, device=self.device) for name, (s, dtype) in header[1].items()}
        for name in sorted(tensors):
            dist.broadcast(tensors[name], 0)
        if self.rank:
            load(tensors)
        found: int = header[0]
        return found
