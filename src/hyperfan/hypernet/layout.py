"""Which code goes to which head, and which tensors are put together from what the heads make.

A code makes one piece. Usually a piece is a whole tensor; chunks are smaller, and a head may make many of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hyperfan.mainnet.spec import TensorSpec

Sharing = Literal["shared", "separate"]


@dataclass(frozen=True)
class Made:
    """What one head makes.

    Args:
        outputs: values in a piece.
        dtype: of its parameters.
        tensors: indices of the tensors that its pieces make up.
        rows: which codes it makes them from, in order.
    """

    outputs: int
    dtype: torch.dtype
    tensors: list[int]
    rows: list[slice]

    @property
    def count(self) -> int:
        """How many pieces."""
        return sum(s.stop - s.start for s in self.rows)


class Layout(ABC):
    """How pieces become tensors.

    Attributes:
        pieces: how many codes there are.
        heads: what each head makes, by its name.
        names: each tensor's head.
        spans: each tensor's codes, from the first to one past the last.
    """

    pieces: int
    heads: dict[str, Made]
    names: list[str]
    spans: list[slice]

    def __init__(self, tensors: Sequence[TensorSpec]) -> None:
        self.tensors = list(tensors)

    @property
    def cut(self) -> list[bool]:
        """Whether each tensor comes in pieces."""
        return [False] * len(self.tensors)

    @property
    def mixed(self) -> bool:
        """Whether a piece may belong to several tensors, so that only the tensors themselves can be scaled."""
        return False

    def rows(self, name: str, wanted: list[int]) -> list[slice]:
        """Which codes make the wanted ones of a head's tensors."""
        return self.heads[name].rows

    @abstractmethod
    def parts(self, name: str, wanted: list[int], flat: Tensor) -> dict[int, Tensor]:
        """The wanted ones of a head's tensors, by index, from (…, rows, outputs)."""


class Whole(Layout):
    """A code for each tensor.

    Args:
        tensors: what to generate.
        sharing: "shared" has one head for all weights of one shape, "separate" one for each tensor.
    """

    def __init__(self, tensors: Sequence[TensorSpec], sharing: Sharing) -> None:
        super().__init__(tensors)
        self.pieces = len(tensors)
        self.names = [head_name(t, sharing, tensors) for t in tensors]
        self.spans = [slice(i, i + 1) for i in range(len(tensors))]
        self.heads = {}
        for name in dict.fromkeys(self.names):
            members = [i for i, other in enumerate(self.names) if other == name]
            first = tensors[members[0]]
            self.heads[name] = Made(first.numel, first.dtype, members, joined([self.spans[i] for i in members]))

    def rows(self, name: str, wanted: list[int]) -> list[slice]:
        """Those of the wanted tensors alone."""
        made = self.heads[name]
        return made.rows if len(wanted) == len(made.tensors) else joined([self.spans[i] for i in wanted])

    def parts(self, name: str, wanted: list[int], flat: Tensor) -> dict[int, Tensor]:
        """Each row is a tensor."""
        shape = self.tensors[wanted[0]].shape
        made = flat.view(*flat.shape[:-1], *shape).unbind(flat.ndim - 2)
        return dict(zip(wanted, made, strict=True))


def joined(spans: Sequence[slice]) -> list[slice]:
    """The same with neighbours put together.

    >>> joined([slice(0, 2), slice(2, 3), slice(5, 6)])
    [slice(0, 3, None), slice(5, 6, None)]
    """
    found: list[slice] = []
    for s in spans:
        if found and found[-1].stop == s.start:
            found[-1] = slice(found[-1].start, s.stop)
        else:
            found.append(s)
    return found


def head_name(tensor: TensorSpec, sharing: Sharing, tensors: Sequence[TensorSpec]) -> str:
    """A name for the tensor's head that is stable, free of dots, and no attribute of a module.

    Only weights share heads. Biases and norm parameters are small, and start at values of their own.
    """
    if sharing == "separate" or tensor.role != "weight":
        return tensor.name.replace(".", "/") if "." in tensor.name else f"/{tensor.name}"
    return shape_name(tensor.shape, tensor, tensors)


def shape_name(shape: Sequence[int], tensor: TensorSpec, tensors: Sequence[TensorSpec]) -> str:
    """A shape, with the tensor's dtype where that is not the same for all."""
    mixed = len({t.dtype for t in tensors}) > 1
    dtype = f"-{str(tensor.dtype).removeprefix('torch.')}" if mixed else ""
    return ("x".join(map(str, shape)) or "scalar") + dtype
