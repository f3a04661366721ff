"""Rules of sums, means and other functions along dimensions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.hypernet.batched.mode import Samples, named, refuse, rule
from hyperfan.hypernet.batched.pointwise import pointwise

ALL = "sum mean amax amin nansum"
"""Functions that reduce all dimensions if none is given."""
ALONG = "softmax log_softmax logsumexp cumsum cumprod prod argmax argmin sort argsort max min median glu all any"
"""Functions along one dimension, which is their second argument; without it they are not known."""


_TRUTH = named("all any", Tensor, torch)


@rule(*named(ALL, Tensor, torch))
def reduce(s: Samples, func: Any, x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """Reduce along dimensions of one sample, or all."""
    if not s.has(x):
        return func(x, **({} if dim is None else {"dim": dim, "keepdim": keepdim}), **kwargs)
    dims = tuple(range(1, x.ndim)) if dim is None or dim == () else s.dim(x, dim)
    if dims == ():
        refuse(func)  # a number already; torch would sum over the samples
    return s.mark(func(x, dim=dims, keepdim=keepdim, **kwargs))


@rule(*named("std var", Tensor, torch))
def std_or_var(s: Samples, func: Any, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Reduce by std or var; a bool in second place would be another argument."""
    if isinstance(dim, bool) or args or not s.has(x) or x.ndim == 1:
        return refuse(func) if s.has(x) else func(x, *(() if dim is None else (dim,)), *args, **kwargs)
    return s.mark(func(x, dim=tuple(range(1, x.ndim)) if dim is None else s.dim(x, dim), **kwargs))


@rule(*named(ALONG, Tensor, torch, F))
def along(s: Samples, func: Any, x: Any, *args: Any, dim: Any = None, **kwargs: Any) -> Any:
    """Run a function along a dimension of one sample; of two tensors, max and min are pointwise."""
    if args and isinstance(args[0], Tensor):
        return pointwise(s, func, x, *args)
    if "other" in kwargs:
        return pointwise(s, func, x, **kwargs)
    if not s.has(x):
        return func(x, *args, **kwargs) if dim is None else func(x, *args, dim=dim, **kwargs)
    if dim is None and args:
        dim, args = args[0], args[1:]
    if dim is None and func in _TRUTH:
        return s.mark(func(x.reshape(s.n, -1), -1))
    if dim is None:
        dim = {F.glu: -1, Tensor.sort: -1, torch.sort: -1, Tensor.argsort: -1, torch.argsort: -1}.get(func)
    return refuse(func) if dim is None else s.mark(func(x, s.dim(x, dim), *args, **kwargs))


@rule(*named("diff", Tensor, torch))
def diff(s: Samples, func: Any, x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences along one of the sample's dimensions; what stands before and behind is repeated if it must be."""
    ends = {name: end for name, end in (("prepend", prepend), ("append", append)) if end is not None}
    if not s.any((x, *ends.values())):
        return func(x, n, dim, **ends)
    x = s.batched(x)
    return s.mark(func(x, n, s.dim(x, dim), **{name: s.batched(end) for name, end in ends.items()}))


@rule(F.normalize)
def normalize(s: Samples, func: Any, input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    """Unit norm along one of the sample's dimensions."""
    return s.mark(func(input, p, s.dim(input, dim), eps)) if s.has(input) else func(input, p, dim, eps)


@rule(torch.linalg.vector_norm)
def vector_norm(s: Samples, func: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    """The norm of some of the sample's dimensions, or of all."""
    if not s.has(x):
        return func(x, ord, dim, keepdim)
    if x.ndim == 1:
        refuse(func)
    dims = tuple(range(1, x.ndim)) if dim is None else s.dim(x, dim)
    return s.mark(func(x, ord, dims, keepdim))


@rule(Tensor.norm, torch.norm)
def norm(s: Samples, func: Any, x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """The norm of all values, or along dimensions, as a vector's."""
    if not s.has(x):
        return func(x, p, dim, keepdim, **kwargs)
    if p not in ("fro", 2) or any(value is not None for value in kwargs.values()):
        refuse(func)
    return vector_norm(s, torch.linalg.vector_norm, x, 2, dim, keepdim)
