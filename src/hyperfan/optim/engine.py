"""What an optimiser puts on a hypernet's heads: it makes their tensors, and applies their gradients."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import HyperfanWarning
from hyperfan.hypernet import HyperNet
from hyperfan.optim.collapsed import Collapsed, Momentum, Rows, rows
from hyperfan.optim.factored import Factored
from hyperfan.optim.lowrank import LowRank
from hyperfan.optim.plan import Kind, Row, choose, saved, why_dependent
from hyperfan.optim.rule import Settings, update

State = Mapping[Tensor, dict[str, Any]]
Groups = Mapping[Tensor, Mapping[str, Any]]


class Engine:
    """Trains the heads of one hypernet.

    Args:
        net: the hypernet. Its heads call :meth:`collapsed` and :meth:`generate`, and :meth:`sync` when someone looks.
        state: returns the optimiser's state.
        groups: returns the optimiser's group of each parameter.
    """

    def __init__(self, net: HyperNet, state: Callable[[], State], groups: Callable[[], Groups]) -> None:
        self.net, self._state, self._groups = net, state, groups
        self.asked: dict[str, tuple[Kind, str]] = {}
        """Plans that were asked for, or had to be changed, with the reason."""
        self.revision = 0
        self._codes: Tensor | None = None
        self._collapsed: dict[str, Collapsed] = {}
        self._trained: list[Tensor] = []
        self._members: list[int] = []
        self._chosen: dict[str, tuple[Kind, str]] = {}
        self._seen: tuple[object, ...] = ()
        parts = [net.heads, net.embeddings, *([] if net.trunk is None else [net.trunk])]
        self._watched = [p for part in parts for p in part.parameters()]
        self._heads = {name: net.heads.head(name) for name in net.heads.groups}
        self._parameters = {name: (head.weight, head.bias) for name, head in self._heads.items()}
        if net.heads.engine is not None:
            net.heads.engine.release()
        net.heads.engine = self

    # ── the plan ───────────────────────────────────────────────────────────────────────────────────────────────────

    def chosen(self) -> dict[str, tuple[Kind, str]]:
        """Plan and reason for each head, chosen anew whenever something is frozen, or asked for."""
        seen = (tuple(p.requires_grad for p in self._watched), tuple(self.asked.items()))
        if seen != self._seen:
            chosen, given = {}, self._groups()
            for name in self._parameters:
                chosen[name] = choose(self.net, name, given.__contains__)
                if name in self.asked and chosen[name][0] not in ("frozen", self.asked[name][0]):
                    chosen[name] = self.asked[name] if chosen[name][0] != "dense" else chosen[name]
            if {n for n, (kind, _) in chosen.items() if kind == "collapsed"} != set(self._collapsed):
                self.drop()
            self._chosen, self._seen = chosen, seen
        return self._chosen

    def choose_anew(self) -> None:
        """Forget which plans were chosen."""
        self._seen = ()

    def make_dense(self, name: str, reason: str) -> None:
        """Train a head densely from now on, and say so."""
        if self.chosen()[name][0] in ("collapsed", "factored"):
            warnings.warn(
                f"head '{name}' is trained with a dense gradient from now on, which is slower: {reason}. "
                "Clipping by norm (opt.clip_grad_norm_) needs none",
                HyperfanWarning,
                stacklevel=5,
            )
            self.asked[name] = ("dense", reason)

    def plan(self) -> list[Row]:
        """A line for each head."""
        lines, groups = [], self._groups()
        for name, (kind, reason) in self.chosen().items():
            momentum = groups.get(self._parameters[name][0], {}).get("momentum", 0) != 0
            tensors = len(self.net.heads.groups[name])
            lines.append(Row(name, tensors, kind, reason, saved(self._heads[name], tensors, kind, momentum)))
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

    def _rows(self, codes: Tensor) -> dict[int, Tensor]:
        kinds = self.chosen()
        if "collapsed" not in (kind for kind, _ in kinds.values()):
            return {}
        if codes.ndim != 2 or codes.requires_grad or _transformed() or not all(map(self._is_own, self._parameters)):
            self.sync()
            return {}
        if self._codes is None or not torch.equal(codes, self._codes):
            self._collapse(codes.detach().clone())
        heads, training = list(self._collapsed.values()), torch.is_grad_enabled()
        for head in heads:
            head.refresh(self._momentum, thorough=not training)
        made = _apply(Rows, heads, *self._trained) if training else rows(heads)
        return dict(zip(self._members, made, strict=True))

    def _factored(self, name: str, codes: Tensor) -> Tensor:
        head = self._heads[name]
        kind, _ = self.chosen()[name]
        if kind in ("dense", "frozen") or _transformed() or not self._is_own(name):
            made: Tensor = head(codes)
        else:
            made = _apply(Factored, codes, head.weight, head.bias)
        return made

    def _collapse(self, codes: Tensor) -> None:
        self.drop()
        for name, (kind, _) in self.chosen().items():
            if kind == "collapsed":
                members = self.net.heads.groups[name]
                mine = codes[members]
                dependent = why_dependent(mine)
                if dependent is not None:
                    self.asked[name] = ("factored", dependent)
                else:
                    shape = self.net.heads.outputs[members[0]][1]
                    self._collapsed[name] = Collapsed(self._heads[name], name, mine, shape)
        self._codes = codes
        self._trained = [p for name in self._collapsed for p in self._parameters[name]]
        self._members = [i for name in self._collapsed for i in self.net.heads.groups[name]]

    def _is_own(self, name: str) -> bool:
        """Whether a head holds its own parameters, as it does not while ``functional_call`` runs it with others."""
        head, (weight, bias) = self._heads[name], self._parameters[name]
        return head.weight is weight and head.bias is bias

    # ── applying gradients ─────────────────────────────────────────────────────────────────────────────────────────

    def step(self, groups: Groups) -> set[Tensor]:
        """Apply the gradients that are factored; returns the parameters that are done with."""
        done: set[Tensor] = set()
        for name, pair in self._parameters.items():
            grads = [p.grad for p in pair]
            if not any(isinstance(g, LowRank) for g in grads):
                if name in self._collapsed and any(g is not None for g in grads):
                    self._recover(name)  # these are for the head itself
                continue
            if self._step_collapsed(name, grads, groups):
                done.update(pair)
                continue
            self._recover(name)
            for p, grad in zip(pair, grads, strict=True):
                group = groups.get(p)
                if not isinstance(grad, LowRank) or group is None:
                    continue
                if grad.value.elementwise:
                    self.make_dense(name, "its gradient was changed element by element, as clipping by value does")
                state = self._state()[p]
                buffer = update(p, state.get("momentum_buffer"), grad.add_to_, Settings.of(group))
                if group["momentum"] != 0:
                    state["momentum_buffer"] = buffer
                done.add(p)
        return done

    def _step_collapsed(self, name: str, grads: list[Tensor | None], groups: Groups) -> bool:
        head = self._collapsed.get(name)
        if head is None or head.made is None:
            return False
        parts = [g.parts if isinstance(g, LowRank) else None for g in grads]
        if parts[0] is None or parts[0] != parts[1] or len(parts[0]) != 1 or parts[0][0][0].codes is not head.codes:
            return False
        weight, bias = (groups[p] for p in self._parameters[name])
        settings = Settings.of(weight)
        if bias is not weight and settings != Settings.of(bias):
            self.asked[name] = ("factored", "its weight and bias are in groups with different settings")
            return False
        ((factor, scale),) = parts[0]
        head.step(factor, scale, settings)
        self.revision += 1
        return True

    # ── going back to the heads ────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def sync(self) -> None:
        """Write to the heads what was trained without them."""
        for name in self._collapsed:
            self._recover(name, drop=False)

    def drop(self) -> None:
        """Sync, and make everything anew at the next call."""
        self.sync()
        self._collapsed, self._codes = {}, None

    def release(self) -> None:
        """Sync, and give the heads back."""
        self.drop()
        if self.net.heads.engine is self:
            self.net.heads.engine = None

    def _recover(self, name: str, drop: bool = True) -> None:
        head = self._collapsed.get(name)
        if head is None:
            return
        momentum = head.recover()
        if momentum is not None:
            for p, buffer in zip(self._parameters[name], momentum, strict=True):
                self._state()[p]["momentum_buffer"] = buffer
        if drop:
            head.made = None

    def _momentum(self, name: str) -> Momentum | None:
        state = self._state()
        weight, bias = (state[p].get("momentum_buffer") if p in state else None for p in self._parameters[name])
        if weight is None and bias is None:
            return None
        pair = self._parameters[name]
        return (
            torch.zeros_like(pair[0]) if weight is None else weight,
            torch.zeros_like(pair[1]) if bias is None else bias,
        )


def _transformed() -> bool:
    """Inside vmap, grad or another transform of torch.func, where autograd functions and writing have other rules."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _apply(function: type[torch.autograd.Function], *args: Any) -> Any:
    return function.apply(*args)  # type: ignore[no-untyped-call]


def _outside_graphs(function: Callable[..., Any], *args: Any) -> Any:
    """Call it, with a graph break if a graph is being compiled: it looks at values, and gradients pass by it."""
    return _breaking(function, *args) if torch.compiler.is_compiling() else function(*args)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _breaking(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
