"""The stored embeddings of a hypernet, and the check of those given at the call."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyperfan.codes.draw import fill_
from hyperfan.codes.embedding import Embedding, Task, is_index
from hyperfan.errors import CallError, HyperfanError
from hyperfan.mainnet.spec import TensorSpec


class Embeddings(nn.Module):
    """A condition and an identity for each code: always (n, size), or (batch, n, size).

    Args:
        config: the condition. Where one serves the whole net, it is stored once.
        n: number of codes.
        identity: a second vector for each code, which tells apart what is made under one condition: how it is drawn,
            and whether it is trained.
        noise_groups: the group of each code, if those of a group share their noise.
    """

    weight: Tensor | None
    identity: Tensor | None
    examples: Tensor | None = None
    """Conditions like those that will be given, (…, n, size), for init to measure codes on."""

    def __init__(
        self,
        config: Embedding,
        n: int,
        device: torch.device,
        dtype: torch.dtype,
        identity: Embedding | None = None,
        noise_groups: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.noise_groups = noise_groups
        self.n = n if config.per == "tensor" else 1
        self.identity_config, empty = identity, partial(torch.empty, device=device, dtype=dtype)
        self._store("identity", None if identity is None else empty(n, identity.size), identity)
        self.size = config.size + (0 if identity is None else identity.size)
        table = () if config.tasks is None else (config.tasks,)
        self._store("weight", None if config.given else empty(*table, self.n, config.size), config)

    def _store(self, name: str, table: Tensor | None, config: Embedding | None) -> None:
        """Register a table as a parameter if it is trained, else as a buffer."""
        if table is not None and config is not None and config.trainable:
            self.register_parameter(name, nn.Parameter(table))
        else:
            self.register_buffer(name, table)

    @property
    def stored(self) -> list[Tensor]:
        """The tables of conditions and identities that there are."""
        return [table for table in (self.weight, self.identity) if table is not None]

    def set_examples(self, given: Tensor) -> None:
        """Remember conditions like those that will be given at the call."""
        if not self.config.given:
            raise HyperfanError("codes= are conditions to measure on, but this net stores its own: leave codes= out")
        self.examples = self._given(given, "codes").detach().clone()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the stored embeddings anew."""
        if self.weight is not None:
            self.draw_(self.weight, generator)
        if self.identity is not None:
            self.draw_identities_(self.identity, generator)

    def draw_(self, table: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fill a tensor with draws of the conditions' distribution."""
        return fill_(table, self.config.std**2, self.config.distribution, generator=generator)

    def draw_identities_(self, table: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fill a tensor with draws of the identities' distribution."""
        config = self.identity_config
        assert config is not None
        return fill_(table, config.std**2, config.distribution, generator=generator)

    @property
    def variance(self) -> float:
        """Var(e) of a coordinate, on average over those of condition and identity."""
        return self._per_coordinate(self.config.std**2)

    @property
    def mean_square(self) -> float:
        """E[e²] of a coordinate, on average over those of condition and identity, noise included."""
        return self._per_coordinate(self.config.mean_square)

    def _per_coordinate(self, of_condition: float) -> float:
        identity = self.identity_config
        if identity is None:
            return of_condition
        return (self.config.size * of_condition + identity.size * identity.std**2) / self.size

    def set_constants_(self, values: list[float | None], spans: list[slice]) -> None:
        """Set the embeddings of each tensor to a constant, in every task; ``None`` leaves them as drawn."""
        assert self.weight is not None
        with torch.no_grad():
            for value, span in zip(values, spans, strict=True):
                if value is not None:
                    self.weight[..., span, :] = value

    def join_identity(self, e: Tensor) -> Tensor:
        """Conditions with each code's identity behind them, if there are such: (…, 1, size) → (…, n, size + its)."""
        if self.identity is None:
            return e
        many = (*e.shape[:-2], *self.identity.shape)
        return torch.cat([e.expand(*many[:-1], -1), self.identity.expand(many)], -1)

    def forward(self, task: Task | None, given: Tensor | None, noise: bool | None) -> Tensor:
        """The embeddings for one call, with noise if it is due."""
        stored = self._given(given) if self.config.given or given is not None else self._stored(task)
        if self.config.given and task is not None:
            raise CallError("task= was passed, but this net's embedding is given at the call: pass embedding=")
        if self.config.noise and (self.training if noise is None else noise):
            stored = stored + self._noise(stored)
        return self.join_identity(stored)

    def _noise(self, stored: Tensor) -> Tensor:
        reach = self.config.noise
        if self.noise_groups is None:
            return torch.empty_like(stored).uniform_(-reach, reach)
        drawn = stored.new_empty(*stored.shape[:-2], max(self.noise_groups) + 1, stored.shape[-1]).uniform_(
            -reach, reach
        )
        return drawn.index_select(-2, torch.tensor(self.noise_groups, device=stored.device))

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
            # Where nobody may look, a negative number is an error here, and would be the last task as an index.
            chosen = functional.embedding(task.long(), self.weight.flatten(1))
            return chosen.view(*task.shape, *self.weight.shape[1:])
        if not is_index(task):
            raise CallError(f"task={task!r}: give an integer, or a tensor of integers with one for each sample")
        if not 0 <= task < tasks:
            raise CallError(f"task={task}, but the net has tasks 0 to {tasks - 1}")
        return self.weight[task]

    def _given(self, given: Tensor | None, name: str = "embedding") -> Tensor:
        if given is None:
            raise CallError("this net's embedding is given at the call: pass embedding=")
        if self.weight is not None:
            raise CallError("embedding= was passed, but this net stores embeddings: use Embedding(given=True)")
        if not isinstance(given, Tensor) or not given.is_floating_point():
            seen = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise CallError(f"{name}= is {seen}; it should be a floating-point tensor")
        one = (self.n, self.config.size) if self.config.per == "tensor" else (self.config.size,)
        if tuple(given.shape[-len(one) :]) != one or given.ndim > len(one) + 1:
            each = f", one for each of the {self.n} tensors or chunks (Embedding(per='net') takes one for all tensors)"
            wanted = f"{one}{each if len(one) == 2 else ''}"
            raise CallError(f"{name}= has shape {tuple(given.shape)}; it should be {wanted}, or (batch, …) for many")
        if _readable(given) and not torch.isfinite(given).all():
            raise CallError(f"{name}= holds {int((~torch.isfinite(given)).sum())} values that are NaN or infinite")
        return given if self.config.per == "tensor" else given.unsqueeze(-2)

    def extra_repr(self) -> str:
        """The kind, number and size of the embeddings, in a line."""
        c = self.config
        kind = "given" if c.given else "trainable" if c.trainable else "fixed"
        tasks = f", {c.tasks} tasks" if c.tasks is not None else ""
        shared = "" if c.scope == "embedding" else f" by {c.scope}"
        noise = f", noise ±{c.noise:g}{shared}" if c.noise else ""
        identity = "" if self.identity is None else ", identities {} × {}".format(*self.identity.shape)
        return f"{kind}, {self.n} × {c.size}{tasks}{noise}{identity}{', normalised' if c.normalise else ''}"


def _readable(tensor: Tensor) -> bool:
    """Whether Python may look at the values: not while compiling or exporting, nor inside vmap or grad."""
    if torch.compiler.is_compiling() or tensor.device.type == "meta":
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def noise_groups(
    embedding: Embedding, tensors: Sequence[TensorSpec], spans: Sequence[slice], n: int, exclusive: bool
) -> list[int] | None:
    """For each code the number of its group, or ``None`` where each has noise of its own.

    A block is the module that holds a layer; a layer that the mainnet itself holds is one by itself. ``spans`` are the
    codes of each tensor, which are ``exclusive`` if each belongs to one tensor.
    """
    scope = embedding.scope
    if scope == "embedding" or embedding.per == "net":
        return None
    if scope == "network":
        return [0] * n
    if not exclusive:
        raise HyperfanError(f"a flat chunk may span layers, so that noise has no scope='{scope}': use 'network'")
    names = [_group(t, scope) for t in tensors]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    groups = [0] * n
    for name, span in zip(names, spans, strict=True):
        groups[span] = [number[name]] * (span.stop - span.start)
    return groups


def _group(tensor: TensorSpec, scope: str) -> str:
    holder, _, _ = tensor.layer.rpartition(".")
    return holder if scope == "block" and holder else tensor.layer
