"""Rules of functions of each element alone, and of what a tensor says of itself."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.hypernet.batched.mode import Samples, getters, named, refuse, rule
from hyperfan.mainnet.operations import ACTIVATIONS

POINTWISE = (
    "abs absolute neg negative positive exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan "
    "asin acos atan arctan sinh cosh tanh asinh acosh atanh sigmoid logit relu erf erfc erfinv sign sgn floor ceil "
    "round trunc frac clamp clamp_min clamp_max clip add sub mul div true_divide divide multiply subtract "
    "floor_divide remainder fmod pow float_power maximum minimum fmax fmin atan2 hypot lerp addcmul addcdiv eq ne lt "
    "le gt ge greater less isnan isinf isfinite logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
    "bitwise_not sinc nan_to_num rsub rad2deg deg2rad logaddexp clone masked_fill selu celu zeros_like ones_like "
    "full_like empty_like contiguous"
)
DUNDERS = (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __div__ __rdiv__ __floordiv__ "
    "__rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __neg__ __pos__ __abs__ __invert__ __and__ __or__ __xor__ "
    "__rand__ __ror__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__"
)
IN_PLACE = (
    "add_ sub_ mul_ div_ pow_ clamp_ clamp_min_ clamp_max_ exp_ sqrt_ rsqrt_ square_ neg_ abs_ sin_ cos_ tanh_ "
    "sigmoid_ relu_ masked_fill_ fill_ zero_ copy_ lerp_ addcmul_ addcdiv_ reciprocal_ log_ erf_ floor_ round_ "
    "nan_to_num_ __iadd__ __isub__ __imul__ __itruediv__ __idiv__ __ipow__"
)
IN_PLACE_ACTIVATIONS = "relu_ elu_ selu_ celu_ leaky_relu_ hardtanh_ threshold_"
RANDOM = "rand_like randn_like bernoulli"
SAME_VALUES = "to float double half bfloat16 long int bool type type_as cpu cuda detach"
PROPERTIES = "dtype device layout is_cuda is_cpu is_meta is_sparse is_quantized is_nested requires_grad itemsize"
QUERIES = "is_floating_point is_complex element_size is_signed is_contiguous get_device is_inference"
NEW_TENSORS = "new_zeros new_ones new_full new_empty new_tensor"
NUMBERS = (int, float)
NOT_IN_PLACE = {"inplace": False}
FACTORIES = (
    "zeros ones full empty arange linspace logspace eye tensor as_tensor scalar_tensor tril_indices triu_indices"
)


@rule(
    *named(POINTWISE, torch, Tensor), *named(DUNDERS, Tensor),
    *named(" ".join(ACTIVATIONS), F, torch._C._nn),
)  # fmt: skip
def pointwise(s: Samples, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a pointwise function of operands whose dimensions are aligned from the last one on."""
    if not kwargs or kwargs == NOT_IN_PLACE:  # as mostly: to look at all operands takes longer
        if len(args) == 1 or (len(args) == 2 and type(args[1]) in NUMBERS):
            made = func(*args, **kwargs)
            return s.mark(made) if s.has(args[0]) else made
        if len(args) == 2 and _are_aligned(s, *args):
            return s.mark(func(*args, **kwargs))
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    ours = [x for x in tensors if s.has(x)]
    if kwargs.get("inplace"):
        return in_place(s, func, *args, **kwargs)
    if not ours:
        return func(*args, **kwargs)
    nd = max(map(s.ndim, tensors))
    if len(tensors) > 1:
        _check_promotion(s, func, ours, tensors)
    if any(x.ndim - 1 < nd for x in ours):
        args = tuple(_aligned(s, x, nd) for x in args)
        kwargs = {name: _aligned(s, x, nd) for name, x in kwargs.items()}
    return s.mark(func(*args, **kwargs))


def _are_aligned(s: Samples, a: Any, b: Any) -> bool:
    """Whether two operands fit as they are stored: with as many dimensions, or the one that all share with fewer."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    if s.has(a):
        return a.ndim > 1 and (a.ndim == b.ndim if s.has(b) else a.ndim > b.ndim)
    return s.has(b) and b.ndim > 1 and b.ndim > a.ndim


def _check_promotion(s: Samples, func: Any, ours: list[Tensor], tensors: list[Tensor]) -> None:
    """A number of each sample's has dimensions when stored, and would count for more in the dtype of the result."""
    if any(s.ndim(x) == 0 for x in ours) and len({x.dtype for x in tensors}) > 1:
        refuse(func)


