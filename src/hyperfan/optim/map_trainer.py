"""Trains one linear map of a hypernet: makes what it makes in the fastest exact form, and applies its gradient."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError, HyperfanWarning
from hyperfan.generators import head_shards
from hyperfan.generators.head_shards import apply_function
from hyperfan.generators.part import Part
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.transforms import differentiated, outside_graphs, transformed
from hyperfan.optim.factored import CodesLast, factored_product
from hyperfan.optim.form import Form, Group, State, hand_out
from hyperfan.optim.gradient import FactoredGradient
from hyperfan.optim.plan import Choice, MapRow, TrainingKind, choose, code_parameters
from hyperfan.optim.shard_state import ShardState

Groups = Mapping[int, Group]
"""The group of each parameter, by its id: to hash a tensor itself takes longer."""


class StepRule(Protocol):
    """How an optimiser steps, and what it can do with the structure of a gradient."""

    def why_dense(self, part: Part) -> str | None:
        """The reason why a map gains nothing by its structure; ``None`` if it gains."""

    def why_not_collapsed(self, part: Part, group: Group) -> str | None:
        """The reason why a map with constant codes cannot be trained as a :class:`Form`; ``None`` if it can."""

    def form(self, part: Part, codes: Tensor, state: Callable[[], State]) -> Form:
        """The form in which a map with constant codes is trained."""

    def step(self, p: Tensor, state: State, grad: FactoredGradient, group: Group) -> bool:
        """Step a parameter along a gradient in factors; returns whether it did, or leaves it to torch."""

    def saved_state(self, part: Part, kind: TrainingKind, group: Group) -> int:
        """The number of state values that torch's optimiser would hold for a map and this one does not."""

    def compiled(self, part: Part) -> bool:
        """Whether the step of a map in factors is compiled."""


