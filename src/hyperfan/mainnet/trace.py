"""One run of the mainnet under a TorchFunctionMode, to see which nonlinearity stands between which layers.

The mode sees modules, functional calls and tensor methods alike, because all three end in a torch function, and it
sees what really ran, so control flow in Python is no obstacle. What it does not understand it calls unknown.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from hyperfan.mainnet import operations as op
from hyperfan.mainnet import trails
from hyperfan.mainnet.gains import grid, prelu, rrelu
from hyperfan.mainnet.norms import find_norm
from hyperfan.mainnet.replay import Recorded, Value
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity, Role
from hyperfan.mainnet.trails import Trail

TOKEN_SIZE = 8
"""Of a tensor that stands for values which are not there; enough to see whether a function is a norm."""


@dataclass(frozen=True)
class _Call:
    """One call of a torch function, with its name stripped of underscores."""

    func: Callable[..., Any]
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        return _tensors((self.args, self.kwargs))


class Tracer(TorchFunctionMode):
    """Follows every tensor of a run, and records what each weight consumes and what follows it.

    Args:
        parameters: id of each parameter → its name and role.
        constants: tensors that are neither inputs nor parameters, such as buffers.
    """

    def __init__(self, parameters: Mapping[int, tuple[str, Role]], constants: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.consumes: dict[str, Nonlinearity] = {}
        self.reads: dict[str, str | None] = {}
        self.sources: dict[str, frozenset[str]] = {}
        self.followed_by: dict[str, Nonlinearity] = {}
        self.norm_parameters: dict[str, tuple[Role, float]] = {}
        self.input_readers: set[str] = set()
        self.scale_assumed: set[str] = set()
        self.branch_ends: set[str] = set()
        self.residual_blocks = 0
        self._params = dict(parameters)
        self._unit_at = dict.fromkeys(parameters, 1.0)
        self._alive: list[Any] = list(constants)  # an id is only an identity while its object lives
        self._constants = {id(t) for t in self._alive}
        self._trails: dict[int, Trail] = {}
        self._values: dict[int, Value] = {}
        self._views: dict[int, list[Tensor]] = {}
        self._lookup_tables: set[str] = set()
        self._nodes = itertools.count()
        self._inside_norm = 0

    def start(self, inputs: Any) -> None:
        """Begin trails at the example's tensors."""
        for tensor in _tensors(inputs):
            self._set(tensor, Trail(next(self._nodes)))

    def finish(self, outputs: Any) -> None:
        """Record what follows the layers that make the output."""
        for tensor in _tensors(outputs):
            if id(tensor) in self._trails:
                self._record_following([self._trails[id(tensor)]])

    def enter_norm(self) -> None:
        """Do not look inside a module that is declared to be a norm."""
        self._inside_norm += 1

    def leave_norm(self, inputs: Any, outputs: Any, gains: Sequence[Tensor]) -> None:
        """Follow a module that is declared to be a norm, from the first tensor that it read to the first it made."""
        self._inside_norm -= 1
        read = next((self._trails[id(t)] for t in _tensors(inputs) if id(t) in self._trails), None)
        if read is not None and not self._inside_norm:
            for tensor in _tensors(outputs)[:1]:
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
        call = _Call(func, full_name.strip("_"), args, kwargs or {})
        name, given = call.name, call.tensors
        inputs = [self._trails[id(t)] for t in given if id(t) in self._trails]
        params = [self._params[id(t)] for t in given if id(t) in self._params]
        weights = [n for n, role in params if role == "weight" or (role == "other" and name in op.MATRIX_PRODUCTS)]
        weights = [] if name in op.NOT_LAYERS else list(dict.fromkeys(weights))
        if weights and not inputs and len(given) > 1:
            inputs = [self._untraced(given)]
        # Followed before it runs: an in-place function writes over its input.
        recorded = None if weights or not inputs else self._record(call)
        followed = self._follow(call, inputs, weights, recorded) if inputs else None
        result = func(*args, **call.kwargs)
        outputs = _tensors(result)
        if followed is not None and name not in op.SHAPE_ONLY:
            for place, tensor in enumerate(outputs):
                trail = followed.select(next(self._nodes)) if name in op.SELECTIONS else followed
                same = any(tensor is t for t in given) and not full_name.endswith("_")
                self._set(tensor, trail, None if same else recorded, place)
        elif not inputs or name in op.SHAPE_ONLY:
            self._record_constant(call, outputs, params)
        changed = [t for t in given if any(t is out for out in outputs)]
        in_place = full_name.endswith("_") or name in op.ELEMENTWISE
        if name == "setitem" or (changed and in_place and name not in op.UNCHANGED):
            self._overwrite(args[0], known=name != "setitem")
        return result

    def _follow(self, call: _Call, inputs: list[Trail], weights: list[str], recorded: Recorded | None) -> Trail:
        name, args, kwargs = call.name, call.args, call.kwargs
        first, node = inputs[0], next(self._nodes)
        if name in op.RECURRENT:
            return self._recurrent(name, weights, first)
        if name == "multi_head_attention_forward":
            return self._attention(weights, [self._trails.get(id(t), first) for t in args[:3]])
        if weights:
            return self._layer(name, weights, inputs)
        if name in op.NORMS:
            return self._norm(first, [t for t in call.tensors if self._params.get(id(t), ("", None))[1] == "scale"])
        if name == "prelu":
            slope = args[1] if len(args) > 1 else kwargs["weight"]
            rms = 0.25 if slope.is_meta else slope.detach().double().square().mean().sqrt().item()
            return first.apply(name, _sample(prelu, first.samples, rms))
        if name == "rrelu":
            bounds = {k: v for k, v in kwargs.items() if k in ("lower", "upper")}
            return first.apply(name, _sample(rrelu, first.samples, *args[1:3], **bounds))
        if name == "glu":
            gate = first.apply("sigmoid", _sample(torch.sigmoid, first.samples)).select(next(self._nodes))
            return trails.product(node, [first.select(next(self._nodes)), gate], "glu")
        if name == "detach":
            return replace(first, samples=None if first.samples is None else first.samples.detach())
        if name in op.CONCATENATIONS:
            return trails.concatenate(node, inputs, [t.numel() for t in call.tensors if id(t) in self._trails])
        if name in op.ELEMENTWISE and (name not in ("max", "min") or len(call.tensors) > 1):
            return self._elementwise(call, inputs, recorded)
        if name in op.MATRIX_PRODUCTS:
            return self._mixture(name, inputs)
        if name in op.UNCHANGED or name in op.SELECTIONS:
            return first
        if name in op.REARRANGEMENTS:
            return first.rearrange(node)
        if name in op.POOLS:
            return first.pool(node)
        return self._found_norm(recorded) or trails.unknown(node, inputs, name)

    def _untraced(self, given: list[Tensor]) -> Trail:
        """The input of a layer that reads no traced tensor: a constant, a parameter, or a tensor of unknown origin."""
        known = all(id(t) in self._constants or id(t) in self._params for t in given)
        trail = Trail(next(self._nodes))
        return trail if known else trail.apply("an untraced function", None)

    def _layer(self, name: str, weights: list[str], inputs: list[Trail]) -> Trail:
        self._record_following(inputs)
        if name in op.LOOKUPS:
            self._record_reading(weights, IDENTITY, None)
            self._lookup_tables.update(weights)
        elif name == "bilinear":
            self._record_reading(weights, trails.product(-1, inputs, name).nonlinearity(), None)
        else:
            self._record_reading(weights, inputs[0].nonlinearity(), inputs[0].scale_source, inputs[0].sources)
        if name not in op.LOOKUPS and all(trail.depth == 0 for trail in inputs):
            self.input_readers.update(weights)
        if name not in op.LOOKUPS and any(trail.scale_assumed for trail in inputs):
            self.scale_assumed.update(weights)
        return trails.layer_output(next(self._nodes), weights[-1], inputs)

    def _attention(self, weights: list[str], inputs: list[Trail]) -> Trail:
        """Packed, its input projection reads query, key and value alike; its output projection a mixture of values."""
        self._record_following(inputs)
        all_three = trails.concatenate(-1, inputs, [1] * len(inputs))
        for weight in weights:
            read = next((t for t, key in zip(inputs, "qkv", strict=False) if f"{key}_proj_weight" in weight), all_three)
            out = weight.endswith("out_proj.weight")
            self._record_reading([weight], IDENTITY if out else read.nonlinearity(), None, read.sources)
            if not out:
                self.followed_by[weight] = IDENTITY
            if out or read.scale_assumed:
                self.scale_assumed.add(weight)
        last = next((w for w in weights if w.endswith("out_proj.weight")), weights[-1] if weights else "")
        return trails.layer_output(next(self._nodes), last, inputs)

    def _recurrent(self, name: str, weights: list[str], read: Trail) -> Trail:
        """The state that a recurrent layer puts out is a tanh (or ReLU), gates left aside."""
        self._record_following([read])
        inner = "relu" if "relu" in name else "tanh"
        for weight in weights:
            first = weight.rpartition(".")[2] in ("weight_ih", "weight_ih_l0", "weight_ih_l0_reverse")
            self._record_reading([weight], read.nonlinearity() if first else IDENTITY, None, read.sources)
            self.followed_by.setdefault(weight, Nonlinearity.named(inner))
        out = trails.layer_output(next(self._nodes), "", [read])
        out = replace(out, sources=frozenset(weights), has_source_scale=False)
        return out.apply(inner, _sample(torch.relu if inner == "relu" else torch.tanh, grid()))

    def _norm(self, read: Trail, gains: Sequence[Tensor] = (), mean_square: float = 1.0) -> Trail:
        """The result of a norm, times its gains."""
        if not read.is_identity:
            self._record_following([read])
        for gain in gains:
            mean_square *= _rms(gain) ** 2
        return read.normalise(next(self._nodes), mean_square)

    def _found_norm(self, recorded: Recorded | None) -> Trail | None:
        """The result of a norm that is written out and ends with this call, if it is one."""
        found = None if recorded is None else find_norm(recorded)
        return None if found is None else self._norm(found[0].trail, (), found[1])

    def _mixture(self, name: str, inputs: list[Trail]) -> Trail:
        """A product of matrices, none of them a weight. Traced values mixed by traced weights have unit scale."""
        self._record_following(inputs)
        if len(inputs) > 1 or inputs[0].is_identity:
            return replace(trails.combine(next(self._nodes), inputs), sources=trails.add(-1, inputs).sources)
        return trails.unknown(next(self._nodes), inputs, name)

    def _elementwise(self, call: _Call, inputs: list[Trail], recorded: Recorded | None) -> Trail:
        name = call.name
        if len({t.node for t in inputs}) == 1:
            self._record_norm_parameter(call, inputs[0])
            samples = self._resample_call(call) if all(t.samples is not None for t in inputs) else None
            names = tuple(dict.fromkeys(n for t in inputs for n in t.names))
            unnamed = name in op.ARITHMETIC and len(inputs) == 1
            applied = replace(inputs[0], names=names).apply("" if unnamed else name, samples)
            return replace(applied, frequency=inputs[0].multiple) if name in op.PERIODIC else applied
        node = next(self._nodes)
        if name in op.ADDITIONS:
            branch = trails.residual_branch(inputs)
            if branch is not None and branch.sources:
                self.residual_blocks += 1
                self.branch_ends |= branch.sources
            self._record_following([trail for trail in inputs if not trail.is_identity])
            return trails.add(node, inputs)
        followed = trails.product(node, inputs, "gate") if name in op.PRODUCTS else trails.unknown(node, inputs, name)
        norm = self._found_norm(recorded) if followed.moments is None else None
        if norm is None:
            self._record_following(inputs)
        return norm or followed

    def _resample_call(self, call: _Call) -> Tensor | None:
        """Call the function on samples in place of traced tensors, and on numbers in place of constant ones."""
        values = [self._resample(a) for a in call.args]
        named = {k: False if k == "inplace" else self._resample(a) for k, a in call.kwargs.items() if k != "out"}
        vectors = [i for i, v in enumerate(values) if v is _VECTOR]
        if any(v is _VECTOR for v in named.values()):
            return None
        if vectors:
            # A bias of its own for each element has no mean effect; a gain that is a parameter counts by its rms.
            commutative = call.name in ("add", "iadd", "mul", "multiply", "imul")
            if call.name in op.ADDITIONS | op.PRODUCTS | op.QUOTIENTS and (commutative or 0 not in vectors):
                samples = next((v for v in values if isinstance(v, Tensor) and v.shape == grid().shape), None)
                gains = [_rms(call.args[i]) for i in vectors if id(call.args[i]) in self._params]
                return _sample(torch.mul, samples, math.prod(gains)) if call.name in op.PRODUCTS and gains else samples
            return None
        return _sample(call.func, *values, **named)

    def _resample(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in self._trails:
            samples = self._trails[id(value)].samples
            with torch.enable_grad():
                return None if samples is None else samples.clone()  # some functions work in place
        if value.is_meta or value.numel() == 0 or value.is_complex():
            return _VECTOR
        flat = value.detach().reshape(-1)
        return flat[0].to("cpu", torch.float64) if (flat == flat[0]).all() else _VECTOR

    def _record_norm_parameter(self, call: _Call, normed: Trail) -> None:
        """A parameter without a rule that multiplies what a norm put out is its gain, and starts where it is.

        If several values make a gain, it starts at 1. What the same module adds afterwards is the norm's shift.
        """
        for tensor in call.tensors if normed.normalised and set(normed.names) <= {"norm"} else ():
            name, role = self._params.get(id(tensor), ("", ""))
            unit = self._unit_at.get(id(tensor))
            if role != "other" or unit is None:
                continue
            if call.name in op.PRODUCTS:
                same = self._resample(tensor)
                start = unit if same is _VECTOR else same.item() - 1 + unit
                self.norm_parameters.setdefault(name, ("scale", start))
            elif call.name in op.ADDITIONS and any(_owner(name) == _owner(n) for n in self.norm_parameters):
                self.norm_parameters.setdefault(name, ("shift", 0.0))

    def _record_reading(
        self,
        weights: list[str],
        nonlinearity: Nonlinearity,
        reads: str | None,
        sources: frozenset[str] = frozenset(),
    ) -> None:
        """The first use of a weight counts; that of a tied embedding only until it is used as a layer."""
        for weight in weights:
            if weight not in self.consumes or weight in self._lookup_tables:
                self.consumes[weight], self.reads[weight], self.sources[weight] = nonlinearity, reads, sources
                self._lookup_tables.discard(weight)

    def _record_following(self, trails: Iterable[Trail]) -> None:
        for trail in trails:
            new = trail.sources - self.followed_by.keys()
            if new:
                self.followed_by.update(dict.fromkeys(new, trail.nonlinearity()))

    def _record_constant(self, call: _Call, outputs: list[Tensor], params: list[tuple[str, Role]]) -> None:
        """A tensor computed from constants is constant, and one computed from one weight still is that weight."""
        name, given = call.name, call.tensors
        seen = (self._constants, self._params, self._trails)
        known = name not in op.EXTERNAL_VALUES and all(any(id(t) in ids for ids in seen) for t in given)
        for tensor in outputs:
            self._alive.append(tensor)
            if len(set(params)) == 1:
                self._params[id(tensor)] = params[0]
                self._record_offset(call, tensor)
            elif known:
                self._constants.add(id(tensor))

    def _record_offset(self, call: _Call, made: Tensor) -> None:
        """Where a parameter is if what was made of it is 1: at 1 if only its type was changed, at 0 in 1 + w."""
        numbers = [a for a in call.args if isinstance(a, int | float)]
        before = next((self._unit_at[id(t)] for t in call.tensors if id(t) in self._unit_at), None)
        if before is not None and call.name in op.UNCHANGED:
            self._unit_at[id(made)] = before
        elif before is not None and call.name == "add" and len(call.args) == 2 and numbers and not call.kwargs:
            self._unit_at[id(made)] = before - numbers[0]

    def _overwrite(self, tensor: Tensor, known: bool) -> None:
        """Other views of a tensor that was written to hold something unknown now, and so does the tensor itself."""
        views = self._views.get(id(_base(tensor)), [])
        trail = Trail(next(self._nodes)).apply("overwritten", None)
        for other in [*views, _base(tensor)]:
            if other is not tensor or not known:
                self._set(other, trail)
        if not known:
            self._set(tensor, trail)

    def _record(self, call: _Call) -> Recorded:
        """The call, with values in place of traced tensors, and with parameters that have one value everywhere."""

        def value(tensor: Tensor) -> Any:
            if id(tensor) in self._values:
                return self._values[id(tensor)]
            known = id(tensor) in self._params
            return torch.full(tensor.shape, _rms(tensor), dtype=torch.float64) if known else tensor

        args, kwargs = pytree.tree_map_only(Tensor, value, (tuple(call.args), dict(call.kwargs)))
        return Recorded(call.func, args, kwargs)

    def _set(self, tensor: Tensor, trail: Trail, made_by: Recorded | None = None, place: int = 0) -> None:
        if id(tensor) not in self._trails:
            self._alive.append(tensor)
            self._views.setdefault(id(_base(tensor)), []).append(tensor)
        if made_by is not None or self._trails.get(id(tensor)) is not trail:
            self._values[id(tensor)] = Value(next(self._nodes), trail, tuple(tensor.shape), made_by, place)
        self._trails[id(tensor)] = trail


_VECTOR = object()
"""Stands for a tensor of constants or parameters that differ from element to element."""


def _base(tensor: Tensor) -> Tensor:
    return tensor if tensor._base is None else tensor._base


def _sample(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor | None:
    if any(a is None for a in args[:1]):
        return None
    with torch.inference_mode(False), torch.enable_grad():
        out = func(*args, **kwargs)
    return out if isinstance(out, Tensor) and out.shape == grid().shape else None


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _rms(gain: Tensor) -> float:
    """The root mean square of a gain; of one that is zero or has no values, what it will become."""
    return 1.0 if gain.is_meta else gain.detach().double().square().mean().sqrt().item() or 1.0


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
