"""Rules of functions that move values, or pick some: views, dimensions, pieces, joins, indices."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.hypernet.batched.mode import Samples, getters, named, refuse, rule
from hyperfan.hypernet.batched.pointwise import align

PLAIN_INDICES = (slice, int, type(None), type(Ellipsis))
"""Classes of indices that are the same for all samples."""


def _sizes(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes given one by one, or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes


@rule(*named("view reshape", Tensor), torch.reshape)
def reshape(s: Samples, func: Any, x: Any, *sizes: Any, shape: Any = None) -> Any:
    """Reshape one sample's dimensions; that of the samples stays in front."""
    sizes = _sizes((shape,) if shape is not None else sizes)
    if not s.has(x):
        return func(x, sizes)
    if not all(isinstance(size, int) for size in sizes):
        refuse(func)
    return s.mark(func(x, (s.n, *sizes)))


@rule(*named("view_as reshape_as", Tensor))
def reshape_as(s: Samples, func: Any, x: Any, other: Any) -> Any:
    """Reshape to the shape of another tensor in one sample."""
    return reshape(s, Tensor.view if func == Tensor.view_as else Tensor.reshape, x, *s.shape(other))


@rule(*named("expand broadcast_to", Tensor), torch.broadcast_to)
def expand(s: Samples, func: Any, x: Any, *sizes: Any, size: Any = None) -> Any:
    """Expand; new dimensions come behind that of the samples."""
    sizes = _sizes((size,) if size is not None else sizes)
    if not s.has(x):
        return x.expand(sizes)
    return s.mark(align(x, len(sizes)).expand(s.n, *sizes))


@rule(Tensor.expand_as)
def expand_as(s: Samples, func: Any, x: Any, other: Any) -> Any:
    """Expand to the shape of another tensor in one sample."""
    return expand(s, func, x, *s.shape(other))


