"""The stored embeddings of a hypernet, and the check of those given at the call."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes.draw import fill_
from hyperfan.codes.embedding import Embedding, Task
from hyperfan.codes.identities import Identity
from hyperfan.codes.tasks import all_tasks, check_task, look_up, readable
from hyperfan.errors import CallError, HyperfanError
from hyperfan.mainnet.spec import TensorSpec

MAX_VALUES_SUMMED_IN_PYTHON = 64
"""Values that Python adds up faster than torch."""


class Embeddings(nn.Module):
    """A condition and an identity for each code: always (n, size), or (batch, n, size).

    Args:
        config: the condition. Where one serves the whole net, it is stored once.
        n: number of codes.
        identities: vectors beside it that tell apart what is made under one condition.
        noise_groups: the group of each code, if those of a group share their noise.
    """

    weight: Tensor | None
    examples: Tensor | None = None
    """Conditions like those that will be given, (…, n, size), for init to measure codes on."""
    code_square: float | None = None
    """‖h‖² of codes that are normalised; ``None`` is their width, a root mean square of 1."""

    def __init__(
        self,
        config: Embedding,
        n: int,
        device: torch.device,
        dtype: torch.dtype,
        identities: Sequence[Identity] = (),
        noise_groups: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.noise_groups = noise_groups
        self.n = n if config.per == "tensor" else 1
        self.codes = n if identities else self.n
        """Number of codes under one condition, before one that serves the whole net is repeated."""
        self.identities, empty = tuple(identities), partial(torch.empty, device=device, dtype=dtype)
        for identity in identities:
            self._store(identity.name, empty(identity.count, identity.config.size), identity.config)
        self.size = config.size + sum(identity.config.size for identity in identities)
        table = () if config.tasks is None else (config.tasks,)
        self._store("weight", None if config.given else empty(*table, self.n, config.size), config)
        self.own: nn.ParameterDict | None = None  # a name in checkpoints

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def task_parameters(self) -> dict[int, Tensor]:
        """The parameters of tasks outside the table, because the task was added or frozen, by its number."""
        return {} if self.own is None else {int(number): p for number, p in self.own.items()}

    @property
    def added(self) -> int:
        """How many tasks were added to those that the net was built with."""
        return 0 if self.weight is None or self.config.tasks is None else self.config.tasks - len(self.weight)

    @property
    def frozen(self) -> list[int]:
        """Tasks that were trained and are not any more."""
        return [i for i, p in self.task_parameters.items() if self.config.trainable and not p.requires_grad]

    def add_task(self) -> nn.Parameter:
        """Add a task; returns its parameter, without values."""
        assert self.weight is not None
        assert self.config.tasks is not None
        table = nn.Parameter(torch.empty_like(self.weight[0]), requires_grad=self.config.trainable)
        self._set_task_parameter(self.config.tasks, table)
        self.config = replace(self.config, tasks=self.config.tasks + 1)
        return table

    def drop_task(self) -> None:
        """Undo the last :meth:`add_task`."""
        assert self.own is not None
        assert self.config.tasks is not None
        self.config = replace(self.config, tasks=self.config.tasks - 1)
        del self.own[str(self.config.tasks)]

    def freeze_task(self, task: int) -> None:
        """Train the embedding of a task no more; it is kept outside the table."""
        assert self.weight is not None
        if task in self.task_parameters:
            parameter = self.task_parameters[task].requires_grad_(False)
            parameter.grad = None
        elif self.config.trainable:
            self._set_task_parameter(task, nn.Parameter(self.weight[task].detach().clone(), requires_grad=False))

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Any, strict: bool, *lists: list[str]
    ) -> None:
        saved = {int(key.rpartition(".")[2]) for key in state_dict if key.startswith(f"{prefix}own.")}
        if strict and saved != self.task_parameters.keys():
            lists[-1].append(
                f"tasks {sorted(saved)} have embeddings of their own in the state, tasks "
                f"{sorted(self.task_parameters)} in the net: call net.add_task() or net.freeze_task(…) before loading, "
                "as before saving"
            )
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)

    def _set_task_parameter(self, task: int, table: nn.Parameter) -> None:
        if self.own is None:
            self.own = nn.ParameterDict()
        self.own[str(task)] = table

    # ── drawing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _store(self, name: str, table: Tensor | None, config: Embedding) -> None:
        """Register a table as a parameter if it is trained, else as a buffer."""
        if table is not None and config.trainable:
            self.register_parameter(name, nn.Parameter(table))
        else:
            self.register_buffer(name, table)

    @property
    def stored(self) -> list[Tensor]:
        """The tables of conditions and identities that there are."""
        return [*self.tables, *(self.identity_table(identity) for identity in self.identities)]

    def identity_table(self, identity: Identity) -> Tensor:
        """The stored vectors of an identity."""
        table: Tensor = getattr(self, identity.name)
        return table

    @property
    def tables(self) -> list[Tensor]:
        """The stored conditions: the table and the parameters of tasks outside it; none if conditions are given."""
        return [] if self.weight is None else [self.weight, *self.task_parameters.values()]

    @property
    def conditions(self) -> Tensor | None:
        """All stored conditions: (n, size), or (tasks, n, size); ``None`` where they are given at the call."""
        return None if self.weight is None else all_tasks(self.weight, self.task_parameters)

    def set_examples(self, given: Tensor) -> None:
        """Remember embeddings like those that will be given at the call."""
        if not self.config.given:
            raise HyperfanError(
                "example_embeddings= stand for embeddings that are given at the call, and this net stores them: leave "
                "example_embeddings= out"
            )
        self.examples = self._given(given, "example_embeddings").detach().clone()

    def normalise_to(self, square: float | None) -> None:
        """Let codes that are normalised have this ‖h‖², or with ``None`` a root mean square of 1."""
        self.code_square = square

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the stored embeddings anew, but for those of tasks that are frozen."""
        frozen = [self.task_parameters[task] for task in self.frozen]
        for table in self.tables:
            if not any(table is other for other in frozen):
                self.draw_(table, generator)
        for identity in self.identities:
            _draw_(self.identity_table(identity), identity.config, generator)

    def draw_(self, table: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fill a tensor with draws of the conditions' distribution."""
        return _draw_(table, self.config, generator)

    def redraw_identities_(self, codes: Tensor, generator: torch.Generator | None = None) -> None:
        """Draw the identities anew of codes that a mask names."""
        for identity in self.identities:
            table = self.identity_table(identity)
            redrawn = _draw_(torch.empty_like(table), identity.config, generator)
            with torch.no_grad():
                table.copy_(torch.where(identity.has(codes), redrawn, table))

    @property
    def variance(self) -> float:
        """Var(e) of a coordinate, on average over those of condition and identity."""
        return self._per_coordinate(self.config.std**2)

    @property
    def mean_square(self) -> float:
        """E[e²] of a coordinate, on average over those of condition and identity, noise included."""
        return self._per_coordinate(self.config.mean_square)

    def _per_coordinate(self, of_condition: float) -> float:
        of_identities = sum(identity.config.size * identity.config.std**2 for identity in self.identities)
        return (self.config.size * of_condition + of_identities) / self.size if self.identities else of_condition

    def set_constants_(self, values: list[float | None], spans: list[slice]) -> None:
        """Set the embeddings of each tensor to a constant, in every task; ``None`` leaves them as drawn."""
        with torch.no_grad():
            for value, span in zip(values, spans, strict=True):
                if value is not None:
                    for table in self.tables:
                        table[..., span, :] = value

    def join_identity(self, e: Tensor) -> Tensor:
        """Join each code's identities to its condition, if there are any: (…, 1, size) → (…, n, size + theirs)."""
        if not self.identities:
            return e
        parts = [identity.of_codes(self.identity_table(identity)) for identity in self.identities]
        batch = e.shape[:-2]
        return torch.cat([e.expand(*batch, self.codes, -1), *(part.expand(*batch, -1, -1) for part in parts)], -1)

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
        check_task(task, tasks)
        assert task is not None
        return look_up(self.weight, self.task_parameters, task)

    def _given(self, given: Tensor | None, name: str = "embedding") -> Tensor:
        if given is None:
            raise CallError("this net's embedding is given at the call: pass embedding=")
        if not self.config.given:
            raise CallError("embedding= was passed, but this net stores embeddings: use Embedding(given=True)")
        if not isinstance(given, Tensor) or not given.is_floating_point():
            seen = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise CallError(f"{name}= is {seen}; it should be a floating-point tensor")
        one = (self.n, self.config.size) if self.config.per == "tensor" else (self.config.size,)
        if given.shape[-len(one) :] != one or given.ndim > len(one) + 1:
            each = f", one for each of the {self.n} tensors or chunks (Embedding(per='net') takes one for all tensors)"
            wanted = f"{one}{each if len(one) == 2 else ''}"
            many = f"(batch, {', '.join(map(str, one))}) for many"
            raise CallError(f"{name}= has shape {tuple(given.shape)}; it should be {wanted}, or {many}")
        # A sum of finite values may overflow; then only, each is looked at.
        if readable(given) and not math.isfinite(_sum(given)) and not torch.isfinite(given).all():
            raise CallError(f"{name}= holds {int((~torch.isfinite(given)).sum())} values that are NaN or infinite")
        return given if self.config.per == "tensor" else given.unsqueeze(-2)

    def extra_repr(self) -> str:
        """The kind, number and size of the embeddings, in a line."""
        c = self.config
        kind = "given" if c.given else "trainable" if c.trainable else "fixed"
        tasks = f", {c.tasks} tasks" if c.tasks is not None else ""
        tasks += f" ({self.added} added)" if self.added else ""
        shared = "" if c.scope == "embedding" else f" by {c.scope}"
        noise = f", noise ±{c.noise:g}{shared}" if c.noise else ""
        tables = [self.identity_table(identity) for identity in self.identities]
        identity = "".join(", identities {} × {}".format(*table.shape) for table in tables)
        return f"{kind}, {self.n} × {c.size}{tasks}{noise}{identity}{', normalised' if c.normalise else ''}"


def _sum(given: Tensor) -> float:
    """The sum of all values of a tensor."""
    if given.ndim == 1 and len(given) <= MAX_VALUES_SUMMED_IN_PYTHON:
        return float(sum(given.tolist()))
    return (given.detach() if given.requires_grad else given).sum().item()


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
        raise HyperfanError(
            f"a code may serve several layers, as that of a flat chunk: noise has no scope='{scope}', so use 'network'"
        )
    names = [_group(t, scope) for t in tensors]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    groups = [0] * n
    for name, span in zip(names, spans, strict=True):
        groups[span] = [number[name]] * (span.stop - span.start)
    return groups


def _group(tensor: TensorSpec, scope: str) -> str:
    holder, _, _ = tensor.layer.rpartition(".")
    return holder if scope == "block" and holder else tensor.layer


def _draw_(table: Tensor, config: Embedding, generator: torch.Generator | None) -> Tensor:
    return fill_(table, config.std**2, config.distribution, generator=generator)
