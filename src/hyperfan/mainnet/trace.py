"""One run of the mainnet under a TorchFunctionMode, to see which nonlinearity stands between which layers.

The mode sees modules, functional calls and tensor methods alike, because all three end in a torch function, and it
sees what really ran, so control flow in Python is no obstacle. What it does not understand it calls unknown.
"""

import itertools
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
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity, Role
from hyperfan.mainnet.trails import Trail


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
        self.followed_by: dict[str, Nonlinearity] = {}
        self.scale_assumed: set[str] = set()
        self.branch_ends: set[str] = set()
        self.residual_blocks = 0
        self._params = dict(parameters)
        self._alive: list[Any] = list(constants)  # an id is only an identity while its object lives
        self._constants = {id(t) for t in self._alive}
        self._trails: dict[int, Trail] = {}
        self._views: dict[int, list[Tensor]] = {}
        self._lookup_tables: set[str] = set()
        self._nodes = itertools.count()

    def start(self, inputs: Any) -> None:
        """Begin trails at the example's tensors."""
        for tensor in _tensors(inputs):
            self._set(tensor, Trail(next(self._nodes)))

    def finish(self, outputs: Any) -> None:
        """Record what follows the layers that make the output."""
        for tensor in _tensors(outputs):
            if id(tensor) in self._trails:
                self._record_following([self._trails[id(tensor)]])

    def pretend(self, name: str, *tensors: Tensor) -> Tensor:
        """Follow a torch function that is not run, and return a token for its output."""

        def function(*tensors: Tensor) -> Tensor:
            return torch.zeros(2)

        function.__name__ = name
        token: Tensor = self.__torch_function__(function, (), tensors)
        return token

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function, then follow what it did."""
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
        followed = self._follow(call, inputs, weights) if inputs else None
        result = func(*args, **call.kwargs)
        outputs = _tensors(result)
        if followed is not None and name not in op.SHAPE_ONLY:
            for tensor in outputs:
                self._set(tensor, followed.select(next(self._nodes)) if name in op.SELECTIONS else followed)
        elif not inputs or name in op.SHAPE_ONLY:
            self._record_constant(name, outputs, given, params)
        changed = [t for t in given if any(t is out for out in outputs)]
        in_place = full_name.endswith("_") or name in op.ELEMENTWISE
        if name == "setitem" or (changed and in_place and name not in op.UNCHANGED):
            self._overwrite(args[0], known=name != "setitem")
        return result

    def _follow(self, call: _Call, inputs: list[Trail], weights: list[str]) -> Trail:
        name, args, kwargs = call.name, call.args, call.kwargs
        first, node = inputs[0], next(self._nodes)
        if name in op.RECURRENT:
            return self._recurrent(name, weights, first)
        if name == "multi_head_attention_forward":
            return self._attention(weights, [self._trails.get(id(t), first) for t in args[:3]])
        if weights:
            return self._layer(name, weights, inputs)
        if name in op.NORMS:
            return self._norm(first)
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
            return self._elementwise(call, inputs)
        if name in op.MATRIX_PRODUCTS:
            return self._mixture(name, inputs)
        if name in op.UNCHANGED or name in op.SELECTIONS:
            return first
        if name in op.REARRANGEMENTS:
            return first.rearrange(node)
        if name in op.POOLS:
            return first.pool(node)
        return trails.unknown(node, inputs, name)

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
            self._record_reading(weights, inputs[0].nonlinearity(), inputs[0].scale_source)
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
            self._record_reading([weight], IDENTITY if out else read.nonlinearity(), None)
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
            self._record_reading([weight], read.nonlinearity() if first else IDENTITY, None)
            self.followed_by.setdefault(weight, Nonlinearity.named(inner))
        out = trails.layer_output(next(self._nodes), "", [read])
        out = replace(out, sources=frozenset(weights), has_source_scale=False)
        return out.apply(inner, _sample(torch.relu if inner == "relu" else torch.tanh, grid()))

    def _norm(self, read: Trail) -> Trail:
        if not read.is_identity:
            self._record_following([read])
        return read.normalise(next(self._nodes))

    def _mixture(self, name: str, inputs: list[Trail]) -> Trail:
        """A product of matrices, none of them a weight. Traced values mixed by traced weights have unit scale."""
        self._record_following(inputs)
        if len(inputs) > 1 or inputs[0].is_identity:
            return replace(trails.combine(next(self._nodes), inputs), sources=trails.add(-1, inputs).sources)
        return trails.unknown(next(self._nodes), inputs, name)

    def _elementwise(self, call: _Call, inputs: list[Trail]) -> Trail:
        name = call.name
        if len({t.node for t in inputs}) == 1:
            samples = self._resample_call(call) if all(t.samples is not None for t in inputs) else None
            names = tuple(dict.fromkeys(n for t in inputs for n in t.names))
            unnamed = name in op.ARITHMETIC and len(inputs) == 1
            return replace(inputs[0], names=names).apply("" if unnamed else name, samples)
        node = next(self._nodes)
        if name in op.ADDITIONS:
            branch = trails.residual_branch(inputs)
            if branch is not None and branch.sources:
                self.residual_blocks += 1
                self.branch_ends |= branch.sources
            self._record_following([trail for trail in inputs if not trail.is_identity])
            return trails.add(node, inputs)
        self._record_following(inputs)
        return trails.product(node, inputs, "gate") if name in op.PRODUCTS else trails.unknown(node, inputs, name)

    def _resample_call(self, call: _Call) -> Tensor | None:
        """Call the function on samples in place of traced tensors, and on numbers in place of constant ones."""
        values = [self._resample(a) for a in call.args]
        named = {k: False if k == "inplace" else self._resample(a) for k, a in call.kwargs.items() if k != "out"}
        vectors = [i for i, v in enumerate(values) if v is _VECTOR]
        if any(v is _VECTOR for v in named.values()):
            return None
        if vectors:
            # A bias or a scale of its own for each element: its mean effect is none.
            commutative = call.name in ("add", "iadd", "mul", "multiply", "imul")
            if call.name in op.ADDITIONS | op.PRODUCTS | op.QUOTIENTS and (commutative or 0 not in vectors):
                return next((v for v in values if isinstance(v, Tensor) and v.shape == grid().shape), None)
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

    def _record_reading(self, weights: list[str], nonlinearity: Nonlinearity, reads: str | None) -> None:
        """The first use of a weight counts; that of a tied embedding only until it is used as a layer."""
        for weight in weights:
            if weight not in self.consumes or weight in self._lookup_tables:
                self.consumes[weight], self.reads[weight] = nonlinearity, reads
                self._lookup_tables.discard(weight)

    def _record_following(self, trails: Iterable[Trail]) -> None:
        for trail in trails:
            new = trail.sources - self.followed_by.keys()
            if new:
                self.followed_by.update(dict.fromkeys(new, trail.nonlinearity()))

    def _record_constant(
        self, name: str, outputs: list[Tensor], given: list[Tensor], params: list[tuple[str, Role]]
    ) -> None:
        """A tensor computed from constants is constant, and one computed from one weight still is that weight."""
        seen = (self._constants, self._params, self._trails)
        known = name not in op.EXTERNAL_VALUES and all(any(id(t) in ids for ids in seen) for t in given)
        for tensor in outputs:
            self._alive.append(tensor)
            if len(set(params)) == 1:
                self._params[id(tensor)] = params[0]
            elif known:
                self._constants.add(id(tensor))

    def _overwrite(self, tensor: Tensor, known: bool) -> None:
        """Other views of a tensor that was written to hold something unknown now, and so does the tensor itself."""
        views = self._views.get(id(_base(tensor)), [])
        trail = Trail(next(self._nodes)).apply("overwritten", None)
        for other in [*views, _base(tensor)]:
            if other is not tensor or not known:
                self._set(other, trail)
        if not known:
            self._set(tensor, trail)

    def _set(self, tensor: Tensor, trail: Trail) -> None:
        if id(tensor) not in self._trails:
            self._alive.append(tensor)
            self._views.setdefault(id(_base(tensor)), []).append(tensor)
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


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
