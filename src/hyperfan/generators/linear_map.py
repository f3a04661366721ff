"""Linear maps with a bias, the parts of every generator. An optimiser may train them in another form.

A map W = C·H + 1·βᵀ is linear in its parameters, and SGD on (H, β) can be done on W alone. An optimiser that does so
attaches a :class:`Trainer` to the map, which then makes W, and writes H when someone reads it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from hyperfan.errors import HyperfanError
from hyperfan.generators import head_shards

Step = tuple[Tensor | None, Tensor | None]
"""Changes of a map's weight and bias."""
NO_STEP: Step = (None, None)


class Trainer(Protocol):
    """An optimiser's side of one map: makes what the map makes, and keeps its gradient in the optimiser's form."""

    revision: int
    """Rises whenever something is trained without writing to the map."""

    def rows(self, codes: Tensor, shape: Sequence[int]) -> Sequence[Tensor] | None:
        """The map's outputs for (n, d_k), a tensor for each code, if they are held; they change with training."""

    def product(self, codes: Tensor) -> Tensor:
        """The map's outputs for (n, d_k), in one tensor."""

    def linear(self, x: Tensor, codes: Tensor) -> Tensor | None:
        """A linear layer for each of n codes (n, d_k), of which the map makes its weight, on (n, rows, inputs).

        ``None`` if the trainer has no way of its own.
        """

    def settings(self) -> dict[str, str]:
        """How the map is trained, and the options of that, by name."""

    def sync(self) -> None:
        """Write to the map what was trained without it."""


class NetTrainer(Protocol):
    """An optimiser's side of one hypernet."""

    @property
    def mode(self) -> Callable[[], AbstractContextManager[Any]]:
        """The mode in which the mainnet runs."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """A linear layer of the mainnet, as :attr:`mode` runs it."""

    def tensors(self) -> dict[str, Tensor] | None:
        """What the net generates in training, if the optimiser holds all of it from the last step."""


class SyncedParameters(dict[str, nn.Parameter | None]):
    """The parameters of a module, brought up to date before anyone reads them through the module.

    ``dict(parameters)`` and ``dict.values(parameters)`` read them as they are.
    """

    def __init__(self, parameters: dict[str, nn.Parameter | None], sync: Callable[[], None]) -> None:
        super().__init__(parameters)
        self.sync = sync

    def __getitem__(self, name: str) -> nn.Parameter | None:
        self.sync()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a key, as in a dict."""
        self.sync()
        return super().get(name, default)

    def items(self) -> Any:
        """The pairs of keys and values, as in a dict."""
        self.sync()
        return super().items()

    def values(self) -> Any:
        """The parameters, as the values of a dict."""
        self.sync()
        return super().values()

    def __reduce__(self) -> tuple[Any, ...]:
        self.sync()
        return dict, (dict(self),)


def zero_held_gradients(module: nn.Module, set_to_none: bool) -> None:
    """Reset the gradients of a module and its children, without writing what was trained without the parameters."""
    held: list[dict[str, nn.Parameter | None]] = [m._parameters for m in module.modules()]
    for p in (p for parameters in held for p in dict.values(parameters)):
        if p is not None and p.grad is not None:
            p.grad = None if set_to_none else p.grad.detach().zero_()


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module runs hooks, forward or backward."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