@rule(*named("flatten", Tensor, torch))
def flatten(s: Samples, func: Any, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Flatten dimensions of one sample."""
    if not s.has(x):
        return func(x, start_dim, end_dim)
    return s.mark(x.unsqueeze(1) if x.ndim == 1 else x.flatten(s.dim(x, start_dim), s.dim(x, end_dim)))


@rule(*named("unflatten", Tensor, torch))
def unflatten(s: Samples, func: Any, x: Any, dim: int, sizes: Any) -> Any:
    """Unflatten a dimension of one sample."""
    return s.mark(x.unflatten(s.dim(x, dim), sizes)) if s.has(x) else func(x, dim, sizes)


@rule(*named("unsqueeze", Tensor, torch))
def unsqueeze(s: Samples, func: Any, x: Any, dim: int) -> Any:
    """Insert a dimension behind that of the samples; counted from the end, it is where it was."""
    if not s.has(x):
        return func(x, dim)
    if not -x.ndim <= dim < x.ndim:
        refuse(func)
    return s.mark(x.unsqueeze(dim + 1 if dim >= 0 else dim))


@rule(*named("squeeze", Tensor, torch))
def squeeze(s: Samples, func: Any, x: Any, dim: Any = None) -> Any:
    """Squeeze; the dimension of the samples stays, even if there is only one."""
    if not s.has(x):
        return func(x) if dim is None else func(x, dim)
    return s.mark(x.squeeze(tuple(range(1, x.ndim)) if dim is None else s.dim(x, dim)))


@rule(*named("transpose swapaxes swapdims movedim moveaxis", Tensor, torch))
def swap_dimensions(s: Samples, func: Any, x: Any, a: Any, b: Any) -> Any:
    """Swap or move dimensions of one sample."""
    return s.mark(func(x, s.dim(x, a), s.dim(x, b))) if s.has(x) else func(x, a, b)


@rule(*named("permute", Tensor, torch))
def permute(s: Samples, func: Any, x: Any, *dims: Any) -> Any:
    """Permute one sample's dimensions; that of the samples stays in front."""
    dims = _sizes(dims)
    return s.mark(x.permute(0, *(d % (x.ndim - 1) + 1 for d in dims))) if s.has(x) else x.permute(dims)


_MATRIX_TRANSPOSE = getters("mT")


@rule(*_MATRIX_TRANSPOSE, *getters("T"), *named("t", Tensor, torch))
def transposed(s: Samples, func: Any, x: Any) -> Any:
    """Transpose the matrices of each sample."""
    if not s.has(x):
        return func(x)
    matrices = x.ndim == 3 or (x.ndim > 3 and func in _MATRIX_TRANSPOSE)
    return s.mark(x.mT) if matrices else refuse(func)


@rule(*named("chunk split tensor_split", Tensor, torch))
def split(s: Samples, func: Any, x: Any, size: Any, dim: int = 0) -> Any:
    """Split each sample's tensor."""
    return s.mark(func(x, size, dim=s.dim(x, dim))) if s.has(x) else func(x, size, dim=dim)


@rule(*named("unbind", Tensor, torch))
def unbind(s: Samples, func: Any, x: Any, dim: int = 0) -> Any:
    """Unbind a dimension of one sample."""
    return s.mark(func(x, s.dim(x, dim))) if s.has(x) else func(x, dim)


@rule(Tensor.__iter__)
def iterate(s: Samples, func: Any, x: Any) -> Any:
    """Iterate over the first dimension of one sample."""
    return iter(unbind(s, torch.unbind, x))


@rule(torch.cat, torch.concat, torch.concatenate, torch.stack)
def join(s: Samples, func: Any, tensors: Any, dim: int = 0) -> Any:
    """Join tensors; what is the same for all samples is repeated."""
    tensors = tuple(tensors)
    if not s.any(tensors):
        return func(tensors, dim)
    if all(s.has(x) and x.ndim == tensors[0].ndim > -dim > 0 for x in tensors):  # as mostly
        return s.mark(func(tensors, dim))
    if func != torch.stack:  # as torch does, of whatever shape the others are
        tensors = tuple(x for x in tensors if s.shape(x) != (0,)) or tensors
    each = [s.batched(x) for x in tensors]
    nd = each[0].ndim - (func != torch.stack)
    if len({x.ndim for x in each}) > 1 or not -nd <= dim < nd:
        refuse(func)
    return s.mark(func(each, dim + 1 if dim >= 0 else dim))


@rule(*named("select narrow index_select", Tensor, torch))
def select(s: Samples, func: Any, x: Any, dim: int, *where: Any) -> Any:
    """Select at positions that are the same for all samples."""
    if s.any(where):
        refuse(func)
    return s.mark(func(x, s.dim(x, dim), *where)) if s.has(x) else func(x, dim, *where)


@rule(*named("gather", Tensor, torch))
def gather(s: Samples, func: Any, x: Any, dim: int, index: Any) -> Any:
    """Gather at the positions of each sample."""
    if not s.any((x, index)):
        return func(x, dim, index)
    x, index = s.batched(x), s.batched(index)
    nd = x.ndim - 1
    return s.mark(func(x, dim + 1 if dim >= 0 else dim, index)) if -nd <= dim < nd else refuse(func)


@rule(*named("flip", Tensor, torch))
def flip(s: Samples, func: Any, x: Any, *dims: Any) -> Any:
    """Flip along dimensions of one sample."""
    dims = _sizes(dims)
    return s.mark(x.flip(s.dim(x, dims))) if s.has(x) else x.flip(dims)


@rule(*named("roll", Tensor, torch))
def roll(s: Samples, func: Any, x: Any, shifts: Any, dims: Any) -> Any:
    """Roll along dimensions of one sample."""
    return s.mark(func(x, shifts, s.dim(x, dims))) if s.has(x) else func(x, shifts, dims)


@rule(*named("repeat", Tensor))
def repeat(s: Samples, func: Any, x: Any, *sizes: Any) -> Any:
    """Repeat; new dimensions come behind that of the samples."""
    sizes = _sizes(sizes)
    return s.mark(align(x, len(sizes)).repeat(1, *sizes)) if s.has(x) else x.repeat(sizes)


@rule(*named("tril triu", Tensor, torch))
def triangle(s: Samples, func: Any, x: Any, diagonal: int = 0) -> Any:
    """Keep a triangle of the last two dimensions."""
    if not s.has(x):
        return func(x, diagonal)
    return s.mark(func(x, diagonal)) if x.ndim >= 3 else refuse(func)


@rule(*named("diagonal", Tensor, torch))
def diagonal(s: Samples, func: Any, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return the diagonal of two dimensions of one sample."""
    return s.mark(func(x, offset, s.dim(x, dim1), s.dim(x, dim2))) if s.has(x) else func(x, offset, dim1, dim2)


@rule(Tensor.__getitem__)
def get_item(s: Samples, func: Any, x: Any, index: Any) -> Any:
    """Numbers, slices, and tensors whose place in the result is known: side by side, they put theirs where they are."""
    parts = index if isinstance(index, tuple) else (index,)
    if s.has(x) and all(type(p) in PLAIN_INDICES for p in parts):  # as mostly
        return s.mark(func(x, (slice(None), *parts)))
    plain = [p is None or p is Ellipsis or isinstance(p, slice) for p in parts]
    tensors = [p for p in parts if isinstance(p, Tensor)]
    numbers = [type(p) is int for p in parts]
    if not all(p or n or isinstance(t, Tensor) for p, n, t in zip(plain, numbers, parts, strict=True)):
        refuse(func)
    if not s.has(x):
        if not s.any(tensors):
            return func(x, index)
        alone = len(parts) == 1 and tensors[0].dtype in (torch.int64, torch.int32)
        return s.mark(func(x, index)) if alone else refuse(func)
    where = [i for i, p in enumerate(parts) if isinstance(p, Tensor)]
    apart = bool(where) and where[-1] - where[0] >= len(where)
    if s.any(tensors) or apart or (tensors and any(numbers)):
        refuse(func)
    return s.mark(func(x, (slice(None), *parts)))
