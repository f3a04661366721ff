"""One run of the mainnet under a TorchFunctionMode: which nonlinearity stands between which layers.

The mode sees modules, functional calls and tensor methods alike, because all three end in a torch function, and it
sees what really ran, so control flow in Python is no obstacle.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from hyperfan.mainnet.curves import grid, prelu, rrelu
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity, Role
from hyperfan.mainnet.trails import Trail, joined, product, total

_NORMS = {
    "batch_norm",
    "layer_norm",
    "group_norm",
    "instance_norm",
    "rms_norm",
    "local_response_norm",
    "normalize",
}
_RECURRENT = {
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
}
_ELEMENTWISE = set(
    "relu relu6 leaky_relu elu selu celu gelu silu mish softplus tanh sigmoid logsigmoid softsign tanhshrink hardtanh "
    "hardsigmoid hardswish hardshrink softshrink threshold sin cos sinc erf exp expm1 log log1p sqrt rsqrt square abs "
    "arctan atan asinh sign neg negative reciprocal pow clamp clamp_min clamp_max clip nan_to_num sinh cosh where "
    "add sub mul div rsub true_divide divide multiply subtract maximum minimum log_sigmoid special_erf".split()
)
_KNOWN_FORM = {"prelu", "rrelu", "glu"}
_ADDITIONS = {"add", "sub", "rsub", "subtract"}
_PRODUCTS = {"mul", "multiply"}
_ARITHMETIC = _ADDITIONS | _PRODUCTS | {"div", "divide", "true_divide", "neg", "negative"}
_CONCATENATIONS = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
_MIXERS = {"matmul", "bmm", "mm", "einsum", "baddbmm", "scaled_dot_product_attention", "tensordot"}
_SPLITS = {
    "chunk",
    "split",
    "unbind",
    "tensor_split",
    "getitem",
    "select",
    "narrow",
    "index_select",
    "gather",
}
_TRANSPARENT = _SPLITS | set(
    "get view reshape flatten unflatten permute transpose movedim swapaxes t contiguous clone detach to type "
    "type_as float double half bfloat16 squeeze unsqueeze expand expand_as repeat repeat_interleave tile roll flip pad "
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout avg_pool1d avg_pool2d "
    "avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d lp_pool1d lp_pool2d boolean_dispatch fn "
    "interpolate upsample pixel_shuffle pixel_unshuffle channel_shuffle fold unfold grid_sample mean sum amax max "
    "requires_grad_ cpu cuda as_strided view_as reshape_as masked_fill tril triu diagonal copy_ cumsum".split()
)


_NOT_LAYERS = _NORMS | _ELEMENTWISE | _KNOWN_FORM | _CONCATENATIONS | _TRANSPARENT


class Tracer(TorchFunctionMode):
    """Follows every tensor of a run, and notes what each weight consumes and what follows it.

    Args:
        weights: id of each parameter → its name and role.
    """

    def __init__(self, weights: Mapping[int, tuple[str, Role]]) -> None:
        super().__init__()
        self.consumes: dict[str, Nonlinearity] = {}
        self.reads: dict[str, str | None] = {}
        self.followed_by: dict[str, Nonlinearity] = {}
        self.branch_ends: set[str] = set()
        self.residual_blocks = 0
        self._params = dict(weights)
        self._trails: dict[int, Trail] = {}
        self._alive: list[Any] = []  # an id is only an identity while its object lives
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

    def _stand_in(self, trail: Trail) -> Tensor:
        token = torch.zeros(2)
        self._set(token, trail)
        return token

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the function, then follow what it did."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        given = _tensors((args, kwargs))
        inputs = [self._trails[id(t)] for t in given if id(t) in self._trails]
        params = [self._params[id(t)] for t in given if id(t) in self._params]
        weights = [n for n, role in params if role == "weight" or (role == "other" and name in _MIXERS)]
        weights = [] if name in _NOT_LAYERS else weights
        if weights and not inputs and len(given) > 1:  # a layer that reads a constant or a parameter
            inputs = [Trail(next(self._nodes))]
        # Followed before it runs: an in-place function writes over its input.
        trail = self._follow(func, name, args, kwargs, inputs, weights) if inputs else None
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            if trail is not None:
                self._set(tensor, trail.fresh(next(self._nodes)) if name in _SPLITS else trail)
            elif len(params) == 1 and not inputs:
                self._params[id(tensor)] = params[0]  # a weight that was transposed, masked, … first
                self._alive.append(tensor)
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
        if name in _RECURRENT:
            return self._recurrent(name, weights, inputs[0])
        if weights:
            return self._layer(name, weights, inputs)
        if name in _NORMS:
            return self._norm(inputs[0])
        if name == "prelu":
            slope = args[1] if len(args) > 1 else kwargs["weight"]
            rms = 0.25 if slope.is_meta else slope.detach().double().square().mean().sqrt().item()
            return inputs[0].applied(name, _sample(prelu, inputs[0].samples, rms))
        if name == "rrelu":
            bounds = {k: v for k, v in kwargs.items() if k in ("lower", "upper")}
            return inputs[0].applied(name, _sample(rrelu, inputs[0].samples, *args[1:3], **bounds))
        if name == "glu":
            gate = inputs[0].applied("sigmoid", _sample(torch.sigmoid, inputs[0].samples))
            return product(next(self._nodes), [inputs[0], gate.fresh(next(self._nodes))], "glu")
        if name in _CONCATENATIONS:
            sizes = [t.numel() for t in _tensors((args, kwargs)) if id(t) in self._trails]
            return joined(next(self._nodes), inputs, sizes)
        if name in _ELEMENTWISE:
            return self._elementwise(func, name, args, kwargs, inputs)
        if name in _MIXERS:
            for trail in inputs:
                self._note_following(trail)
            return total(next(self._nodes), [t.reset(t.node) for t in inputs])
        if name in _TRANSPARENT:
            return inputs[0]
        return inputs[0].applied(name or "unknown", None)

    def _layer(self, name: str, weights: list[str], inputs: list[Trail]) -> Trail:
        """A call that applies weights. Attention holds several: its output projection reads a mixture of values."""
        for trail in inputs:
            self._note_following(trail)
        read = product(-1, inputs, name).nonlinearity() if name == "bilinear" else inputs[0].nonlinearity()
        for weight in weights:
            self.consumes.setdefault(weight, read)
            self.reads.setdefault(weight, inputs[0].reads if len(inputs) == 1 else None)
        last = next((w for w in weights if w.endswith("out_proj.weight")), weights[-1])
        if name == "multi_head_attention_forward":
            self.consumes[last] = IDENTITY
            self.reads[last] = None
            self.followed_by.update({w: IDENTITY for w in weights if w != last})
        node = next(self._nodes)
        return Trail(node, frozenset([last]), history=total(node, inputs).history)

    def _norm(self, read: Trail) -> Trail:
        if not read.is_identity:
            self._note_following(read)
        return read.reset(next(self._nodes))

    def _recurrent(self, name: str, weights: list[str], read: Trail) -> Trail:
        """A recurrent call. The state it puts out is a tanh (or ReLU), gates left aside."""
        self._note_following(read)
        inner = "relu" if "relu" in name else "tanh"
        for weight in weights:
            self.consumes.setdefault(weight, IDENTITY)
            self.followed_by.setdefault(weight, Nonlinearity.named(inner))
        history = read.history | {read.node}
        return Trail(next(self._nodes), frozenset(weights), history=history).applied(
            inner, _sample(torch.relu if inner == "relu" else torch.tanh, grid())
        )

    def _elementwise(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: list[Trail],
    ) -> Trail:
        if len({t.node for t in inputs}) == 1:
            if all(t.samples is not None for t in inputs):
                samples = _sample(func, *self._resampled(args), **self._resampled_kwargs(kwargs))
                names = dict.fromkeys(n for t in inputs for n in t.names)
                shown = "" if name in _ARITHMETIC and len(inputs) == 1 else name
                return replace(inputs[0], names=tuple(names)).applied(shown, samples)
            return inputs[0].applied(name, None)
        if name in _ADDITIONS:
            self._note_residual(inputs)
            for trail in inputs:
                if not trail.is_identity:
                    self._note_following(trail)
            return total(next(self._nodes), inputs)
        if name in _PRODUCTS:
            for trail in inputs:
                self._note_following(trail)
            return product(next(self._nodes), inputs, "gate")
        return inputs[0].applied(name, None)

    def _resampled(self, args: Sequence[Any]) -> list[Any]:
        return [self._resample(a) for a in args]

    def _resampled_kwargs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {k: False if k == "inplace" else self._resample(a) for k, a in kwargs.items()}

    def _resample(self, value: Any) -> Any:
        """A traced tensor becomes its samples; a parameter or constant tensor the neutral element is not known for."""
        if isinstance(value, Tensor):
            if id(value) in self._trails:
                samples = self._trails[id(value)].samples
                with torch.enable_grad():
                    return None if samples is None else samples.clone()  # some functions work in place
            return value.double() if value.numel() == 1 and value.device.type != "meta" else _Vector
        return value

    def _note_residual(self, inputs: list[Trail]) -> None:
        for shorter, longer in itertools.permutations(inputs, 2):
            if shorter.node in longer.history and longer.sources:
                self.residual_blocks += 1
                self.branch_ends |= longer.sources
                return

    def _note_following(self, trail: Trail) -> None:
        for source in trail.sources:
            self.followed_by.setdefault(source, trail.nonlinearity())

    def _set(self, tensor: Tensor, trail: Trail) -> None:
        self._trails[id(tensor)] = trail
        self._alive.append(tensor)


class _Vector:
    """Stands for a tensor of constants or parameters, which shifts or scales elements unequally."""


def _sample(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor | None:
    """The function on the samples; a vector of constants is passed over, as a bias or a scale is."""
    if any(a is _Vector for a in (*args, *kwargs.values())):
        kept = [a for a in args if isinstance(a, Tensor) and a.numel() > 1]
        return kept[0] if kept else None
    if any(a is None for a in args[:1]):
        return None
    with torch.inference_mode(False), torch.enable_grad():
        out = func(*args, **kwargs)
    return out if isinstance(out, Tensor) and out.shape == grid().shape else None


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
