"""What an optimiser puts on a hypernet's heads: it makes their tensors, and applies their gradients.

The input layers of chunks stand among the heads under a name of their own.
"""

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError, HyperfanWarning
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.chunks import InputLayers
from hyperfan.hypernet.heads import Engined, Head
from hyperfan.hypernet.transforms import transformed
from hyperfan.optim.collapsed import Collapsed, CollapsedInputs, Momentum, Rows, rows
from hyperfan.optim.factored import Factored
from hyperfan.optim.lowrank import LowRank
from hyperfan.optim.plan import HOOKED, INPUTS, Kind, Row, choose, choose_inputs, saved, why_dependent
from hyperfan.optim.rule import Settings, update

State = MutableMapping[Tensor, dict[str, Any]]
Groups = Mapping[int, Settings]
"""What holds for each parameter, by its id: to hash a tensor itself takes longer."""
MARK = "collapsed"
"""In the state of a parameter whose momentum is held in another form."""


class Engine:
    """Trains the heads of one hypernet.

    Args:
        net: the hypernet. Its heads call :meth:`collapsed` and :meth:`generate`, the input layers of chunks
            :meth:`codes`, and both :meth:`sync` when someone looks.
        state: returns the optimiser's state.
        groups: returns the optimiser's settings for each parameter.
    """

    def __init__(self, net: HyperNet, state: Callable[[], State], groups: Callable[[], Groups]) -> None:
        self.net, self._state, self._groups = net, state, groups
        self.asked: dict[str, tuple[Kind, str]] = {}
        """Plans that were asked for, or had to be changed, with the reason."""
        self._shared: dict[str, tuple[Kind, str]] = {}
        self.revision = 0
        self._codes: Tensor | None = None
        self._collapsed: dict[str, Collapsed] = {}
        self._trained: list[Tensor] = []
        self._members: list[int] = []
        self._chosen: dict[str, tuple[Kind, str]] = {}
        self._seen: tuple[object, ...] = ()
        parts = [net.heads, net.embeddings, *([] if net.trunk is None else [net.trunk])]
        self._watched = [p for part in parts for p in part.parameters()]
        self._heads: dict[str, Head | InputLayers] = {name: net.heads.head(name) for name in net.heads.layout.heads}
        self._inputs = net.trunk if isinstance(net.trunk, InputLayers) else None
        if self._inputs is not None:
            self._heads[INPUTS] = self._inputs
        self._parameters = {name: (head.weight, head.bias) for name, head in self._heads.items()}
        self._parts: list[Engined] = [net.heads, *([] if self._inputs is None else [self._inputs])]
        for part in self._parts:
            part.attach(self)

    # ── the plan ───────────────────────────────────────────────────────────────────────────────────────────────────

    def chosen(self) -> dict[str, tuple[Kind, str]]:
        """Plan and reason for each head, chosen anew whenever something is frozen, or asked for."""
        hooked = tuple(bool(h._forward_hooks or h._forward_pre_hooks) for h in self._heads.values())
        seen = (tuple(p.requires_grad for p in self._watched), hooked, tuple(self.asked.items()))
        if seen != self._seen:
            chosen, given = {}, self._groups()
            for name in self._parameters:
                chosen[name] = self._fastest(name, given)
                if name in self.asked and chosen[name][0] in ("collapsed", "factored"):
                    chosen[name] = self.asked[name]
                if name == INPUTS and chosen[name][0] == "factored":
                    chosen[name] = ("dense", f"{chosen[name][1]}; in factors they would gain little")
            if {n for n, (kind, _) in chosen.items() if kind == "collapsed"} != set(self._collapsed):
                self.drop()
            self._chosen, self._seen = chosen, seen
        return self._chosen

    def _fastest(self, name: str, given: Groups) -> tuple[Kind, str]:
        if name != INPUTS:
            return choose(self.net, name, lambda p: id(p) in given)
        assert self._inputs is not None
        return choose_inputs(self.net, self._inputs, lambda p: id(p) in given)

    def parameters(self) -> list[Tensor]:
        """Of all heads."""
        return [p for pair in self._parameters.values() for p in pair]

    def share_those_in(self, owners: list[Tensor]) -> None:
        """Do not collapse heads whose parameters are listed twice: another hypernet uses them too."""
        times = Counter(map(id, owners))
        for name, pair in self._parameters.items():
            if any(times[id(p)] > 1 for p in pair):
                self._shared[name] = ("factored", "it is shared with another hypernet")
        self.asked |= self._shared

    def ask(self, kind: Kind | None) -> None:
        """Train every head by this plan where that is possible, or, with ``None``, by the fastest."""
        self.drop()
        self.asked = dict(self._shared)
        if kind in ("factored", "dense"):
            self.asked |= dict.fromkeys(self._parameters, (kind, "asked for"))

    def choose_anew(self) -> None:
        """Forget which plans were chosen."""
        self._seen = ()

    def make_dense(self, name: str, reason: str) -> None:
        """Train a head densely from now on, and say so."""
        if self.chosen()[name][0] in ("collapsed", "factored"):
            warnings.warn(
                f"'{name}' is trained with a dense gradient from now on, which is slower: {reason}. "
                "Accumulating, scaling and clipping by norm would keep it factored",
                HyperfanWarning,
                stacklevel=5,
            )
            self.asked[name] = ("dense", reason)

    def plan(self) -> list[Row]:
        """A line for each head."""
        lines, groups, chosen = [], self._groups(), self.chosen()
        if not self._attached:
            chosen = dict.fromkeys(chosen, ("dense", "released, or taken over by another optimiser"))
        for name, (kind, reason) in chosen.items():
            settings = groups.get(id(self._parameters[name][0]))
            momentum = settings is not None and settings.momentum != 0
            layout, (weight, bias) = self.net.heads.layout, self._parameters[name]
            codes = layout.pieces if name == INPUTS else layout.heads[name].count
            held = bias.numel() * (1 if name == INPUTS else codes)
            lines.append(Row(name, codes, kind, reason, saved(weight, bias, held, kind, momentum)))
        return lines

    # ── making tensors ─────────────────────────────────────────────────────────────────────────────────────────────

    def collapsed(self, codes: Tensor) -> dict[int, Tensor]:
        """The tensors of collapsed heads, by their index; the other heads are then called with :meth:`generate`."""
        made: dict[int, Tensor] = _outside_graphs(self._rows, codes)
        return made

    def generate(self, name: str, codes: Tensor) -> Tensor:
        """What a head makes of (n, d_k)."""
        made: Tensor = _outside_graphs(self._factored, name, codes)
        return made

    def codes(self, embeddings: Tensor) -> Tensor | None:
        """What the input layers make, if they are collapsed."""
        made: Tensor | None = _outside_graphs(self._input_codes, embeddings)
        return made

    def _input_codes(self, embeddings: Tensor) -> Tensor | None:
        if self.chosen()[INPUTS][0] != "collapsed":
            return None
        weight, bias = self._parameters[INPUTS]
        if embeddings.requires_grad or transformed() or not self._is_own(INPUTS) or len(embeddings) != len(bias):
            return None  # reading the layers brings them up to date
        training, head = torch.is_grad_enabled(), self._collapsed.get(INPUTS)
        with _plainly(embeddings.device.type):
            if head is None or not _same(head.codes, embeddings.to(weight.dtype)):
                self._recover(INPUTS)
                head = CollapsedInputs(weight, bias, INPUTS, embeddings.clone())
                self._collapsed[INPUTS] = head
            if head.made is None or not head.holds(thorough=not training):
                reason = self._why_lopsided(INPUTS)
                if reason is not None:
                    self.asked[INPUTS] = ("dense", reason)
                    return None
                head.make(self._momentum(INPUTS))
        made: Sequence[Tensor] = _apply(Rows, [head], weight, bias) if training else rows([head])
        return made[0] if training else made[0].clone()

    def _rows(self, codes: Tensor) -> dict[int, Tensor]:
        kinds = self.chosen()
        if not any(kind == "collapsed" and name != INPUTS for name, (kind, _) in kinds.items()):
            return {}
        if codes.ndim != 2 or codes.requires_grad or transformed() or not all(map(self._is_own, self._parameters)):
            self.sync()
            return {}
        training, known = torch.is_grad_enabled(), self._codes
        if known is None or known.dtype != codes.dtype or not torch.equal(codes, known):
            with _plainly(codes.device.type):
                self._collapse(codes.clone())
        heads = list(self._collapsed.values())
        lopsided = {head.name: self._why_lopsided(head.name) for head in heads if head.made is None}
        if any(lopsided.values()):
            self.asked |= {name: ("factored", reason) for name, reason in lopsided.items() if reason}
            return self._rows(codes)
        for head in heads:
            if head.made is None or not head.holds(thorough=not training):
                with _plainly(codes.device.type):
                    head.make(self._momentum(head.name))
        made = _apply(Rows, heads, *self._trained) if training else rows(heads)
        return dict(zip(self._members, made, strict=True))

    def _factored(self, name: str, codes: Tensor) -> Tensor:
        kind, reason = self.chosen()[name]
        weight, bias = self._parameters[name]
        if reason == HOOKED or transformed() or not self._is_own(name):
            made: Tensor = self._heads[name](codes)
        elif kind in ("dense", "frozen"):
            made = torch.addmm(bias, codes.to(weight.dtype), weight)
        else:
            made = _apply(Factored, codes, weight, bias)
        return made

    def _collapse(self, codes: Tensor) -> None:
        self.drop()
        for name, (kind, _) in self.chosen().items():
            if kind == "collapsed" and name != INPUTS:
                members = self.net.heads.layout.heads[name].tensors
                mine = codes[members]
                reason = why_dependent(mine) or self._why_lopsided(name)
                if reason is not None:
                    self.asked[name] = ("factored", reason)
                else:
                    shape = self.net.heads.outputs[members[0]][1]
                    self._collapsed[name] = Collapsed(*self._parameters[name], name, mine, shape)
        self._codes = codes
        self._trained = [p for name in self._collapsed for p in self._parameters[name]]
        self._members = [i for name in self._collapsed for i in self.net.heads.layout.heads[name].tensors]

    def _is_own(self, name: str) -> bool:
        """Whether a head holds its own parameters, as it does not while ``functional_call`` runs it with others."""
        held, (weight, bias) = self._heads[name]._parameters, self._parameters[name]
        return dict.__getitem__(held, "weight") is weight and dict.__getitem__(held, "bias") is bias

    # ── applying gradients ─────────────────────────────────────────────────────────────────────────────────────────

    def step(self, groups: Groups, done: set[int]) -> None:
        """Apply the gradients that are factored, but of parameters that are done with, and add what is done to them."""
        if not self._attached:
            for part in self._parts:
                part.sync()  # another optimiser's engine may be ahead
            return
        for name, pair in self._parameters.items():
            grads = [None if id(p) in done else p.grad for p in pair]
            if not any(isinstance(g, LowRank) for g in grads):
                if name in self._collapsed and any(g is not None for g in grads):
                    self._recover(name)  # these are for the head itself
                continue
            if self._step_collapsed(name, grads, groups):
                done.update(map(id, pair))
                continue
            self._recover(name)
            for p, grad in zip(pair, grads, strict=True):
                settings = groups.get(id(p))
                if not isinstance(grad, LowRank) or settings is None:
                    continue
                if grad.value.elementwise:
                    self.make_dense(name, "its gradient was changed element by element")
                buffer = update(p, self._buffer(p), grad.add_to_, settings)
                if settings.momentum != 0:
                    self._state()[p]["momentum_buffer"] = buffer
                done.add(id(p))

    def _step_collapsed(self, name: str, grads: list[Tensor | None], groups: Groups) -> bool:
        head = self._collapsed.get(name)
        settings, of_bias = (groups.get(id(p)) for p in self._parameters[name])
        if head is None or head.made is None or settings is None or of_bias is None:
            return False
        parts = [g.parts if isinstance(g, LowRank) else None for g in grads]
        if parts[0] is None or parts[0] != parts[1] or len(parts[0]) != 1 or parts[0][0][0].codes is not head.codes:
            return False
        if settings is not of_bias and settings != of_bias:
            self.asked[name] = ("factored", "its weight and bias are in groups with different settings")
            return False
        ((factor, scale),) = parts[0]
        if not head.holds(thorough=False):
            return False
        self._notice_lost_momentum(head)
        head.step(factor, scale, settings)
        if settings.momentum:
            self._state()[head.weight][MARK] = True
        self.revision += 1
        return True

    def _notice_lost_momentum(self, head: Collapsed) -> None:
        """If the optimiser's state was emptied by hand since the last step, the momentum of W goes with it."""
        if head.has_momentum and head.ahead and not self._state().get(head.weight, {}).get(MARK):
            head.forget_momentum()

    # ── going back to the heads ────────────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Write to the heads what was trained without them."""
        if transformed() and any(head.ahead for head in self._collapsed.values()):
            raise HyperfanError(
                "inside torch.func the heads cannot be brought up to date with what was trained: call opt.sync() before"
            )
        with _plainly(self.net.code_scale.device.type):
            for name in self._collapsed:
                self._recover(name)

    def drop(self) -> None:
        """Sync, and make everything anew at the next call."""
        self.sync()
        self._collapsed, self._codes = {}, None

    def release(self, discard: bool = False) -> None:
        """Sync, and give the heads back; or discard what was trained since the last sync."""
        if discard:
            self._collapsed, self._codes = {}, None
        self.drop()
        for part in self._parts:
            if part.engine is self:
                part.attach(None)

    @property
    def _attached(self) -> bool:
        """Whether no other optimiser has taken over any part of it."""
        return all(part.engine is self for part in self._parts)

    def _recover(self, name: str) -> None:
        head = self._collapsed.get(name)
        if head is None:
            return
        if head.made is not None:
            self._notice_lost_momentum(head)
        momentum = head.recover()
        self._state()[head.weight].pop(MARK, None)
        if momentum is not None:
            for p, buffer in zip(self._parameters[name], momentum, strict=True):
                self._state()[p]["momentum_buffer"] = buffer

    def _buffer(self, p: Tensor) -> Tensor | None:
        """A parameter's momentum, in its own dtype and on its own device."""
        held = self._state().get(p, {}).get("momentum_buffer")
        return None if held is None else held.to(p)

    def _momentum(self, name: str) -> Momentum | None:
        weight, bias = map(self._buffer, self._parameters[name])
        return None if weight is None or bias is None else (weight, bias)

    def _why_lopsided(self, name: str) -> str | None:
        weight, bias = map(self._buffer, self._parameters[name])
        return None if (weight is None) == (bias is None) else "only one of its parameters has momentum"


@contextlib.contextmanager
def _plainly(device: str) -> Iterator[None]:
    """Without gradients, lower precision or inference tensors, whatever the caller is in."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False):
        yield


def _same(a: Tensor, b: Tensor) -> bool:
    return a.device == b.device and a.dtype == b.dtype and torch.equal(a, b)


def _apply(function: type[torch.autograd.Function], *args: Any) -> Any:
    apply: Callable[..., Any] = function.apply  # which torch leaves without types
    return apply(*args)


def _outside_graphs(function: Callable[..., Any], *args: Any) -> Any:
    """Call it, with a graph break if a graph is being compiled: it looks at values, and gradients pass by it."""
    return _breaking(function, *args) if torch.compiler.is_compiling() else function(*args)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it without types
def _breaking(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
