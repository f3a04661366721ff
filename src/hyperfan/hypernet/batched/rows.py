"""A batched run of a mainnet that treats the rows of each batch one by one, and refuses any other.

Then a batch may hold further rows, as where groups of unequal size are padded. What has a row for each of the input's,
in its first dimension, is marked; a function of such tensors must be known to keep the rows apart.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.hypernet.batched.layers import CONVOLUTIONS, TRANSPOSED, layer_norm
from hyperfan.hypernet.batched.mode import RULES, MixingError, Samples, refuse
from hyperfan.hypernet.batched.pointwise import dropout, metadata, ndim, pointwise, same_values, size
from hyperfan.hypernet.batched.shapes import get_item, join
from hyperfan.hypernet.objects import in_objects

ROWS = "_hyperfan_rows"


class SeparateRows(Samples):
    """As :class:`Samples`, for functions that keep the rows of each sample's batch apart."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch by its rule, if it keeps rows apart."""
        given = kwargs or {}
        if not any(map(has_rows, _tensors((args, given)))):
            return super().__torch_function__(func, types, args, kwargs)
        if RULES.get(func) in (metadata, ndim):
            return super().__torch_function__(func, types, args, kwargs)
        if not args or not _keeps_rows_apart(self, func, args, given):
            refuse(func)
        made = super().__torch_function__(func, types, args, kwargs)
        if isinstance(made, Tensor):
            setattr(made, ROWS, True)
        return made


def has_rows(x: Any) -> bool:
    """Whether something has a row for each of the input's."""
    return getattr(x, ROWS, False)


def mark_rows(x: Tensor) -> Tensor:
    """Note that a tensor has a row for each of the input's."""
    setattr(x, ROWS, True)
    return x


def check_rows(outputs: Any) -> None:
    """Raise unless all tensors have rows."""
    if any(isinstance(x, Tensor) for x in in_objects(outputs)):
        raise MixingError("tensors in an object of another library's")
    for x in pytree.tree_leaves(outputs):
        if isinstance(x, Tensor) and not has_rows(x):
            raise MixingError("an output without rows")


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple, dict)):
        for item in x.values() if isinstance(x, dict) else x:
            yield from _tensors(item)


def _keeps_rows_apart(s: SeparateRows, func: Any, args: Any, kwargs: Any) -> bool:
    rule, x, operands = RULES.get(func), args[0], list(_tensors((args, kwargs)))
    if rule is pointwise:
        return not kwargs.get("inplace") and _are_aligned(s, operands)
    if rule is join:
        dims = {s.ndim(t) for t in operands}
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        return all(map(has_rows, operands)) and func != torch.stack and len(dims) == 1 and dim not in (0, -min(dims))
    if not has_rows(x) or any(has_rows(t) for t in operands if t is not x):
        return False
    if rule is layer_norm:
        shape = args[1] if len(args) > 1 else kwargs.get("normalized_shape")
        return isinstance(shape, (tuple, list)) and len(shape) < s.ndim(x)
    if rule is dropout:
        return not (args[2] if len(args) > 2 else kwargs.get("training", True))
    if rule is size:
        return len(args) > 1 and args[1] not in (0, -s.ndim(x))
    if rule is get_item:
        return _picks_no_rows(args[1], s.ndim(x))
    return rule is same_values or (func in _LAYERS and s.ndim(x) >= _LAYERS[func])


def _are_aligned(s: SeparateRows, operands: list[Tensor]) -> bool:
    """Whether broadcasting brings together only values of one row, or what is the same for all rows."""
    dims = {s.ndim(x) for x in operands if has_rows(x)}
    nd = dims.pop()
    others = [s.shape(x) for x in operands if not has_rows(x)]
    return not dims and nd > 0 and all(len(of) < nd or (len(of) == nd and of[0] == 1) for of in others)


def _picks_no_rows(index: Any, nd: int) -> bool:
    """Whether an index takes all rows of a tensor of so many dimensions: as in [:, 0], [..., :2] and [:, None]."""
    parts = index if isinstance(index, tuple) else (index,)
    plain = all(p is None or p is Ellipsis or type(p) in (int, slice) for p in parts)
    behind = sum(p is not None for p in parts[1:])
    return plain and (parts[0] == slice(None) or (parts[0] is Ellipsis and behind < nd))


_LAYERS: dict[Any, int] = {F.linear: 2, F.group_norm: 2, F.batch_norm: 2}
"""Functions of rows, weights and settings: how many dimensions an input with rows has at least."""
_LAYERS |= {f: nd + 2 for f, nd in (CONVOLUTIONS | TRANSPOSED).items()}