class LinearMap(nn.Module, ABC):
    """A weight and a bias, applied to codes, which a :class:`Trainer` may train in another form."""

    layer_per_code: ClassVar[bool]
    """Whether each code has a layer of its own, and not all codes the same."""
    weight: nn.Parameter
    bias: nn.Parameter
    sharded: bool
    """Whether each process has a shard of it, over its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Trainer | None = None
        self.sharded = False

    def attach(self, trainer: Trainer | None) -> None:
        """Let a trainer make what the map makes, or, with ``None``, none. One that is ahead of it writes it first."""
        if self.trainer is not None and self.trainer is not trainer:
            self.trainer.sync()
        self.trainer = trainer
        plain = dict(self._parameters)
        self._parameters = plain if trainer is None else SyncedParameters(plain, trainer.sync)

    @property
    def held(self) -> tuple[Tensor, Tensor]:
        """Weight and bias as they are: what was trained without them is not written.

        Those that are parametrised, as by ``torch.nn.utils.parametrizations``, are computed.
        """
        held: Any = self._parameters
        if "weight" in held and "bias" in held:
            return dict.__getitem__(held, "weight"), dict.__getitem__(held, "bias")
        held = dict(held)
        weight, bias = (held[name] if name in held else getattr(self, name) for name in ("weight", "bias"))
        return weight, bias

    @property
    def local(self) -> tuple[Tensor, Tensor]:
        """What this process has of weight and bias."""
        if not self.sharded:
            return self.held
        weight, bias = map(head_shards.local_shard, self.held)
        return weight, bias

    @property
    def hooked(self) -> bool:
        """Whether the map has hooks, which only a call of the module runs."""
        return has_hooks(self)

    def sync(self) -> None:
        """Write to the parameters what was trained without them."""
        if self.trainer is not None:
            self.trainer.sync()

    def product(self, codes: Tensor, step: Step = NO_STEP) -> Tensor:
        """What the map makes of codes, in its trainer's way; with a step, what it would make after that."""
        outputs = self.run(codes) if self.trainer is None else self.trainer.product(codes)
        if step is NO_STEP:
            return outputs
        weight, bias = step
        # The step's part is added, so that the map's gradient keeps its form.
        outputs = outputs if weight is None else outputs + self._apply_weight(codes.to(weight.dtype), weight)
        return outputs if bias is None else outputs + bias

    def run(self, codes: Tensor) -> Tensor:
        """What the map makes of codes by itself; a module's call would take longer, and is made where it has hooks."""
        made: Tensor = self(codes) if has_hooks(self) else self.forward(codes)
        return made

    def rows(self, codes: Tensor, shape: Sequence[int], *, copy: bool) -> Sequence[Tensor]:
        """What the map makes of each of (n, d_k) codes, in this shape; without ``copy`` it may change with training."""
        held = None if self.trainer is None else self.trainer.rows(codes, shape)
        if held is None:
            made = self.product(codes)
            return [made.view(shape)] if codes.shape[0] == 1 else made.view(-1, *shape).unbind(0)
        return [row.clone() for row in held] if copy else held

    @abstractmethod
    def _apply_weight(self, codes: Tensor, weight: Tensor) -> Tensor:
        """What a weight like the map's makes of codes, without a bias."""

    def __getstate__(self) -> dict[str, Any]:
        self.sync()
        return {**self.__dict__, "trainer": None}

    def shard_(self, mesh: Any) -> None:
        """Keep this process's shard of the outputs, if the map can be sharded and has an output for each process."""

    def extra_repr(self) -> str:
        """The shape of the map."""
        *many, width, outputs = self.weight.shape
        return "".join(f"{n} × " for n in many) + f"({width} → {outputs})"


class Head(LinearMap):
    """One map for all codes. H is stored as (d_k, outputs), in which both products of a training step are faster.

    Shape:
        codes (n, d_k) → (n, outputs)
    """

    layer_per_code = False

    def __init__(self, width: int, outputs: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, outputs, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(outputs, device=device, dtype=dtype))

    def forward(self, codes: Tensor) -> Tensor:
        """Generate from each code."""
        if self.trainer is not None:
            self.trainer.sync()
        weight, bias = self.held  # by attribute it takes ten times as long
        if self.sharded:
            return head_shards.product(codes, weight, bias)
        return torch.addmm(bias, codes if codes.dtype == weight.dtype else codes.to(weight.dtype), weight)

    def shard_(self, mesh: Any) -> None:
        """Keep this process's shard of the outputs, and leave the others to the other processes of a mesh.

        A head that has fewer outputs than there are processes, and one that is sharded, stay as they are.
        """
        if self.sharded or not head_shards.is_shardable(self.bias, mesh.size()):
            return
        if self.trainer is not None:
            raise HyperfanError(
                "an optimiser of hyperfan holds the heads as they were: build it after shard_heads_() and fully_shard"
            )
        self.weight, self.bias = (head_shards.shard_parameter(p, mesh) for p in self.held)
        self.sharded = True

    def _apply_weight(self, codes: Tensor, weight: Tensor) -> Tensor:
        return codes @ weight


class InputLayers(LinearMap):
    """A linear layer for each code: from embeddings to what the heads of chunks read.

    Shape:
        (…, n, size) → (…, n, width)
    """

    layer_per_code = True

    def __init__(self, n: int, size: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, size, width, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(n, width, device=device, dtype=dtype))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Apply each code's layer."""
        n, size, width = self.weight.shape
        rows = embeddings.reshape(-1, n, size).transpose(0, 1)
        outputs = torch.baddbmm(self.bias.unsqueeze(1), rows.to(self.weight.dtype), self.weight)
        return outputs.transpose(0, 1).reshape(*embeddings.shape[:-1], width)

    def _apply_weight(self, codes: Tensor, weight: Tensor) -> Tensor:
        return torch.einsum("...nl,nlk->...nk", codes, weight)

    @torch.no_grad()
    def scale_(self, factors: Tensor) -> None:
        """Multiply what each code's layer makes."""
        self.weight.mul_(factors[:, None, None])
        self.bias.mul_(factors[:, None])
