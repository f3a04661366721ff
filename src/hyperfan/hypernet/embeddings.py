"""Where the codes come from: stored, one for each task, or given at the call."""

import math
from dataclasses import dataclass
from typing import Literal, TypeGuard, get_args

import torch
from torch import Tensor, nn

from hyperfan.errors import CallError, HyperfanError, nearest
from hyperfan.init.plan import Distribution
from hyperfan.init.write import fill_

Task = int | Tensor
Scope = Literal["embedding", "layer", "block", "network"]


@dataclass(frozen=True)
class Embedding:
    """What a hypernet starts from.

    Args:
        size: number of coordinates.
        trainable: whether it is a parameter; otherwise it stays as drawn.
        per: one for each generated "tensor", or one for the whole "net".
        tasks: if given, a table with one entry for each of so many tasks; choose with ``net(x, task=2)``.
        given: it comes with each call, ``net(x, embedding=e)``; then ``std`` tells what to expect.
        noise: half-width of uniform noise added anew at each call, in training or with ``net(x, noise=True)``.
        scope: what gets the same noise: each "embedding" its own, all those of a "layer", of a "block" (the module that
            holds the layer; one that the mainnet itself holds is a block alone), or of the "network".
        std: standard deviation of its distribution (1 is the paper's U(−√3, √3)).
        distribution: "uniform" or "normal".
        normalise: scale every code to root mean square 1 before the heads; then the init is exact for every code.
    """

    size: int
    trainable: bool = False
    per: Literal["tensor", "net"] = "tensor"
    tasks: int | None = None
    given: bool = False
    noise: float = 0.0
    scope: Scope = "embedding"
    std: float = 1.0
    distribution: Distribution = "uniform"
    normalise: bool = False

    def __post_init__(self) -> None:
        if not _is_count(self.size):
            raise HyperfanError(f"Embedding(size={self.size!r}): the number of coordinates is an integer from 1")
        if self.tasks is not None and not _is_count(self.tasks):
            raise HyperfanError(f"Embedding(tasks={self.tasks!r}): the number of tasks is an integer from 1")
        if self.given and (self.trainable or self.tasks is not None):
            raise HyperfanError("an embedding that is given at the call has nothing to train and no table of tasks")
        if not self.noise >= 0:
            raise HyperfanError(f"Embedding(noise={self.noise:g}): the half-width of the noise must not be negative")
        if self.scope not in get_args(Scope):
            raise HyperfanError(f"scope='{self.scope}': {nearest(str(self.scope), get_args(Scope))}")
        if self.scope != "embedding" and (not self.noise or self.per == "net"):
            why = "there is one embedding for the net" if self.noise else "there is no noise"
            raise HyperfanError(f"scope='{self.scope}' says which embeddings share their noise, but {why}")
        if not 0 < self.std < math.inf:
            raise HyperfanError(f"Embedding(std={self.std:g}): the standard deviation must be positive and finite")
        if self.distribution not in get_args(Distribution):
            raise HyperfanError(f"distribution='{self.distribution}': use 'uniform' or 'normal'")
        if self.per not in ("tensor", "net"):
            raise HyperfanError(f"per='{self.per}': one embedding for each 'tensor', or one for the 'net'")

    @property
    def mean_square(self) -> float:
        """E[e²] of a coordinate, noise included."""
        return self.std**2 + self.noise**2 / 3


