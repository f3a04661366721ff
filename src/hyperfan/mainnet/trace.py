"""One run of the mainnet under a TorchFunctionMode, to see which nonlinearity stands between which layers.

The mode sees modules, functional calls and tensor methods alike, because all three end in a torch function, and it
sees what really ran, so control flow in Python is no obstacle. What it does not understand it calls unknown.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from hyperfan.formulas.gains import attention_mean_square
from hyperfan.mainnet import operations as op
from hyperfan.mainnet import trails
from hyperfan.mainnet.attention import logits, mixed_keys
from hyperfan.mainnet.gains import grid, prelu, rrelu
from hyperfan.mainnet.norms import find_norm
from hyperfan.mainnet.parameters import Parameters, rms
from hyperfan.mainnet.recurrent import state_trail
from hyperfan.mainnet.replay import TorchCall, Value, tensors
from hyperfan.mainnet.resample import Resampler, summed_values
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity, Role
from hyperfan.mainnet.trails import Trail
from hyperfan.mainnet.wiring import Wiring

TOKEN_SIZE = 8
"""The size of a tensor that stands for values which are not there; enough to see whether a function is a norm."""


class Tracer(TorchFunctionMode):
    """Follows every tensor of a run, and records what each weight consumes and what follows it.

    Args:
        parameters: id of each parameter → its name and role.
        constants: tensors that are neither inputs nor parameters, such as buffers.
        tables: names of the parameters that are look-up tables.
    """

    def __init__(
        self,
        parameters: Mapping[int, tuple[str, Role]],
        constants: Iterable[Tensor],
        tables: Collection[str],
    ) -> None:
        super().__init__()
        self.wiring = Wiring()
        self.parameters = Parameters(parameters)
        self._alive: list[Any] = list(constants)  # an id is only an identity while its object lives
        self._constants = {id(t) for t in self._alive}
        self._trails: dict[int, Trail] = {}
        self._values: dict[int, Value] = {}
        self._views: dict[int, list[Tensor]] = {}
        self._resampler = Resampler()
        self._tables = tables
        self._nodes = itertools.count()
        self._inside_norm = 0

    def start(self, inputs: Any) -> None:
        """Begin trails at the example's tensors."""
        for tensor in tensors(inputs):
            self._set(tensor, Trail(next(self._nodes)))

    def finish(self, outputs: Any) -> None:
        """Record what follows the layers that make the output."""
        for tensor in tensors(outputs):
            if id(tensor) in self._trails:
                self.wiring.add_following([self._trails[id(tensor)]])

    def enter_norm(self) -> None:
        """Do not look inside a module that is declared to be a norm."""
        self._inside_norm += 1

    def leave_norm(self, inputs: Any, outputs: Any, gains: Sequence[Tensor]) -> None:
        """Follow a module that is declared to be a norm, from the first tensor that it read to the first it made."""
        self._inside_norm -= 1
        read = next((self._trails[id(t)] for t in tensors(inputs) if id(t) in self._trails), None)
        if read is not None and not self._inside_norm:
            for tensor in tensors(outputs)[:1]:
                self._set(tensor, self._norm(read, gains))

    def pretend(self, name: str, *tensors: Tensor) -> Tensor:
        """Follow a torch function that is not run, and return a token for its output."""

        def function(*tensors: Tensor) -> Tensor:
            return torch.zeros(TOKEN_SIZE)

        function.__name__ = name
        token: Tensor = self.__torch_function__(function, (), tensors)
        return token

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function, then follow what it did."""
        if self._inside_norm:
            return func(*args, **(kwargs or {}))
        full_name = getattr(func, "__name__", "")
        call = TorchCall(func, full_name.strip("_"), args, kwargs or {})
        name, given = call.name, call.tensors
        inputs = [self._trails[id(t)] for t in given if id(t) in self._trails]
        self.parameters.see(call)
        weights = self.parameters.layer(call)
        if weights and not inputs and len(given) > 1:
            inputs = [self._untraced(given)]
        if name in op.SELECTIONS and given and given[0] in self.parameters and id(given[0]) not in self._trails:
            inputs = []  # what is traced is only where to look
        if inputs and name in op.ADDITIONS:
            inputs += self._added_rows(given)
        # Followed before it runs: an in-place function writes over its input.
        recorded = None if weights or not inputs else self._record(call)
        followed = self._follow(call, inputs, weights, recorded) if inputs else None
        result = func(*args, **call.kwargs)
        outputs = tensors(result)
        if followed is not None and name not in op.SHAPE_ONLY:
            for place, tensor in enumerate(outputs):
                trail = followed.select(next(self._nodes)) if name in op.SELECTIONS else followed
                same = any(tensor is t for t in given) and not full_name.endswith("_")
                self._set(tensor, trail, None if same else recorded, place)
        elif not inputs or name in op.SHAPE_ONLY:
            self._record_constant(call, outputs)
        changed = [t for t in given if any(t is out for out in outputs)]
        in_place = full_name.endswith("_") or name in op.ELEMENTWISE
        if name == "setitem" or (changed and in_place and name not in op.UNCHANGED):
            self._overwrite(args[0], known=name != "setitem")
        return result

    def _follow(self, call: TorchCall, inputs: list[Trail], weights: list[str], recorded: TorchCall | None) -> Trail:
        name, args, kwargs = call.name, call.args, call.kwargs
        first, node = inputs[0], next(self._nodes)
        if name in op.RECURRENT:
            return self._recurrent(call, weights, first)
        if name == "multi_head_attention_forward":
            return self._attention(weights, [self._trails.get(id(t), first) for t in args[:3]], args[1].shape[0])
        if weights:
            return self._layer(name, weights, inputs)
        computed = name in op.LAYER_FUNCTIONS and self.parameters.is_computed(call.tensors[1])
        if computed and id(call.tensors[0]) in self._trails:
            return self._computed_layer(inputs)
        if name in op.NORMS:
            known = [(t, self.parameters.get(t)) for t in call.tensors]
            return self._norm(first, [t for t, origin in known if origin is not None and origin.role == "scale"])
        if name == "prelu":
            slope = args[1] if len(args) > 1 else kwargs["weight"]
            rms = 0.25 if slope.is_meta else slope.detach().double().square().mean().sqrt().item()
            return first.apply(name, self._resampler.apply(prelu, first.samples, rms))
        if name == "rrelu":
            bounds = {k: v for k, v in kwargs.items() if k in ("lower", "upper")}
            return first.apply(name, self._resampler.apply(rrelu, first.samples, *args[1:3], **bounds))
        if name == "glu":
            gate = first.apply("sigmoid", self._resampler.apply(torch.sigmoid, first.samples)).select(next(self._nodes))
            return trails.product(node, [first.select(next(self._nodes)), gate], "glu")
        if name == "detach":
            return replace(first, samples=None if first.samples is None else first.samples.detach())
        if name in op.CONCATENATIONS:
            return trails.concatenate(node, inputs, [t.numel() for t in call.tensors if id(t) in self._trails])
        if name in op.ELEMENTWISE and (name not in ("max", "min") or len(call.tensors) > 1):
            return self._elementwise(call, inputs, recorded)
        if name in op.MATRIX_PRODUCTS:
            return self._mixture(call, inputs)
        if name == "softmax" and first.logits is not None and first.samples is not None:
            self.wiring.add_logits(first.logits, first.unit_second_moment)
        if name in op.UNCHANGED or name in op.SELECTIONS:
            return first
        if name in op.REARRANGEMENTS:
            return first.rearrange(node)
        if name in op.POOLS or name in ("max", "min"):
            return first.pool(node)
        if name == "sum" and first.samples is not None:
            return first.add_up(node, summed_values(call))
        return self._found_norm(recorded) or trails.unknown(node, inputs, name)

    def _untraced(self, given: list[Tensor]) -> Trail:
        """The input of a layer that reads no traced tensor: a constant, a parameter, or a tensor of unknown origin."""
        known = all(id(t) in self._constants or t in self.parameters for t in given)
        trail = Trail(next(self._nodes))
        return trail if known else trail.apply("an untraced function", None)

    def _added_rows(self, given: list[Tensor]) -> list[Trail]:
        """Rows of a table that are added as they are, as those of positions, without a function that looks them up."""
        names = {origin.name for origin in self.parameters.of(given) if origin.raw and origin.name in self._tables}
        return [self._layer("embedding", [name], [Trail(next(self._nodes))]) for name in sorted(names)]

    def _layer(self, name: str, weights: list[str], inputs: list[Trail]) -> Trail:
        self.wiring.add_following(inputs)
        if name in op.LOOKUPS:
            self.wiring.add_readers(weights, IDENTITY, lookup=True)
        elif name == "bilinear":
            self.wiring.add_readers(weights, trails.product(-1, inputs, name).nonlinearity())
        else:
            self.wiring.add_readers(weights, inputs[0].nonlinearity(), inputs[0].scale_source, inputs[0].sources)
        if name not in op.LOOKUPS and all(trail.depth == 0 for trail in inputs):
            self.wiring.input_readers.update(weights)
        if name not in op.LOOKUPS and any(trail.scale_assumed for trail in inputs):
            self.wiring.scale_assumed.update(weights)
        return trails.layer_output(next(self._nodes), weights[-1], inputs)

    def _computed_layer(self, inputs: list[Trail]) -> Trail:
        """A layer whose weight is computed, as by a parametrization, and taken to put out unit scale, as plain ones."""
        self.wiring.add_following(inputs)
        return replace(trails.layer_output(next(self._nodes), "", inputs), sources=frozenset(), has_source_scale=False)

    def _attention(self, weights: list[str], inputs: list[Trail], keys: int) -> Trail:
        """Packed, its input projection reads query, key and value alike; its output projection a mixture of values."""
        self.wiring.add_following(inputs)
        mixture = self._averaged(Trail(next(self._nodes), depth=1), keys).nonlinearity()
        all_three = trails.concatenate(-1, inputs, [1] * len(inputs))
        for weight in weights:
            read = next((t for t, key in zip(inputs, "qkv", strict=False) if f"{key}_proj_weight" in weight), all_three)
            out = weight.endswith("out_proj.weight")
            self.wiring.add_readers([weight], mixture if out else read.nonlinearity(), None, read.sources)
            if not out:
                self.wiring.followed_by[weight] = IDENTITY
            if out or read.scale_assumed:
                self.wiring.scale_assumed.add(weight)
        last = next((w for w in weights if w.endswith("out_proj.weight")), weights[-1] if weights else "")
        return trails.layer_output(next(self._nodes), last, inputs)

    def _recurrent(self, call: TorchCall, weights: list[str], read: Trail) -> Trail:
        """What a recurrent layer puts out is its state, or a projection of it."""
        self.wiring.add_following([read])
        shapes = {origin.name: t.shape for t in call.tensors if (origin := self.parameters.get(t)) is not None}
        state = state_trail(next(self._nodes), call.name, {w: shapes[w] for w in weights if w in shapes}, read)
        for weight in weights:
            local = weight.rpartition(".")[2]
            first = local in ("weight_ih", "weight_ih_l0", "weight_ih_l0_reverse")
            consumed = IDENTITY if local.startswith("weight_hh") else state.nonlinearity()
            self.wiring.add_readers([weight], read.nonlinearity() if first else consumed, None, read.sources)
            projects = local.startswith("weight_hr")
            self.wiring.followed_by.setdefault(weight, IDENTITY if projects else Nonlinearity.named(state.names[0]))
        projected = any(weight.rpartition(".")[2].startswith("weight_hr") for weight in weights)
        return replace(state, samples=grid(), names=()) if projected else state

    def _norm(self, read: Trail, gains: Sequence[Tensor] = (), mean_square: float = 1.0) -> Trail:
        """The result of a norm, times its gains."""
        if not read.is_identity:
            self.wiring.add_following([read])
        for gain in gains:
            mean_square *= rms(gain) ** 2
        return read.normalise(next(self._nodes), mean_square)

    def _found_norm(self, recorded: TorchCall | None) -> Trail | None:
        """The result of a norm that is written out and ends with this call, if it is one."""
        found = None if recorded is None else find_norm(recorded)
        return None if found is None else self._norm(found[0].trail, (), found[1])

    def _mixture(self, call: TorchCall, inputs: list[Trail]) -> Trail:
        """A product of matrices, none of them a weight. Traced values mixed by traced weights have unit scale."""
        self.wiring.add_following(inputs)
        if len(inputs) == 1 and not inputs[0].is_identity:
            return trails.unknown(next(self._nodes), inputs, call.name)
        mixed = trails.combine(next(self._nodes), inputs)
        if call.name == "scaled_dot_product_attention":
            self.wiring.add_logits(logits(call, inputs), 1.0)
            sources = inputs[2].sources if inputs[2:] and inputs[2].is_identity else frozenset()
            return self._averaged(replace(mixed, sources=sources), mixed_keys(call, None))
        linear = [trail for trail in inputs if trail.is_identity]
        sources = linear[0].sources if len(linear) == 1 else frozenset()
        mixed = replace(mixed, sources=sources, logits=logits(call, inputs))
        soft = [t for t in call.tensors if id(t) in self._trails and "softmax" in self._trails[id(t)].names]
        return self._averaged(mixed, mixed_keys(call, soft[0])) if len(soft) == len(linear) == 1 else mixed

    def _averaged(self, mixed: Trail, keys: int) -> Trail:
        """What attention makes of so many values."""
        if keys <= 1:
            return mixed
        return mixed.apply("attention", self._resampler.apply(torch.mul, grid(), attention_mean_square(keys) ** 0.5))

    def _elementwise(self, call: TorchCall, inputs: list[Trail], recorded: TorchCall | None) -> Trail:
        name = call.name
        if len({t.node for t in inputs}) == 1:
            if inputs[0].normalised and set(inputs[0].names) <= {"norm"}:
                self.parameters.norm(call)
            elif name in op.ADDITIONS:
                self.parameters.added(call, inputs[0].scale_source)
            samples = (
                self._resampler.repeat(call, self._trails, self.parameters)
                if all(t.samples is not None for t in inputs)
                else None
            )
            names = tuple(dict.fromkeys(n for t in inputs for n in t.names))
            unnamed = name in op.ARITHMETIC and len(inputs) == 1
            applied = replace(inputs[0], names=names).apply("" if unnamed else name, samples)
            return replace(applied, frequency=inputs[0].multiple) if name in op.PERIODIC else applied
        node = next(self._nodes)
        if name in op.ADDITIONS:
            self.wiring.add_following([trail for trail in inputs if not trail.is_identity])
            self.wiring.add_sum(inputs)
            total, found = trails.add(node, inputs), trails.residual_branch(inputs)
            if found is None or not found.sources:
                return total
            self.wiring.residual_blocks += found.terms
            self.wiring.branch_ends |= found.sources
            return replace(total, terms=1)
        followed = trails.product(node, inputs, "gate") if name in op.PRODUCTS else trails.unknown(node, inputs, name)
        norm = self._found_norm(recorded) if followed.moments is None else None
        if norm is None:
            self.wiring.add_following(inputs)
        return norm or followed

    def _record_constant(self, call: TorchCall, outputs: list[Tensor]) -> None:
        """A tensor computed from constants is constant, and one computed from one weight still is that weight."""
        self._alive += outputs
        seen = (self._constants, self._trails)
        known = all(t in self.parameters or any(id(t) in ids for ids in seen) for t in call.tensors)
        if not self.parameters.derive(call, outputs) and known and call.name not in op.EXTERNAL_VALUES:
            self._constants.update(id(tensor) for tensor in outputs)

    def _overwrite(self, tensor: Tensor, known: bool) -> None:
        """Other views of a tensor that was written to hold something unknown now, and so does the tensor itself."""
        views = self._views.get(id(_base(tensor)), [])
        trail = Trail(next(self._nodes)).apply("overwritten", None)
        for other in [*views, _base(tensor)]:
            if other is not tensor or not known:
                self._set(other, trail)
        if not known:
            self._set(tensor, trail)

    def _record(self, call: TorchCall) -> TorchCall:
        """The call, with values in place of traced tensors, and with parameters that have one value everywhere."""

        def value(tensor: Tensor) -> Any:
            if id(tensor) in self._values:
                return self._values[id(tensor)]
            return torch.full(tensor.shape, rms(tensor)) if tensor in self.parameters else tensor

        args, kwargs = pytree.tree_map_only(Tensor, value, (tuple(call.args), dict(call.kwargs)))
        return replace(call, args=args, kwargs=kwargs)

    def _set(self, tensor: Tensor, trail: Trail, made_by: TorchCall | None = None, place: int = 0) -> None:
        if id(tensor) not in self._trails:
            self._alive.append(tensor)
            self._views.setdefault(id(_base(tensor)), []).append(tensor)
        if made_by is not None or self._trails.get(id(tensor)) is not trail:
            self._values[id(tensor)] = Value(next(self._nodes), trail, tuple(tensor.shape), made_by, place)
        self._trails[id(tensor)] = trail


def _base(tensor: Tensor) -> Tensor:
    return tensor if tensor._base is None else tensor._base
