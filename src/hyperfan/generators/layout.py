"""The heads of a generator: their names, the tensors they make, and the codes they read."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from hyperfan.errors import HyperfanError
from hyperfan.mainnet.spec import TensorSpec, layer_and_module

Sharing = Literal["shared", "separate", "module"]
"""Which weights have a head in common: those of one shape, none, or those of one module in all repeated layers."""


@dataclass(frozen=True)
class HeadLayout:
    """Tensors that come from the same heads.

    Args:
        heads: how many values each head makes of a code; mostly there is one head.
        tensors: indices of the tensors.
        rows: the codes that the heads read, in order.
        any_target: whether the heads' variance is fixed, and the scale of each tensor makes up for its target.
    """

    heads: dict[str, int]
    tensors: list[int]
    rows: list[slice]
    any_target: bool = False

    @property
    def codes(self) -> int:
        """Number of codes that the heads read."""
        return sum(s.stop - s.start for s in self.rows)


def layouts_by_name(
    names: Sequence[str], outputs: Sequence[int], spans: Sequence[slice], any_target: Sequence[bool]
) -> dict[str, HeadLayout]:
    """One head for all tensors of one name. For each tensor: its head, how many values that makes of a code, its codes.

    >>> layouts_by_name(["a", "b", "a"], [4, 2, 4], [slice(0, 1), slice(1, 2), slice(2, 3)], [False] * 3)["a"].tensors
    [0, 2]
    """
    return {
        name: HeadLayout({name: outputs[of[0]]}, of, merge_spans([spans[i] for i in of]), any_target[of[0]])
        for name, of in members_by_name(names).items()
    }


def members_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    """The indices at which each name is.

    >>> members_by_name(["a", "b", "a"])
    {'a': [0, 2], 'b': [1]}
    """
    members: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        members.setdefault(name, []).append(i)
    return members


def merge_spans(spans: Sequence[slice]) -> list[slice]:
    """Merge spans that are neighbours.

    >>> merge_spans([slice(0, 2), slice(2, 3), slice(5, 6)])
    [slice(0, 3, None), slice(5, 6, None)]
    """
    found: list[slice] = []
    for s in spans:
        if found and found[-1].stop == s.start:
            found[-1] = slice(found[-1].start, s.stop)
        else:
            found.append(s)
    return found


def evenly_spaced(spans: Sequence[slice]) -> slice | None:
    """One span for several, if there is one: of single rows at equal distances, as those of q in every layer.

    >>> evenly_spaced([slice(1, 2), slice(3, 4), slice(5, 6)])
    slice(1, 6, 2)
    """
    if len(spans) == 1:
        return spans[0]
    step = spans[1].start - spans[0].start
    even = all(b.start - a.start == step for a, b in itertools.pairwise(spans))
    alone = all(s.stop - s.start == 1 for s in spans)
    return slice(spans[0].start, spans[-1].stop, step) if even and alone and step > 0 else None


def attribute_name(tensor: TensorSpec) -> str:
    """A tensor's name for what a module has of it, as its head: stable, free of dots, and no attribute of modules."""
    return tensor.name.replace(".", "/") if "." in tensor.name else f"/{tensor.name}"


def shape_name(shape: Sequence[int], tensor: TensorSpec, tensors: Sequence[TensorSpec]) -> str:
    """A name for the head of a shape, with the tensor's dtype where that is not the same for all.

    Weights that start at a constant have a head of their own, which starts at zero.
    """
    dtypes = {t.dtype for t in tensors}
    dtype = f"-{str(tensor.dtype).removeprefix('torch.')}" if len(dtypes) > 1 else ""
    return ("x".join(map(str, shape)) or "scalar") + dtype + ("" if tensor.start is None else "-constant")


def head_names(tensors: Sequence[TensorSpec], sharing: Sharing, weights: Collection[int]) -> list[str]:
    """The name of each tensor's head. Those of ``weights``, by index, are shared as said; each other has its own.

    Biases and norm parameters are small, and start at values of their own.
    """
    if sharing == "separate":
        return [attribute_name(t) for t in tensors]
    if sharing == "module":
        _check_modules([tensors[i] for i in weights])
    return [
        attribute_name(t) if i not in weights else shape_name(t.shape, t, tensors) if sharing == "shared" else _kind(t)
        for i, t in enumerate(tensors)
    ]


def _kind(tensor: TensorSpec) -> str:
    """A name for the head of a tensor's module in all layers."""
    _, module = layer_and_module(tensor.name)
    return f"*/{module.replace('.', '/')}"


def _check_modules(weights: Sequence[TensorSpec]) -> None:
    """Raise if weights of one module differ in shape or dtype, so that no head can make them all."""
    first: dict[str, TensorSpec] = {}
    for t in weights:
        other = first.setdefault(_kind(t), t)
        if (t.shape, t.dtype) != (other.shape, other.dtype):
            seen = [f"{tuple(x.shape)} of {str(x.dtype).removeprefix('torch.')}" for x in (other, t)]
            raise HyperfanError(
                f"'{other.name}' is {seen[0]} and '{t.name}' {seen[1]}, so that one head cannot make both as one "
                "module: share heads by shape, with 'shared', or leave one out of generate="
            )