class Embeddings(nn.Module):
    """The stored embeddings, or the check of those given: always (n, size), or (batch, n, size).

    Args:
        config: what they are.
        n: how many codes there are. Where one embedding serves the whole net, it is stored once.
        own: size of a second embedding for each code, which is put behind the first, and whether it is trained.
    """

    weight: Tensor | None
    chunks: Tensor | None

    def __init__(
        self,
        config: Embedding,
        n: int,
        device: torch.device,
        dtype: torch.dtype,
        own: tuple[int, bool] = (0, False),
    ) -> None:
        super().__init__()
        self.config = config
        self.groups: list[int] | None = None
        """The group of each embedding, if those of a group share their noise."""
        self.size = config.size + own[0]
        self.register_parameter("chunks", None)
        if own[0]:
            behind = torch.empty(n, own[0], device=device, dtype=dtype)
            if own[1]:
                self.chunks = nn.Parameter(behind)
            else:
                del self.chunks
                self.register_buffer("chunks", behind)
        self.n = n if config.per == "tensor" else 1
        if config.given:
            self.register_parameter("weight", None)
            return
        table = () if config.tasks is None else (config.tasks,)
        weight = torch.empty(*table, self.n, config.size, device=device, dtype=dtype)
        if config.trainable:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the stored embeddings anew."""
        for table in (self.weight, self.chunks):
            if table is not None:
                fill_(table, self.config.std**2, self.config.distribution, generator=generator)

    def set_constants_(self, values: list[float | None], spans: list[slice]) -> None:
        """Set the embeddings of each tensor to a constant, in every task; ``None`` leaves them as drawn."""
        assert self.weight is not None
        with torch.no_grad():
            for value, span in zip(values, spans, strict=True):
                if value is not None:
                    self.weight[..., span, :] = value

    def beside_chunks(self, e: Tensor) -> Tensor:
        """With each code's own embedding behind it, if there are such: (…, 1, size) → (…, n, size + own)."""
        if self.chunks is None:
            return e
        many = (*e.shape[:-2], *self.chunks.shape)
        return torch.cat([e.expand(*many[:-1], -1), self.chunks.expand(many)], -1)

    def forward(self, task: Task | None, given: Tensor | None, noise: bool | None) -> Tensor:
        """The embeddings for one call, with noise if it is due."""
        stored = self._given(given) if self.config.given or given is not None else self._stored(task)
        if self.config.given and task is not None:
            raise CallError("task= was passed, but this net's embedding is given at the call: pass embedding=")
        if self.config.noise and (self.training if noise is None else noise):
            stored = stored + self._noise(stored)
        return self.beside_chunks(stored)

    def _noise(self, stored: Tensor) -> Tensor:
        reach = self.config.noise
        if self.groups is None:
            return torch.empty_like(stored).uniform_(-reach, reach)
        drawn = stored.new_empty(*stored.shape[:-2], max(self.groups) + 1, stored.shape[-1]).uniform_(-reach, reach)
        return drawn.index_select(-2, torch.tensor(self.groups, device=stored.device))

    def _stored(self, task: Task | None) -> Tensor:
        assert self.weight is not None
        tasks = self.config.tasks
        if tasks is None:
            if task is not None:
                raise CallError("task= was passed, but this net has no tasks: build it with Embedding(…, tasks=…)")
            return self.weight
        if task is None:
            raise CallError(f"this net has {tasks} tasks: say which with task=0 … task={tasks - 1}")
        if isinstance(task, Tensor) and task.ndim <= 1 and not task.is_floating_point() and task.dtype != torch.bool:
            if _readable(task) and task.numel() and not (int(task.min()) >= 0 and int(task.max()) < tasks):
                raise CallError(
                    f"task= holds {int(task.min())} to {int(task.max())}; the net has tasks 0 to {tasks - 1}"
                )
        elif not _is_index(task):
            raise CallError(f"task={task!r}: give an integer, or a tensor of integers with one for each sample")
        elif not 0 <= task < tasks:
            raise CallError(f"task={task}, but the net has tasks 0 to {tasks - 1}")
        return self.weight[task]

    def _given(self, given: Tensor | None) -> Tensor:
        if given is None:
            raise CallError("this net's embedding is given at the call: pass embedding=")
        if self.weight is not None:
            raise CallError("embedding= was passed, but this net stores its own: build it with Embedding(given=True)")
        if not isinstance(given, Tensor) or not given.is_floating_point():
            seen = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise CallError(f"embedding= is {seen}; it should be a floating-point tensor")
        one = (self.n, self.config.size) if self.config.per == "tensor" else (self.config.size,)
        if tuple(given.shape[-len(one) :]) != one or given.ndim > len(one) + 1:
            each = f", one for each of the {self.n} tensors or chunks (Embedding(per='net') takes one for all tensors)"
            wanted = f"{one}{each if len(one) == 2 else ''}"
            raise CallError(f"embedding= has shape {tuple(given.shape)}; it should be {wanted}, or (batch, …) for many")
        if _readable(given) and not torch.isfinite(given).all():
            raise CallError(f"embedding= holds {int((~torch.isfinite(given)).sum())} values that are NaN or infinite")
        return given if self.config.per == "tensor" else given.unsqueeze(-2)

    def extra_repr(self) -> str:
        """What they are, in a line."""
        c = self.config
        kind = "given" if c.given else "trainable" if c.trainable else "fixed"
        tasks = f", {c.tasks} tasks" if c.tasks is not None else ""
        shared = "" if c.scope == "embedding" else f" by {c.scope}"
        noise = f", noise ±{c.noise:g}{shared}" if c.noise else ""
        return f"{kind}, {self.n} × {c.size}{tasks}{noise}{', normalised' if c.normalise else ''}"


def _is_index(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_index(value) and value >= 1


def _readable(tensor: Tensor) -> bool:
    """Whether Python may look at the values: not while compiling or exporting, nor inside vmap or grad."""
    if torch.compiler.is_compiling() or tensor.device.type == "meta":
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
