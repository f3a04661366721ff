"""What a map makes of codes that never change, held from one step to the next so that nobody makes it again.

Let C (m, d_k) be the codes that share a head, and W = C·H + 1·βᵀ what it makes. A form holds W, hands it to the mainnet
and trains it with the head, or in its place. Where each code has a layer of its own, as in the input layers of chunks,
C is (layers, 1, d_k) and H is (layers, d_k, outputs): the same, layer by layer.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hyperfan.errors import HyperfanError
from hyperfan.generators import head_shards
from hyperfan.generators.head_shards import apply_function
from hyperfan.generators.linear_map import LinearMap
from hyperfan.generators.part import Part
from hyperfan.hypernet.changes import fingerprint, versions
from hyperfan.optim.factor import Factor
from hyperfan.optim.factored import FactoredLinear
from hyperfan.optim.gradient import gradients, is_batched

State = Mapping[Tensor, MutableMapping[str, Any]]
"""An optimiser's state, as in torch: that of each parameter, by name."""
Group = Mapping[str, Any]
"""A parameter group, as in torch: options by name."""


class Form(ABC):
    """One map and what it makes.

    Args:
        part: the map.
        codes: (m, d_k), which the caller never changes.
        state: returns the optimiser's state.
    """

    def __init__(self, part: Part, codes: Tensor, state: Callable[[], State]) -> None:
        self.weight, self.bias = self.pair = part.map.local
        self._parameters = part.map.held
        self.name, self._state = part.name, state
        codes = codes.to(self.weight.dtype)
        self.codes = codes.unsqueeze(1) if part.map.layer_per_code else codes
        self.outputs: Tensor | None = None
        """W, (m, outputs) or (layers, 1, outputs)."""
        self.ahead = False
        """Whether the head has still to be written."""
        self._versions: object = None
        self._fingerprint = self._outputs_fingerprint = torch.empty(0)

    # ── what the rules differ in ───────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def why_impossible(self) -> str | None:
        """Why the map cannot be trained in this form, as codes and state are now; ``None`` if it can."""

    @abstractmethod
    def step(self, factor: Factor, scale: float, group: Group) -> None:
        """One step along the gradient that has these factors."""

    @abstractmethod
    def write(self) -> None:
        """Write to the head and to the optimiser's state what was held here. The next step makes W anew."""

    # ── W ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def make(self) -> None:
        """Compute W from the head."""
        self.outputs = self.through(self.weight, self.bias)
        self._remember()

    def _remember(self) -> None:
        """Note what W and the head are, so that a change by anyone else is seen."""
        assert self.outputs is not None
        self._versions, self._fingerprint = self._now(), fingerprint(self.pair)
        self._outputs_fingerprint = fingerprint((self.outputs,))

    def holds(self, thorough: bool = True) -> bool:
        """Whether W is what the head made, and what was trained since. Raises if that would be lost."""
        assert self.outputs is not None
        if not self.ahead and not torch.equal(self._outputs_fingerprint, fingerprint((self.outputs,))):
            raise HyperfanError(
                f"what '{self.name}' makes was changed in place, as by the mainnet itself, while it was "
                "being trained in the head's place: call opt.use('factored'), or let the mainnet change a copy"
            )
        same = self._versions == self._now()
        if same and (thorough or not self.ahead):
            same = torch.equal(self._fingerprint, fingerprint(self.pair))
        if not same and self.ahead:
            raise HyperfanError(
                f"'{self.name}' was written to, by hand or by another optimiser, while what it makes was being "
                "trained without it. Before that, call opt.sync(), or opt.release() to hand over for good; now only "
                "opt.release(discard=True) is left, which drops the steps since the last sync"
            )
        return same

    def _now(self) -> object:
        """The versions of what is stored; what is done to a sharded parameter raises its own, and not its shard's."""
        return versions(self.pair), [p._version for p in self._parameters if not p.is_inference()]

    def discard(self) -> None:
        """Drop what was trained since the head was written."""
        self.ahead = False

    def through(self, weight: Tensor, bias: Tensor) -> Tensor:
        """C·H + 1·βᵀ."""
        if weight.ndim == 2:
            return torch.addmm(bias, self.codes, weight)
        return torch.baddbmm(bias.unsqueeze(1), self.codes, weight)

    def tensors(self, shape: Sequence[int] | None) -> tuple[Tensor, ...]:
        """W: a tensor of this shape for each code, or one for all."""
        assert self.outputs is not None
        if shape is None:
            return (self.outputs.view(-1, self.outputs.shape[-1]),)
        return self.outputs.view(-1, *shape).unbind(0)

    def gradients(self, grads: Sequence[Tensor | None], joined: bool) -> list[Tensor | None]:
        """The gradients of weight and bias, from those of W, one for each code or joined; none if none was used."""
        seen = [g for g in grads if g is not None]
        if not seen:
            return [None, None]
        rows = [torch.zeros_like(self.bias).view(seen[0].shape) if g is None else g for g in grads]
        if joined or any(map(is_batched, seen)):
            matrix = torch.stack([row.reshape(-1) for row in rows]).view(*self.codes.shape[:-1], -1)
            if any(map(is_batched, seen)):
                return [self.codes.mT @ matrix, matrix.sum(-2)]
            return [*gradients(self.codes, matrix, self.weight, self.bias)]
        return [*gradients(self.codes, rows, self.weight, self.bias)]

    # ── the optimiser's state ──────────────────────────────────────────────────────────────────────────────────────

    def held_state(self, p: Tensor, key: str) -> Tensor | None:
        """What the optimiser's state has of a parameter, in its dtype and on its device."""
        value = self._state().get(p, {}).get(key)
        return None if value is None else value.to(p)

    def check_state(self, key: str) -> None:
        """Raise if weight or bias alone has lost its state, which is held here for both."""
        if len({key in self._state().get(p, {}) for p in self.pair}) > 1:
            raise HyperfanError(
                f"the optimiser's state of '{self.name}' was removed for its weight or its bias alone, while it was "
                "held for both together: call opt.sync() before, or remove both"
            )


