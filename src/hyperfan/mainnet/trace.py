"""One run of the mainnet under a TorchFunctionMode: which nonlinearity stands between which layers.

The mode sees modules, functional calls and tensor methods alike, because all three end in a torch function, and it
sees what really ran, so control flow in Python is no obstacle. What it does not understand it calls unknown.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from hyperfan.mainnet import operations as op
from hyperfan.mainnet.curves import grid, prelu, rrelu
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity, Role
from hyperfan.mainnet.trails import Trail, branch_of, concatenated, joint, layer, product, total, unknown


class Tracer(TorchFunctionMode):
    """Follows every tensor of a run, and notes what each weight consumes and what follows it.

    Args:
        weights: id of each parameter → its name and role.
        constants: tensors that are neither inputs nor parameters, such as buffers.
    """

    def __init__(self, weights: Mapping[int, tuple[str, Role]], constants: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.consumes: dict[str, Nonlinearity] = {}
        self.reads: dict[str, str | None] = {}
        self.followed_by: dict[str, Nonlinearity] = {}
        self.assumed: set[str] = set()
        self.branch_ends: set[str] = set()
        self.residual_blocks = 0
        self._params = dict(weights)
        self._alive: list[Any] = list(constants)  # an id is only an identity while its object lives
        self._constants = {id(t) for t in self._alive}
        self._trails: dict[int, Trail] = {}
        self._families: dict[int, list[Tensor]] = {}
        self._looked_up: set[str] = set()
        self._nodes = itertools.count()

    def start(self, inputs: Any) -> None:
        """Begin trails at the example's tensors."""
        for tensor in _tensors(inputs):
            self._set(tensor, Trail(next(self._nodes)))

    def finish(self, outputs: Any) -> None:
        """Note what follows the layers that make the output."""
        for tensor in _tensors(outputs):
            if id(tensor) in self._trails:
                self._note_following(self._trails[id(tensor)])

    def layer(self, weights: list[str], token: Tensor) -> Tensor:
        """Note a layer that was not run, and return a tensor that stands for its output."""
        return self._stand_in(self._layer("", weights, [self._trails[id(token)]]))

    def norm(self, token: Tensor) -> Tensor:
        """The same for a norm."""
        return self._stand_in(self._norm(self._trails[id(token)]))

    def pool(self, token: Tensor) -> Tensor:
        """The same for a pool."""
        return self._stand_in(self._trails[id(token)].pool(next(self._nodes)))

    def _stand_in(self, trail: Trail) -> Tensor:
        token = torch.zeros(2)
        self._set(token, trail)
        return token

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function, then follow what it did."""
        kwargs = kwargs or {}
        full_name = getattr(func, "__name__", "")
        name = full_name.strip("_")
        given = _tensors((args, kwargs))
        inputs = [self._trails[id(t)] for t in given if id(t) in self._trails]
        params = [self._params[id(t)] for t in given if id(t) in self._params]
        weights = [n for n, role in params if role == "weight" or (role == "other" and name in op.MIXERS)]
        weights = [] if name in op.NOT_LAYERS else list(dict.fromkeys(weights))
        if weights and not inputs and len(given) > 1:
            inputs = [self._untraced(given)]
        # Followed before it runs: an in-place function writes over its input.
        followed = self._follow(func, name, args, kwargs, inputs, weights) if inputs else None
        result = func(*args, **kwargs)
        outputs = _tensors(result)
        if followed is not None and name not in op.MADE_ANEW:
            for tensor in outputs:
                self._set(tensor, followed.part(next(self._nodes)) if name in op.SPLITS else followed)
        elif not inputs or name in op.MADE_ANEW:
            self._note_constant(name, outputs, given, params)
        changed = [t for t in given if any(t is out for out in outputs)]
        in_place = full_name.endswith("_") or name in op.ELEMENTWISE
        if name == "setitem" or (changed and in_place and name not in op.UNCHANGED):
            self._overwrite(args[0], known=name != "setitem")
        return result

    def _follow(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: list[Trail],
        weights: list[str],
    ) -> Trail:
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
            return first.applied(name, _sample(prelu, first.samples, rms))
        if name == "rrelu":
            bounds = {k: v for k, v in kwargs.items() if k in ("lower", "upper")}
            return first.applied(name, _sample(rrelu, first.samples, *args[1:3], **bounds))
        if name == "glu":
            gate = first.applied("sigmoid", _sample(torch.sigmoid, first.samples)).part(next(self._nodes))
            return product(node, [first.part(next(self._nodes)), gate], "glu")
        if name == "detach":
            return replace(first, samples=None if first.samples is None else first.samples.detach())
        if name in op.CONCATENATIONS:
            sizes = [t.numel() for t in _tensors((args, kwargs)) if id(t) in self._trails]
            return concatenated(node, inputs, sizes)
        if name in op.ELEMENTWISE and (name not in ("max", "min") or len(_tensors((args, kwargs))) > 1):
            return self._elementwise(func, name, args, kwargs, inputs)
        if name in op.MIXERS:
            return self._mixture(name, inputs)
        if name in op.UNCHANGED:
            return first
        if name in op.MOVED:
            return first.moved(node)
        if name in op.SPLITS:
            return first
        if name in op.POOLED:
            return first.pool(node)
        return unknown(node, inputs, name)

    def _untraced(self, given: list[Tensor]) -> Trail:
        """What a layer reads that reads no traced tensor: a constant or a parameter, or something out of nowhere."""
        known = all(id(t) in self._constants or id(t) in self._params for t in given)
        trail = Trail(next(self._nodes))
        return trail if known else trail.applied("an untraced function", None)

    def _layer(self, name: str, weights: list[str], inputs: list[Trail]) -> Trail:
        for trail in inputs:
            self._note_following(trail)
        if name in op.LOOKUPS:
            self._note_read(weights, IDENTITY, None)
            self._looked_up.update(weights)
        elif name == "bilinear":
            self._note_read(weights, product(-1, inputs, name).nonlinearity(), None)
        else:
            self._note_read(weights, inputs[0].nonlinearity(), inputs[0].reads)
        if name not in op.LOOKUPS and any(trail.assumed for trail in inputs):
            self.assumed.update(weights)
        return layer(next(self._nodes), weights[-1], inputs)

    def _attention(self, weights: list[str], reads: list[Trail]) -> Trail:
        """Packed, its input projection reads query, key and value alike; its output projection a mixture of values."""
        for trail in reads:
            self._note_following(trail)
        mixed = concatenated(-1, reads, [1] * len(reads))
        for weight in weights:
            which = next((t for t, key in zip(reads, "qkv", strict=False) if f"{key}_proj_weight" in weight), mixed)
            out = weight.endswith("out_proj.weight")
            self._note_read([weight], IDENTITY if out else which.nonlinearity(), None)
            if not out:
                self.followed_by[weight] = IDENTITY
            if out or which.assumed:
                self.assumed.add(weight)
        last = next((w for w in weights if w.endswith("out_proj.weight")), weights[-1] if weights else "")
        return layer(next(self._nodes), last, reads)

    def _recurrent(self, name: str, weights: list[str], read: Trail) -> Trail:
        """The state that a recurrent layer puts out is a tanh (or ReLU), gates left aside."""
        self._note_following(read)
        inner = "relu" if "relu" in name else "tanh"
        for weight in weights:
            first = weight.rpartition(".")[2] in ("weight_ih", "weight_ih_l0", "weight_ih_l0_reverse")
            self._note_read([weight], read.nonlinearity() if first else IDENTITY, None)
            self.followed_by.setdefault(weight, Nonlinearity.named(inner))
        out = replace(layer(next(self._nodes), "", [read]), sources=frozenset(weights), scaled=False)
        return out.applied(inner, _sample(torch.relu if inner == "relu" else torch.tanh, grid()))

    def _norm(self, read: Trail) -> Trail:
        if not read.is_identity:
            self._note_following(read)
        return read.normed(next(self._nodes))

    def _mixture(self, name: str, inputs: list[Trail]) -> Trail:
        """A product of matrices, none of them a weight. Traced values mixed by traced weights have unit scale."""
        for trail in inputs:
            self._note_following(trail)
        fresh = joint(next(self._nodes), inputs)
        if len(inputs) > 1 or inputs[0].is_identity:
            return replace(fresh, sources=total(-1, inputs).sources)
        return unknown(next(self._nodes), inputs, name)

    def _elementwise(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: list[Trail],
    ) -> Trail:
        names = tuple(dict.fromkeys(n for t in inputs for n in t.names))
        shown = "" if name in op.ARITHMETIC and len(inputs) == 1 else name
        if len({t.node for t in inputs}) == 1:
            samples = None
            if all(t.samples is not None for t in inputs):
                samples = self._resampled(func, name, args, kwargs)
            return replace(inputs[0], names=names).applied(shown, samples)
        node = next(self._nodes)
        if name in op.ADDITIONS:
            branch = branch_of(inputs)
            if branch is not None and branch.sources:
                self.residual_blocks += 1
                self.branch_ends |= branch.sources
            for trail in inputs:
                if not trail.is_identity:
                    self._note_following(trail)
            return total(node, inputs)
        for trail in inputs:
            self._note_following(trail)
        if name in op.PRODUCTS:
            return product(node, inputs, "gate")
        return unknown(node, inputs, name)

    def _resampled(
        self, func: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Tensor | None:
        """The function on samples in place of traced tensors, and on numbers in place of constant ones."""
        values = [self._resample(a) for a in args]
        named = {k: False if k == "inplace" else self._resample(a) for k, a in kwargs.items() if k != "out"}
        vectors = [i for i, v in enumerate(values) if v is _VECTOR]
        if any(v is _VECTOR for v in named.values()):
            return None
        if vectors:
            # A bias or a scale of its own for each element: its mean effect is none.
            first_too = name in ("add", "iadd", "mul", "multiply", "imul")
            if name in op.ADDITIONS | op.PRODUCTS | op.QUOTIENTS and (first_too or 0 not in vectors):
                return next((v for v in values if isinstance(v, Tensor) and v.shape == grid().shape), None)
            return None
        return _sample(func, *values, **named)

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

    def _note_read(self, weights: list[str], nonlinearity: Nonlinearity, reads: str | None) -> None:
        """The first use of a weight counts; that of a tied embedding only until it is used as a layer."""
        for weight in weights:
            if weight not in self.consumes or weight in self._looked_up:
                self.consumes[weight], self.reads[weight] = nonlinearity, reads
                self._looked_up.discard(weight)

    def _note_following(self, trail: Trail) -> None:
        fresh = trail.sources - self.followed_by.keys()
        if fresh:
            self.followed_by.update(dict.fromkeys(fresh, trail.nonlinearity()))

    def _note_constant(
        self, name: str, outputs: list[Tensor], given: list[Tensor], params: list[tuple[str, Role]]
    ) -> None:
        """What was made of constants is one, and what was made of one weight is still that weight."""
        seen = (self._constants, self._params, self._trails)
        known = name not in op.FROM_OUTSIDE and all(any(id(t) in ids for ids in seen) for t in given)
        for tensor in outputs:
            self._alive.append(tensor)
            if len(set(params)) == 1:
                self._params[id(tensor)] = params[0]
            elif known:
                self._constants.add(id(tensor))

    def _overwrite(self, tensor: Tensor, known: bool) -> None:
        """Other views of a tensor that was written to hold something unknown now, and so does the tensor itself."""
        family = self._families.get(id(_base(tensor)), [])
        trail = Trail(next(self._nodes)).applied("overwritten", None)
        for other in [*family, _base(tensor)]:
            if other is not tensor or not known:
                self._set(other, trail)
        if not known:
            self._set(tensor, trail)

    def _set(self, tensor: Tensor, trail: Trail) -> None:
        if id(tensor) not in self._trails:
            self._alive.append(tensor)
            self._families.setdefault(id(_base(tensor)), []).append(tensor)
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
