"""Trains one linear map of a hypernet: makes what it makes in the fastest exact form, and applies its gradient."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError, HyperfanWarning
from hyperfan.generators.base import Part
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.transforms import transformed
from hyperfan.optim.collapsed import Collapsed, Momentum, Rows, collapse
from hyperfan.optim.factored import Factored
from hyperfan.optim.gradient import FactoredGradient
from hyperfan.optim.plan import Choice, Kind, Row, choose, saved_bytes
from hyperfan.optim.rule import Settings, update

State = MutableMapping[Tensor, dict[str, Any]]
Groups = Mapping[int, Settings]
"""The settings of each parameter, by its id: to hash a tensor itself takes longer."""
COLLAPSED_KEY = "collapsed"
"""In the state of a parameter whose momentum is held in another form."""


class MapTrainer:
    """A :class:`hyperfan.generators.linear_map.Trainer`: one optimiser's side of one map.

    Args:
        net: the hypernet.
        part: one of its generator's maps.
        state: returns the optimiser's state.
        groups: returns the optimiser's settings for each parameter.
    """

    def __init__(self, net: HyperNet, part: Part, state: Callable[[], State], groups: Callable[[], Groups]) -> None:
        self.net, self.part, self.map, self.name = net, part, part.map, part.name
        self._state, self._groups = state, groups
        self.revision = 0
        self._shared: Choice | None = None
        self.override: Choice | None = None
        """A choice in place of the fastest, with the reason."""
        self.weight, self.bias = self.map.weight, self.map.bias
        sources = [net.embeddings, *([] if net.trunk is None else [net.trunk]), part.map]
        sources += [] if part.input_map is None else [part.input_map]
        self._watched = [p for source in sources for p in source.parameters()]
        self._chosen: Choice = Choice("dense", "")
        self._chosen_for: object = None
        self._codes: Tensor | None = None
        self._collapsed: Collapsed | None = None
        self.map.attach(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """None: the copy of a map has no trainer, also where torch copies a parametrised one attribute by attribute."""

    @property
    def attached(self) -> bool:
        """Whether no other optimiser has taken over the map."""
        return self.map.trainer is self

    # ── the choice ─────────────────────────────────────────────────────────────────────────────────────────────────

    def chosen(self) -> Choice:
        """How the map is trained, and why; chosen anew whenever a parameter is frozen or the choice overridden."""
        seen = (tuple(p.requires_grad for p in self._watched), self.map.hooked, self.override)
        if seen != self._chosen_for:
            given = self._groups()
            fastest = choose(self.net, self.part, lambda p: id(p) in given)
            if self.override is not None and fastest.kind in ("collapsed", "factored"):
                fastest = self.override
            if self.map.layer_per_code and fastest.kind == "factored":
                fastest = Choice("dense", f"{fastest.reason}; in factors small maps would gain little")
            if fastest.kind != "collapsed":
                self.drop()
            self._chosen, self._chosen_for = fastest, seen
        return self._chosen

    def choose_anew(self) -> None:
        """Forget what was chosen."""
        self._chosen_for = None

    def share(self, reason: str) -> None:
        """Never collapse the map, because another hypernet uses it too."""
        self._shared = self.override = Choice("factored", reason)

    def use(self, kind: Kind | None) -> None:
        """Train the map in this form where that is possible, or, with ``None``, in the fastest."""
        self.drop()
        self.override = self._shared
        if kind in ("factored", "dense"):
            self.override = Choice(kind, "asked for")

    def make_dense(self, reason: str) -> None:
        """Train the map densely from now on, and warn of it."""
        if self.chosen().kind in ("collapsed", "factored"):
            warnings.warn(
                f"'{self.name}' is trained with a dense gradient from now on, which is slower: {reason}. "
                "Accumulating, scaling and clipping by norm would keep it factored",
                HyperfanWarning,
                stacklevel=5,
            )
            self.override = Choice("dense", reason)

    def plan_row(self) -> Row:
        """The map's line in the training plan."""
        choice = self.chosen()
        if not self.attached:
            choice = Choice("dense", "released, or taken over by another optimiser")
        settings = self._groups().get(id(self.weight))
        momentum = settings is not None and settings.momentum != 0
        held = self.bias.numel() * self.part.gradient_rank
        saved = saved_bytes(self.weight, self.bias, held, choice.kind, momentum)
        return Row(self.name, self.part.codes, choice.kind, choice.reason, saved)

    # ── making ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def rows(self, codes: Tensor) -> Sequence[Tensor] | None:
        """What a collapsed map makes, a tensor for each code; ``None`` if it is not collapsed."""
        rows: Sequence[Tensor] | None = _outside_graphs(self._collapsed_rows, codes)
        return rows

    def product(self, codes: Tensor) -> Tensor:
        """What the map makes of codes, in one tensor."""
        product: Tensor = _outside_graphs(self._product, codes)
        return product

    def _product(self, codes: Tensor) -> Tensor:
        rows = self._collapsed_rows(codes)
        if rows is not None:
            assert self._collapsed is not None
            return self._collapsed.join(rows)
        in_factors = self.chosen().kind in ("collapsed", "factored") and not self.map.layer_per_code
        factored = in_factors and not transformed() and self._holds_parameters()
        product: Tensor = _apply(Factored, codes, self.weight, self.bias) if factored else self.map(codes)
        return product

    def _collapsed_rows(self, codes: Tensor) -> Sequence[Tensor] | None:
        if self.chosen().kind != "collapsed":
            return None
        if codes.ndim != 2 or len(codes) != self.part.codes or codes.requires_grad or transformed():
            self.sync()
            return None
        if not self._holds_parameters():
            self.sync()
            return None
        training, known = torch.is_grad_enabled(), self._codes
        if known is None or known.dtype != codes.dtype or not torch.equal(codes, known):
            with _plainly(codes.device.type):
                self._collapse(codes.clone())
        collapsed = self._collapsed
        if collapsed is not None and collapsed.outputs is None:
            self._override_if(self._why_lopsided())
            collapsed = self._collapsed
        if collapsed is None:
            return None
        if collapsed.outputs is None or not collapsed.holds(thorough=not training):
            with _plainly(codes.device.type):
                collapsed.make(self._momentum())
        return _apply(Rows, collapsed, self.weight, self.bias) if training else collapsed.tensors()

    def _collapse(self, codes: Tensor) -> None:
        self.drop()
        collapsed = collapse(self.part, codes)
        if not self._override_if(collapsed.why_unrecoverable() or self._why_lopsided()):
            self._codes, self._collapsed = codes, collapsed

    def _override_if(self, reason: str | None) -> bool:
        """Train the map in factors if there is a reason to; returns whether there is."""
        if reason is not None:
            self._collapsed, self._codes = None, None
            self.override = Choice("factored", reason)
        return reason is not None

    def _holds_parameters(self) -> bool:
        """Whether the map holds its parameters, as it does not while ``functional_call`` runs it with others."""
        weight, bias = self.map.held
        return weight is self.weight and bias is self.bias

    # ── applying the gradient ──────────────────────────────────────────────────────────────────────────────────────

    def step(self, groups: Groups, done: set[int]) -> None:
        """Apply the gradients that are factored, but of parameters that are done with, and add what is done to them."""
        if not self.attached:
            self.map.sync()  # another optimiser's trainer may be ahead
            return
        pair = (self.weight, self.bias)
        grads = [p.grad if id(p) in groups and id(p) not in done else None for p in pair]
        if not any(isinstance(g, FactoredGradient) for g in grads):
            if any(g is not None for g in grads):
                self._recover()  # these are for the map itself
            return
        if self._step_collapsed(grads, groups):
            done.update(map(id, pair))
            return
        self._recover()
        for p, grad in zip(pair, grads, strict=True):
            settings = groups.get(id(p))
            if not isinstance(grad, FactoredGradient) or settings is None:
                continue
            if grad.value.elementwise:
                self.make_dense("its gradient was changed element by element")
            buffer = update(p, self._buffer(p), grad.add_to_, settings)
            if settings.momentum != 0:
                self._state()[p]["momentum_buffer"] = buffer
            done.add(id(p))

    def _step_collapsed(self, grads: list[Tensor | None], groups: Groups) -> bool:
        collapsed, settings, of_bias = self._collapsed, groups.get(id(self.weight)), groups.get(id(self.bias))
        if collapsed is None or collapsed.outputs is None or settings is None or of_bias is None:
            return False
        parts = [g.parts if isinstance(g, FactoredGradient) else None for g in grads]
        if parts[0] is None or parts[0] != parts[1] or len(parts[0]) != 1:
            return False
        ((factor, scale),) = parts[0]
        if factor.codes is not collapsed.codes:
            return False
        if settings is not of_bias and settings != of_bias:
            self.override = Choice("factored", "its weight and bias are in groups with different settings")
            return False
        if not collapsed.holds(thorough=False):
            return False
        self._notice_lost_momentum(collapsed)
        collapsed.step(factor, scale, settings)
        if settings.momentum:
            self._state()[self.weight][COLLAPSED_KEY] = True
        self.revision += 1
        return True

    def _notice_lost_momentum(self, collapsed: Collapsed) -> None:
        """If the optimiser's state was emptied by hand since the last step, the momentum of W goes with it."""
        if collapsed.has_momentum and collapsed.ahead and not self._state().get(self.weight, {}).get(COLLAPSED_KEY):
            collapsed.forget_momentum()

    # ── going back to the map ──────────────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Write to the map what was trained without it."""
        if self._collapsed is None:
            return
        if transformed() and self._collapsed.ahead:
            raise HyperfanError(
                "inside torch.func the heads cannot be brought up to date with what was trained: call opt.sync() before"
            )
        with _plainly(self.weight.device.type):
            self._recover()

    def drop(self) -> None:
        """Sync, and make everything anew at the next call."""
        self.sync()
        self._collapsed, self._codes = None, None

    def release(self, discard: bool = False) -> None:
        """Sync, and give the map back; or discard what was trained since the last sync."""
        if discard:
            self._collapsed, self._codes = None, None
        self.drop()
        if self.attached:
            self.map.attach(None)

    def _recover(self) -> None:
        collapsed = self._collapsed
        if collapsed is None:
            return
        if collapsed.outputs is not None:
            self._notice_lost_momentum(collapsed)
        momentum = collapsed.recover()
        self._state()[self.weight].pop(COLLAPSED_KEY, None)
        if momentum is not None:
            for p, buffer in zip((self.weight, self.bias), momentum, strict=True):
                self._state()[p]["momentum_buffer"] = buffer

    def _buffer(self, p: Tensor) -> Tensor | None:
        """A parameter's momentum, in its dtype and on its device."""
        held = self._state().get(p, {}).get("momentum_buffer")
        return None if held is None else held.to(p)

    def _momentum(self) -> Momentum | None:
        weight, bias = self._buffer(self.weight), self._buffer(self.bias)
        return None if weight is None or bias is None else (weight, bias)

    def _why_lopsided(self) -> str | None:
        weight, bias = self._buffer(self.weight), self._buffer(self.bias)
        return None if (weight is None) == (bias is None) else "only one of its parameters has momentum"


@contextlib.contextmanager
def _plainly(device: str) -> Iterator[None]:
    """Without gradients, lower precision or inference tensors, whatever the caller is in."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False):
        yield


def _apply(function: type[torch.autograd.Function], *args: Any) -> Any:
    apply: Callable[..., Any] = function.apply  # which torch leaves without types
    return apply(*args)


def _outside_graphs(function: Callable[..., Any], *args: Any) -> Any:
    """Call it, with a graph break if a graph is being compiled: it looks at values, and gradients pass by it."""
    return _breaking(function, *args) if torch.compiler.is_compiling() else function(*args)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it without types
def _breaking(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