class Held(torch.autograd.Function):
    """What forms hold, as the mainnet gets it: tensors whose gradients become factors of the maps' gradients."""

    @staticmethod
    def forward(ctx: Any, held: Sequence[tuple[Form, Sequence[int] | None]], *parameters: Tensor) -> Any:
        """The tensors of forms in these shapes; the parameters are those of the maps, for autograd to see."""
        ctx.held = held
        ctx.set_materialize_grads(False)
        return tuple(itertools.chain.from_iterable(form.tensors(shape) for form, shape in held))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """The factors, as gradients of the parameters."""
        each: list[Tensor | None] = [None]
        rest = iter(grads)
        for form, shape in ctx.held:
            each += form.gradients(list(itertools.islice(rest, 1 if shape is None else len(form.codes))), shape is None)
        return tuple(each)


def hand_out(form: Form, map: LinearMap, shape: Sequence[int] | None) -> Sequence[Tensor]:
    """What a form holds, for the mainnet; of a map that is sharded, from the forms of all processes."""
    training, sharded = torch.is_grad_enabled(), map.sharded
    pair = [head_shards.local_shard_with_grad(p) for p in map.held] if sharded else map.held
    mine = None if sharded else shape
    held: Sequence[Tensor] = apply_function(Held, ((form, mine),), *pair) if training else form.tensors(mine)
    if not sharded:
        return held
    outputs = head_shards.joined(held[0], map.held[0])
    return (outputs,) if shape is None else outputs.view(-1, *shape).unbind(0)


_HELD = Held._backward_cls


def factored_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` that keeps the gradient of a held weight in factors, if these are smaller."""
    # A stand-in of a weight would be made if it were asked for its grad_fn.
    if type(weight) is not Tensor or not isinstance(weight.grad_fn, _HELD) or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    outputs, inputs = weight.shape
    smaller = x.numel() // inputs * (inputs + outputs) < weight.numel()
    # A checkpoint, which hooks what is saved, runs the layer again, and then with F.linear.
    watched = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    if not smaller or watched or torch.is_autocast_enabled(x.device.type):
        return F.linear(x, weight, bias)
    product: Tensor = apply_function(FactoredLinear, x, weight, bias)
    return product


class FactoredLinears(TorchFunctionMode):
    """Where it is entered, linear layers run by :func:`factored_linear`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch."""
        return factored_linear(*args) if func is F.linear and not kwargs else func(*args, **(kwargs or {}))
