"""Rules of layers, whose weights may be each sample's own, of attention and of losses."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.errors import CallError
from hyperfan.generators.stand_in import StandIn
from hyperfan.hypernet.batched.mode import LAZY_RULES, Samples, named, refuse, rule
from hyperfan.hypernet.batched.pointwise import align, pointwise

CONVOLUTIONS = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}
TRANSPOSED = {F.conv_transpose1d: 1, F.conv_transpose2d: 2, F.conv_transpose3d: 3}
POOLS = {
    f"{kind}_pool{d}d": d for kind in ("max", "avg", "adaptive_max", "adaptive_avg", "lp") for d in (1, 2, 3)
}  # fmt: skip


@rule(F.linear)
def linear(s: Samples, func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Run a linear layer for all samples: a batched product, or one call where all have the same weights."""
    x = input
    if not s.has(weight):
        if s.has(bias):
            return pointwise(s, torch.add, linear(s, func, x, weight), bias)
        made = func(x, weight, bias)
        return s.mark(made) if s.has(x) else made
    n, outputs, inputs = weight.shape
    if not s.has(x):
        return s.mark(_shared_input(s, x, weight, bias))
    flat = x.ndim != 3
    rows = x.reshape(n, -1, inputs) if flat else x
    if bias is None:
        made = torch.bmm(rows, weight.mT)
    else:
        made = torch.baddbmm(bias.unsqueeze(1) if s.has(bias) else bias, rows, weight.mT)
    return s.mark(made.view(*x.shape[:-1], outputs) if flat else made)