def _aligned(s: Samples, x: Any, nd: int) -> Any:
    return align(x, nd) if s.has(x) else x


def align(x: Tensor, nd: int) -> Tensor:
    """A stored tensor with dimensions of size 1 behind that of the samples, so that one sample's has nd."""
    missing = nd - (x.ndim - 1)
    return x.view(len(x), *(1,) * missing, *x.shape[1:]) if missing else x


@rule(*named(IN_PLACE, Tensor, torch), *named(IN_PLACE_ACTIVATIONS, F, torch, torch._C._nn))
def in_place(s: Samples, func: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """Change a tensor in place that differs between samples and has all their dimensions, or that the run has made."""
    others = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    if not s.any((target, *others)) and not s.is_held(target):
        return func(target, *args, **kwargs)
    if not s.has(target) or any(s.ndim(x) > s.ndim(target) for x in others):
        refuse(func)
    nd = s.ndim(target)
    result = func(target, *(_aligned(s, x, nd) for x in args), **{k: _aligned(s, x, nd) for k, x in kwargs.items()})
    return s.mark(result)


@rule(Tensor.requires_grad_)
def requires_grad(s: Samples, func: Any, x: Any, *args: Any) -> Any:
    """Ask for a gradient of what the run has made, as of the first layer's outputs."""
    return refuse(func) if not s.has(x) and s.is_held(x) else func(x, *args)


@rule(*named("where", torch, Tensor))
def where(s: Samples, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Choose between two operands; with one argument ``where`` would return positions."""
    return pointwise(s, func, *args, **kwargs) if len(args) == 3 and not kwargs else refuse(func)


@rule(*named(RANDOM, torch, Tensor))
def random(s: Samples, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Draw for every element, for each sample where the tensor differs between samples."""
    return s.mark(func(x, *args, **kwargs)) if s.has(x) and not s.any(args) else refuse(func)


@rule(F.dropout, F.alpha_dropout)
def dropout(s: Samples, func: Any, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Drop values, with a mask for each sample."""
    return random(s, func, x, p, training, inplace) if training else same_values(s, func, x, p, training, inplace)


@rule(*named(SAME_VALUES, Tensor), torch.detach)
def same_values(s: Samples, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the same values in another form, which the other arguments name."""
    made = func(x, *args, **kwargs)
    return s.mark(made) if s.has(x) else made


@rule(*getters(PROPERTIES), *named(QUERIES, Tensor, torch), *named(NEW_TENSORS, Tensor))
def metadata(s: Samples, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what depends on no value of the tensor."""
    return func(x, *args, **kwargs) if not s.any((*args, *kwargs.values())) else refuse(func)


@rule(*named(FACTORIES, torch), torch._C._set_grad_enabled)
def factory(s: Samples, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a function that takes no tensor of a sample."""
    return func(*args, **kwargs) if not s.any((*args, *kwargs.values())) else refuse(func)


@rule(*getters("shape"))
def shape(s: Samples, func: Any, x: Tensor) -> torch.Size:
    """Return the shape of one sample's tensor."""
    return s.shape(x)


@rule(Tensor.size)
def size(s: Samples, func: Any, x: Tensor, dim: int | None = None) -> Any:
    """Return the shape of one sample's tensor, or one of its sizes."""
    return s.shape(x) if dim is None else s.shape(x)[dim]


@rule(*getters("ndim"), Tensor.dim, Tensor.ndimension)
def ndim(s: Samples, func: Any, x: Tensor) -> int:
    """Return the number of dimensions of one sample's tensor."""
    return s.ndim(x)


@rule(Tensor.numel, Tensor.nelement, torch.numel)
def numel(s: Samples, func: Any, x: Tensor) -> int:
    """Return the number of values of one sample's tensor."""
    return s.shape(x).numel()


@rule(Tensor.__len__)
def length(s: Samples, func: Any, x: Tensor) -> int:
    """Return the first size of one sample's tensor."""
    return s.shape(x)[0] if s.ndim(x) else refuse(func)