class MapTrainer:
    """A :class:`hyperfan.generators.linear_map.Trainer`: one optimiser's side of one map.

    Args:
        net: the hypernet.
        part: one of its generator's maps.
        rule: the optimiser's.
        state: returns the optimiser's state.
        groups: returns the optimiser's group of each parameter.
        notice: called with the trainer at each forward pass, as by which processes that train together are found.
    """

    def __init__(
        self,
        net: HyperNet,
        part: Part,
        rule: StepRule,
        state: Callable[[], State],
        groups: Callable[[], Groups],
        notice: "Callable[[MapTrainer], None]",
    ) -> None:
        self.net, self.part, self.map, self.name, self.rule = net, part, part.map, part.name, rule
        self._groups, self._notice = groups, notice
        self.revision = self.forms_made = 0
        self._codes_read = part.codes
        self._shared: Choice | None = None
        self._requested = False
        self.override: Choice | None = None
        """A choice in place of the fastest, with the reason."""
        self.weight, self.bias = self.pair = (self.map.weight, self.map.bias)
        self._state = state if not self.map.sharded else lambda: ShardState(state(), self.pair)
        self._watched = [*code_parameters(net, part), *self.pair]
        self._chosen: Choice = Choice("dense", "")
        self._chosen_for: object = None
        self._codes: Tensor | None = None
        self._form: Form | None = None
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
        seen = ([p.requires_grad for p in self._watched], self.map.hooked, self.override)
        if seen != self._chosen_for:
            groups = self._groups()
            fastest = choose(self.net, self.part, groups.keys())
            if fastest.kind == "collapsed":
                reason = self.rule.why_not_collapsed(self.part, groups[id(self.weight)])
                if reason is None and self.net.trunk is None and self.part.inputs and not self.weight.is_meta:
                    codes = self.part.inputs(self.net.codes())
                    reason = self.rule.form(self.part, codes, self._state).why_impossible()
                fastest = fastest if reason is None else Choice("factored", reason)
            if self.override is not None and fastest.in_factors:
                fastest = self.override
            small = None if self._requested else self.rule.why_dense(self.part)
            if small is not None and fastest.in_factors:
                fastest = Choice("dense", small)
            if self.map.layer_per_code and fastest.kind == "factored":
                fastest = Choice("dense", f"{fastest.reason}; in factors small maps would gain little")
            if fastest.kind != "collapsed":
                self.drop()
            self._chosen, self._chosen_for = fastest, seen
        return self._chosen

    @property
    def in_factors(self) -> bool:
        """Whether the map's gradient comes in factors."""
        return self.attached and self.chosen().in_factors

    def settings(self) -> dict[str, str]:
        """How the map is trained, and the options of that, by name."""
        groups = self._groups()
        found = {"optimiser": f"hyperfan's, {type(self.rule).__name__}", "plan": self.chosen().kind}
        for p, prefix in zip(self.pair, ("", "bias: "), strict=True):
            found |= {prefix + key: str(value) for key, value in _options(groups.get(id(p), {})).items()}
        return found

    def choose_anew(self) -> None:
        """Forget how the map was chosen to be trained."""
        self._chosen_for = None

    def mark_shared(self, reason: str) -> None:
        """Never collapse the map, because another hypernet uses it too."""
        self._shared = self.override = Choice("factored", reason)

    def use(self, kind: TrainingKind | None) -> None:
        """Train the map in this form where that is possible, or, with ``None``, in the fastest."""
        self.drop()
        self.choose_anew()
        self.override, self._requested = self._shared, kind is not None
        if kind in ("factored", "dense"):
            self.override = Choice(kind, "asked for")

    def make_dense(self, reason: str) -> None:
        """Train the map densely from now on, and warn of it."""
        if self.chosen().in_factors:
            warnings.warn(
                f"'{self.name}' is trained with a dense gradient from now on, which is slower: {reason}. "
                "Accumulating, scaling and clipping by norm would keep it factored",
                HyperfanWarning,
                stacklevel=5,
            )
            self.override = Choice("dense", reason)

    def plan_row(self) -> MapRow:
        """The map's line in the training plan."""
        choice, group, codes = self.chosen(), self._groups().get(id(self.weight)), self._codes_read
        if not self.attached:
            choice = Choice("dense", "released, or taken over by another optimiser")
        if group is None or not choice.in_factors:
            return MapRow(self.name, codes, choice.kind, choice.reason)
        rank = self.part.gradient_rank * codes // self.part.codes
        values = max(0, self.weight.numel() + self.bias.numel() * (1 - rank))  # of the gradient
        values += self.rule.saved_state(self.part, choice.kind, group)
        compiled = self.rule.compiled(self.part)
        return MapRow(self.name, codes, choice.kind, choice.reason, values * self.weight.element_size(), compiled)

    # ── making ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def linear(self, x: Tensor, codes: Tensor) -> Tensor | None:
        """Linear layers run from their weights' codes, with the map's gradient in factors."""
        if torch.compiler.is_compiling() or differentiated():
            return None
        if self.map.sharded or self.chosen().kind != "factored" or not self._holds_parameters():
            return None
        self._notice(self)
        self._codes_read = len(codes) * self.part.codes
        outputs: Tensor = apply_function(CodesLast, x, codes, self.weight, self.bias)[0]
        return outputs

    @outside_graphs
    def product(self, codes: Tensor) -> Tensor:
        """What the map makes of codes, in one tensor."""
        choice = self.chosen()
        if not transformed():
            self._notice(self)
        held = self.rows(codes, None) if choice.kind == "collapsed" else None
        if held is not None:
            return held[0]
        if codes.shape[0] >= self.part.codes:
            self._codes_read = codes.shape[0]
        factored = choice.in_factors and not self.map.layer_per_code and not transformed() and self._holds_parameters()
        if not factored:
            return self.map.run(codes)
        if self.map.sharded:
            return head_shards.product(codes, self.weight, self.bias, factored_product)
        return factored_product(codes, self.weight, self.bias)

    @outside_graphs
    def rows(self, codes: Tensor, shape: Sequence[int] | None) -> Sequence[Tensor] | None:
        """What the map makes and holds from step to step, a tensor for each code or one for all; ``None`` if none."""
        if self.chosen().kind != "collapsed":
            return None
        constant = codes.ndim == 2 and len(codes) == self.part.codes and not codes.requires_grad
        if not constant or transformed() or not self._holds_parameters():
            self.sync()
            return None
        training = torch.is_grad_enabled()
        self._notice(self)
        if not self._is_known(codes):
            with _plainly(codes.device.type):
                self.drop()
                self._codes = codes.clone()
                self._form = self.rule.form(self.part, self._codes, self._state)
                self.forms_made += 1
        form = self._form
        assert form is not None
        if form.outputs is None or not form.holds(thorough=not training):
            with _plainly(codes.device.type):
                reason = form.why_impossible()
                if reason is not None:
                    self._form, self._codes, self.override = None, None, Choice("factored", reason)
                    return None
                form.make()
        return hand_out(form, self.map, shape)

    def ready(self) -> Form | None:
        """The form in which the map is trained, if what it holds is up to date."""
        form = self._form
        self._notice(self)
        if self.chosen().kind != "collapsed" or form is None or form.outputs is None or not self._holds_parameters():
            return None
        return form if form.holds(thorough=False) else None

    def made_from(self, codes: Tensor) -> bool:
        """Whether what is held was made from these codes of the net."""
        return self.part.inputs is not None and self._is_known(self.part.inputs(codes))

    def _is_known(self, codes: Tensor) -> bool:
        known = self._codes
        return known is not None and known.dtype == codes.dtype and torch.equal(codes, known)

    def _holds_parameters(self) -> bool:
        """Whether the map holds its parameters, as it does not while ``functional_call`` runs it with others."""
        weight, bias = self.map.held
        return weight is self.weight and bias is self.bias

    # ── applying the gradient ──────────────────────────────────────────────────────────────────────────────────────

    def step(self, groups: Groups, done: set[int]) -> None:
        """Apply the gradients that are factored, but of parameters that are done with, and add what is done to them."""
        if not self.attached:
            self.write()
            self.map.sync()  # another optimiser's trainer may be ahead
            return
        pair = self.pair
        grads = [self._local_gradient(p.grad) if id(p) in groups and id(p) not in done else None for p in pair]
        if not any(isinstance(g, FactoredGradient) for g in grads):
            if any(g is not None for g in grads):
                self.write()  # these are for the map itself
            return
        if self._step_held(grads, groups):
            done.update(map(id, pair))
            return
        self.write()
        for p, mine, grad in zip(pair, self.map.local, grads, strict=True):
            if not isinstance(grad, FactoredGradient):
                continue
            if grad.value.elementwise:
                self.make_dense("its gradient was changed element by element")
            elif self.rule.step(mine, self._state(), grad, groups[id(p)]):
                done.add(id(p))
                continue
            p.grad = head_shards.shard_like(p, grad.to_dense()) if self.map.sharded else grad.to_dense()

    def _local_gradient(self, gradient: Tensor | None) -> Tensor | None:
        """This process's part of a gradient."""
        return head_shards.local_shard(gradient) if gradient is not None and self.map.sharded else gradient

    def _step_held(self, grads: list[Tensor | None], groups: Groups) -> bool:
        form, group, of_bias = self._form, groups.get(id(self.weight)), groups.get(id(self.bias))
        if form is None or form.outputs is None or group is None or of_bias is None:
            return False
        parts = [g.parts if isinstance(g, FactoredGradient) else None for g in grads]
        if parts[0] is None or parts[0] != parts[1] or len(parts[0]) != 1:
            return False
        ((factor, scale),) = parts[0]
        if factor.codes is not form.codes:
            return False
        reason = self.rule.why_not_collapsed(self.part, group)
        if group is not of_bias and _options(group) != _options(of_bias):
            reason = "its weight and bias are in groups with different settings"
        if reason is not None:
            self.override = Choice("factored", reason)
            return False
        if not form.holds(thorough=False):
            return False
        form.step(factor, scale, group)
        self.revision += 1
        return True

    # ── going back to the map ──────────────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Write to the map what was trained without it."""
        if self._form is None or not self._form.ahead:
            return
        if transformed():
            raise HyperfanError(
                "inside torch.func the heads cannot be brought up to date with what was trained: call opt.sync() before"
            )
        self.write()

    def write(self) -> None:
        """Write to the map and to the optimiser's state all that was trained in another form."""
        if self._form is not None:
            with _plainly(self.weight.device.type):
                self._form.write()

    def drop(self) -> None:
        """Write all, and make everything anew at the next call."""
        self.sync()
        self.write()
        self._form, self._codes = None, None

    def release(self, discard: bool = False) -> None:
        """Write all, and give the map back; or discard what was trained since the last sync."""
        if discard and self._form is not None:
            self._form.discard()
        self.drop()
        if self.attached:
            self.map.attach(None)


def _options(group: Group) -> dict[str, Any]:
    """A group's options, without its parameters."""
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


@contextlib.contextmanager
def _plainly(device: str) -> Iterator[None]:
    """Without gradients, lower precision or inference tensors, whatever the caller is in."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False):
        yield