@rule(F.linear, rules=LAZY_RULES)
def lazy_linear(s: Samples, func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Run a linear layer from the codes, where that is cheaper."""
    if isinstance(input, StandIn) or not isinstance(weight, StandIn) or weight.ndim != 2:
        return None
    x = s.batched(input)
    made = weight.linear(x.reshape(s.n, -1, x.shape[-1]), None)
    if made is NotImplemented:
        return None
    return _plus(s, s.mark(made.view(*x.shape[:-1], made.shape[-1])), s.weights(bias))


def _plus(s: Samples, x: Tensor, bias: Tensor | None) -> Any:
    if bias is None:
        return x
    if bias.dtype != x.dtype:  # as a layer does under autocast
        bias = s.mark(bias.to(x.dtype)) if s.has(bias) else bias.to(x.dtype)
    return pointwise(s, torch.add, x, bias)


def _shared_input(s: Samples, x: Tensor, weight: Tensor, bias: Any) -> Tensor:
    """Multiply the rows, which are the same for all samples, with all their weights at once."""
    n, outputs, inputs = weight.shape
    each = F.linear(weight.reshape(-1, inputs), x.reshape(-1, inputs)).view(n, outputs, -1).mT
    each = each if bias is None else each + (bias.unsqueeze(1) if s.has(bias) else bias)
    return each.reshape(n, *x.shape[:-1], outputs)


def _convolve(s: Samples, func: Any, nd: int, x: Any, weight: Any, bias: Any, settings: dict[str, Any]) -> Any:
    """Run a convolution for all samples, as one with a group, or as many as one sample's has, for each of them."""
    if not s.any((x, weight, bias)):
        return func(x, weight, bias, **settings)
    if s.ndim(x) != nd + 2:
        refuse(func)
    if not s.has(weight):
        made = fold(s, lambda x: func(x, weight, None if s.has(bias) else bias, **settings), s.batched(x))
    else:
        x, groups = s.batched(x), settings.pop("groups", 1)
        rows = x.transpose(0, 1).flatten(1, 2)
        made = func(rows, weight.flatten(0, 1), None, groups=groups * s.n, **settings)
        made = made.unflatten(1, (s.n, -1)).transpose(0, 1)
    per_sample = s.has(bias) or s.has(weight)
    return _per_channel(s, torch.add, s.mark(made), bias if per_sample else None, nd)


def _per_channel(s: Samples, function: Any, x: Tensor, p: Tensor | None, nd: int) -> Any:
    """A function of each value and what belongs to its channel, which has so many dimensions behind it."""
    if p is None:
        return x
    spread = p.view(*p.shape, *(1,) * nd)
    return pointwise(s, function, x, s.mark(spread) if s.has(p) else spread)


@rule(*CONVOLUTIONS)
def convolution(s: Samples, func: Any, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                dilation: Any = 1, groups: int = 1) -> Any:  # fmt: skip
    """Run a convolution for all samples."""
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _convolve(s, func, CONVOLUTIONS[func], input, weight, bias, settings)


@rule(*CONVOLUTIONS, rules=LAZY_RULES)
def lazy_convolution(s: Samples, func: Any, input: Any, weight: Any, bias: Any = None, stride: Any = 1,
                     padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:  # fmt: skip
    """Run a convolution from the codes, where that is cheaper."""
    nd = CONVOLUTIONS[func]
    if isinstance(input, StandIn) or not isinstance(weight, StandIn) or groups != 1 or s.ndim(input) != nd + 2:
        return None
    made = weight.convolution(func, s.batched(input).flatten(0, 1), None, (stride, padding, dilation))
    if made is NotImplemented:
        return None
    return _per_channel(s, torch.add, s.mark(made.unflatten(0, (s.n, -1))), s.weights(bias), nd)


@rule(*TRANSPOSED)
def transposed_convolution(s: Samples, func: Any, input: Any, weight: Any, bias: Any = None, stride: Any = 1,
                           padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                           dilation: Any = 1) -> Any:  # fmt: skip
    """Run a transposed convolution for all samples."""
    settings = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
    return _convolve(s, func, TRANSPOSED[func], input, weight, bias, {**settings, "groups": groups})


def fold(s: Samples, run: Callable[[Tensor], Any], x: Tensor) -> Any:
    """Run a function that treats each row alone on all samples' rows, one behind the other."""
    made = run(x.flatten(0, 1))
    split = (s.n, x.shape[1])
    back = [m.view(*split, *m.shape[1:]) for m in ([made] if isinstance(made, Tensor) else made)]
    return back[0] if isinstance(made, Tensor) else back


@rule(*named(" ".join(POOLS), F, torch, torch._C._nn), *named("interpolate upsample unfold pixel_shuffle", F),
      F.dropout1d, F.dropout2d, F.dropout3d)  # fmt: skip
def on_rows(s: Samples, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a function of (rows, channels, …) that treats each row alone."""
    if not s.any((x, *args, *kwargs.values())):
        return refuse(func) if func in (F.dropout1d, F.dropout2d, F.dropout3d) else func(x, *args, **kwargs)
    nd = POOLS.get(getattr(func, "__name__", ""), 1) + 2
    if s.any((*args, *kwargs.values())) or s.ndim(x) < nd:
        refuse(func)
    return s.mark(fold(s, lambda x: func(x, *args, **kwargs), x))


@rule(F.pad, torch._C._nn.pad)
def pad(s: Samples, func: Any, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Pad the last dimensions; where not by a constant, torch wants rows and channels before them."""
    if not s.has(x):
        return func(x, pad, mode, value)
    if len(pad) // 2 > x.ndim - 1:
        refuse(func)
    if mode == "constant":
        return s.mark(func(x, pad, mode, value))
    return s.mark(fold(s, lambda x: func(x, pad, mode, value), x)) if x.ndim - 1 == len(pad) // 2 + 2 else refuse(func)


# ── norms ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@rule(F.layer_norm, F.rms_norm)
def layer_norm(
    s: Samples, func: Any, x: Any, normalized_shape: Any, weight: Any = None, *rest: Any, **kwargs: Any
) -> Any:
    """Normalise over the last dimensions of each sample."""
    bias = kwargs.pop("bias", None)
    if func == F.layer_norm and rest:
        bias, rest = rest[0], rest[1:]
    args = {} if func == F.rms_norm else {"bias": bias}
    eps = rest[0] if rest else kwargs.pop("eps", 1e-5 if func == F.layer_norm else None)
    if not s.any((weight, bias)):
        made = func(x, normalized_shape, weight, **args, eps=eps)
        return s.mark(made) if s.has(x) else made
    made = s.mark(func(s.batched(x), normalized_shape, None, eps=eps))
    for function, p in ((torch.mul, weight), (torch.add, bias)):
        made = made if p is None else pointwise(s, function, made, p)
    return made


def _channel_norm(s: Samples, run: Callable[[Tensor, Any, Any], Tensor], x: Any, weight: Any, bias: Any) -> Any:
    if not s.any((x, weight, bias)):
        return run(x, weight, bias)
    x = s.batched(x)
    per_sample = s.any((weight, bias))
    made = s.mark(fold(s, lambda x: run(x, *((None, None) if per_sample else (weight, bias))), x))
    for function, p in ((torch.mul, weight), (torch.add, bias)) if per_sample else ():
        made = _per_channel(s, function, made, p, x.ndim - 3)
    return made


@rule(F.group_norm)
def group_norm(s: Samples, func: Any, input: Any, num_groups: int, weight: Any = None, bias: Any = None,
               eps: float = 1e-5) -> Any:  # fmt: skip
    """Normalise the groups of each row."""
    return _channel_norm(s, lambda x, w, b: func(x, num_groups, w, b, eps), input, weight, bias)


@rule(F.batch_norm)
def batch_norm(s: Samples, func: Any, input: Any, running_mean: Any, running_var: Any, weight: Any = None,
               bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Any:  # fmt: skip
    """Normalise each row by running statistics, in evaluation mode."""
    if training or s.any((running_mean, running_var)):
        refuse(func)

    def run(x: Any, w: Any, b: Any) -> Any:
        return func(x, running_mean, running_var, w, b, False, momentum, eps)

    return _channel_norm(s, run, input, weight, bias)


# ── look-ups and products ──────────────────────────────────────────────────────────────────────────────────────────


@rule(F.embedding)
def embedding(s: Samples, func: Any, input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:  # fmt: skip
    """Look up rows in the tables of all samples, one behind the other."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        refuse(func)
    if not s.has(weight):
        made = func(input, weight, padding_idx)
        return s.mark(made) if s.has(input) else made
    if padding_idx is not None:
        refuse(func)
    rows = weight.shape[1]
    first = torch.arange(0, s.n * rows, rows, device=input.device)
    index = s.batched(input)
    shifted = index + first.view(-1, *(1,) * (index.ndim - 1))
    inside = (index >= 0) & (index < rows)  # others would find a row of another sample's
    try:
        return s.mark(func(shifted.where(inside, s.n * rows), weight.flatten(0, 1)))
    except IndexError as error:
        raise CallError(f"an index of an embedding is not among the {rows} rows of its table") from error


@rule(*named("matmul __matmul__ bmm mm", Tensor, torch))
def matmul(s: Samples, func: Any, a: Any, b: Any) -> Any:
    """Multiply matrices, or batches of them, for all samples."""
    if not s.any((a, b)):
        return func(a, b)
    nd = max(s.ndim(a), s.ndim(b))
    if min(s.ndim(a), s.ndim(b)) < 2:
        refuse(func)
    a, b = (align(x, nd) if s.has(x) else x for x in (a, b))
    return s.mark(torch.matmul(a, b))


@rule(*named("addmm baddbmm", Tensor, torch))
def add_matmul(s: Samples, func: Any, added: Any, a: Any, b: Any, **factors: Any) -> Any:
    """Add a product of matrices, as layers with transposed weights do."""
    if not s.any((added, a, b)):
        return func(added, a, b, **factors)
    return refuse(func) if factors else pointwise(s, torch.add, matmul(s, torch.matmul, a, b), added)


@rule(Tensor.__rmatmul__)
def rmatmul(s: Samples, func: Any, a: Any, b: Any) -> Any:
    """Multiply matrices in reverse order, as ``b @ a`` does where b has no product of its own."""
    return matmul(s, torch.matmul, b, a)


@rule(torch.einsum)
def einsum(s: Samples, func: Any, equation: str, *operands: Any) -> Any:
    """Run einsum with one more index, of the samples."""
    tensors = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    if not s.any(tensors):
        return func(equation, *tensors)
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    free = [c for c in "zyxwvutsrqponmlkjihgfedcba" if c not in equation]
    terms = inputs.split(",")
    if not arrow or "." in equation or not free or len(terms) != len(tensors):
        refuse(func)
    marked = [free[0] * s.has(x) + term for term, x in zip(terms, tensors, strict=True)]
    return s.mark(func(f"{','.join(marked)}->{free[0]}{output}", *tensors))


# ── attention and losses ───────────────────────────────────────────────────────────────────────────────────────────


@rule(F.scaled_dot_product_attention)
def scaled_dot_product_attention(s: Samples, func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any) -> Any:  # fmt: skip
    """Run attention on all samples' batches, one behind the other."""
    qkv = (query, key, value)
    if not s.any((*qkv, attn_mask)):
        return refuse(func) if dropout_p else func(*qkv, attn_mask, dropout_p, is_causal, **kwargs)
    nd = s.ndim(query)
    if any(s.ndim(x) != nd for x in qkv) or nd < 3 or len({s.shape(x)[0] for x in qkv}) > 1:
        refuse(func)
    mask = attn_mask
    if mask is not None and (s.has(mask) or (mask.ndim == nd and len(mask) > 1)):
        if s.ndim(mask) != nd or s.shape(mask)[0] != s.shape(query)[0]:
            refuse(func)
        mask = s.batched(mask).flatten(0, 1)
    made = func(*(s.batched(x).flatten(0, 1) for x in qkv), mask, dropout_p, is_causal, **kwargs)
    return s.mark(made.view(s.n, len(made) // s.n, *made.shape[1:]))


@rule(F.cross_entropy)
def cross_entropy(s: Samples, func: Any, input: Any, target: Any, weight: Any = None, size_average: Any = None,
                  ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Any:  # fmt: skip
    """Compute the loss of (rows, classes) logits and (rows,) classes in each sample."""
    if not s.any((input, target, weight)):
        return func(input, target, weight, None, ignore_index, None, reduction, label_smoothing)
    plain = weight is None and size_average is None and reduce is None and not label_smoothing
    if not plain or s.ndim(input) != 2 or s.ndim(target) != 1:
        refuse(func)
    input, target = s.batched(input), s.batched(target)
    each = func(input.flatten(0, 1), target.flatten(), ignore_index=ignore_index, reduction="none").view(target.shape)
    if reduction == "none":
        return s.mark(each)
    return s.mark(each.sum(1) if reduction == "sum" else each.sum(1) / (target != ignore_index).sum(1))
