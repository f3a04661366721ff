"""Tensors made in pieces, all pieces of a head at once.

*By channels*, as in Ha, Dai & Le, *HyperNetworks*, 2017: a chunk is (size, kernel), cut along the output channels of a
weight where they are a multiple of the size, else along its input channels. Each chunk has an embedding and an input
layer of its own, and chunks of one kernel, cut one way, share their output layer, the head. As that head serves layers
of different fans, the scale of each goes into its input layers.

*Flat*, as in von Oswald et al. 2020: everything is one long vector, cut into equal pieces by a single network. A piece
may span tensors of different targets, so each tensor has a fixed factor of its own on what the head makes; embeddings
could not tell them apart.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hyperfan.errors import HyperfanError
from hyperfan.formulas.fans import Fans
from hyperfan.hypernet.embeddings import Embedding
from hyperfan.hypernet.heads import Engined
from hyperfan.hypernet.layout import Layout, Made, head_name, joined, shape_name
from hyperfan.mainnet.rules import Use, rule
from hyperfan.mainnet.spec import TensorSpec

FLAT = "flat"
SHOWN = 8
"""Sizes that an error lists."""


@dataclass(frozen=True)
class Chunks:
    """How to cut what is generated into pieces; ``HyperNet(mainnet, 50, heads=Chunks())`` is Ha et al.'s architecture.

    Args:
        size: channels in a chunk, by default the greatest number that divides the output or the input channels of
            every weight; with ``flat``, values in a chunk.
        flat: cut one long vector of all tensors instead of each weight by its channels.
        inputs: width of an input layer for each chunk; 0 for none, so that a trunk can be shared. By default the
            embedding's size, or 0 if flat.
        embedding: size of an embedding for each chunk, beside the one that the net has with ``per="net"``, such as a
            task's.
        trainable: whether that is trained.
        together: whether weights cut along their input channels come from the head of those cut along their output
            channels, as in Ha et al. One layer's outputs then lie where the next one looks, in the span of the head,
            and grow by up to √(size / d_k) more than their variances say; so the default is a head for each.
    """

    size: int | None = None
    flat: bool = False
    inputs: int | None = None
    embedding: int = 0
    trainable: bool = True
    together: bool = False

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("inputs", 0), ("embedding", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise HyperfanError(f"Chunks({name}={value!r}): give an integer from {least}")
        if self.flat and self.size is None:
            raise HyperfanError("Chunks(flat=True): say how many values a chunk has with size=")

    def check(self, embedding: Embedding, has_trunk: bool) -> None:
        """Raise if it does not go with the embedding or the trunk."""
        if embedding.per == "net" and not self.embedding:
            raise HyperfanError(
                "one embedding for the whole net would make all chunks equal: give each its own beside it with "
                "Chunks(embedding=…), or use Embedding(…, per='tensor')"
            )
        if embedding.per == "tensor" and self.embedding:
            raise HyperfanError(
                "Chunks(embedding=…) is for a net with one embedding, Embedding(…, per='net'); here each chunk has an "
                "embedding of its own already"
            )
        if self.input_width(embedding.size) and has_trunk:
            raise HyperfanError(
                "each chunk has an input layer of its own, in place of a trunk: use Chunks(inputs=0) to share a trunk"
            )

    def input_width(self, size: int) -> int:
        """Of the input layers, for embeddings of this size; 0 if there are none."""
        if self.inputs is not None:
            return self.inputs
        return 0 if self.flat else size

    def layout(self, tensors: Sequence[TensorSpec]) -> "Channels | Flat":
        """Which chunks there are. Norm parameters, and biases unless flat, have heads of their own."""
        return Flat(tensors, self.size or 1) if self.flat else Channels(tensors, self.size, self.together)


class Channels(Layout):
    """Weights cut by their channels.

    Args:
        tensors: what to generate.
        size: channels in a chunk; by default the greatest that fits.
        together: one head for both directions of cutting.
    """

    def __init__(self, tensors: Sequence[TensorSpec], size: int | None, together: bool = False) -> None:
        super().__init__(tensors)
        self.together = together
        cut = [t for t in tensors if _is_cut(t)]
        if not cut:
            raise HyperfanError("no generated tensor has channels to cut into chunks: generate some weights")
        self.size = _fitting(cut, size)
        self.names, self.spans, self.heads = [], [], {}
        outputs = {}
        for t in tensors:
            count = t.numel // self._values(t) if _is_cut(t) else 1
            start = self.spans[-1].stop if self.spans else 0
            self.spans.append(slice(start, start + count))
            self.names.append(self._head(t))
            outputs[self.names[-1]] = (self._values(t) if _is_cut(t) else t.numel, t.dtype)
        self.pieces = self.spans[-1].stop
        for name, (values, dtype) in outputs.items():
            members = [i for i, other in enumerate(self.names) if other == name]
            self.heads[name] = Made(values, dtype, members, joined([self.spans[i] for i in members]))

    @property
    def cut(self) -> list[bool]:
        """Weights are."""
        return [_is_cut(t) for t in self.tensors]

    def _values(self, t: TensorSpec) -> int:
        return self.size * math.prod(t.shape[2:])

    def _head(self, t: TensorSpec) -> str:
        if not _is_cut(t):
            return head_name(t, "separate", self.tensors)
        name = shape_name((self.size, *t.shape[2:]), t, self.tensors)
        return name if self.together or self._along_outputs(t) else f"{name}-inputs"

    def _along_outputs(self, t: TensorSpec) -> bool:
        return t.shape[0] % self.size == 0

    def parts(self, name: str, wanted: list[int], flat: Tensor) -> dict[int, Tensor]:
        """Chunks put side by side along the axis they were cut from."""
        members = [self.tensors[i] for i in self.heads[name].tensors]
        counts = [s.stop - s.start for s in (self.spans[i] for i in self.heads[name].tensors)]
        made = {}
        for i, t, chunks in zip(self.heads[name].tensors, members, torch.split(flat, counts, -2), strict=True):
            made[i] = self._joined(t, chunks)
        return made

    def _joined(self, t: TensorSpec, chunks: Tensor) -> Tensor:
        batch = chunks.shape[:-2]
        if not _is_cut(t):
            return chunks.reshape(*batch, *t.shape)
        (out, into), kernel = t.shape[:2], t.shape[2:]
        if self._along_outputs(t):
            chunks = chunks.view(*batch, out // self.size, into, self.size, *kernel)
            chunks = chunks.transpose(len(batch) + 1, len(batch) + 2)
        return chunks.reshape(*batch, *t.shape)


class Flat(Layout):
    """All tensors as one vector, cut into equal pieces; the last is filled up with values that nobody uses.

    Args:
        tensors: what to generate.
        size: values in a piece.
    """

    def __init__(self, tensors: Sequence[TensorSpec], size: int) -> None:
        super().__init__(tensors)
        self.size = size
        cut = [i for i, t in enumerate(tensors) if t.start is None]
        if len({tensors[i].dtype for i in cut}) > 1:
            raise HyperfanError("tensors of different dtypes cannot be one flat vector: leave some out of generate=")
        self.sizes = [tensors[i].numel for i in cut]
        ends = dict(zip(cut, itertools.accumulate(self.sizes), strict=True))
        total = sum(self.sizes)
        if size > total > 0:
            raise HyperfanError(f"Chunks(size={size}): there are only {total} values to cut, so take fewer")
        self.pieces = -(-total // size)
        self.names, self.spans, self.heads = [], [], {}
        if cut:
            self.heads[FLAT] = Made(size, tensors[cut[0]].dtype, cut, [slice(0, self.pieces)])
        for i, t in enumerate(tensors):
            if i in ends:
                self.names.append(FLAT)
                self.spans.append(slice((ends[i] - t.numel) // size, -(-ends[i] // size)))
            else:
                self.names.append(head_name(t, "separate", tensors))
                self.spans.append(slice(self.pieces, self.pieces + 1))
                self.heads[self.names[-1]] = Made(t.numel, t.dtype, [i], [self.spans[-1]])
                self.pieces += 1

    @property
    def cut(self) -> list[bool]:
        """All but norm parameters are."""
        return [t.start is None for t in self.tensors]

    @property
    def mixed(self) -> bool:
        """A piece may span tensors."""
        return True

    def parts(self, name: str, wanted: list[int], flat: Tensor) -> dict[int, Tensor]:
        """The vector, cut at the ends of the tensors."""
        batch, members = flat.shape[:-2], self.heads[name].tensors
        if name != FLAT:
            return {i: flat.reshape(*batch, *self.tensors[i].shape) for i in members}
        vector = flat.reshape(*batch, flat.shape[-2] * self.size)
        spare = vector.shape[-1] - sum(self.sizes)
        pieces = torch.split(vector, [*self.sizes, spare], -1)
        return {i: v.reshape(*batch, *self.tensors[i].shape) for i, v in zip(members, pieces, strict=False)}


class InputLayers(Engined):
    """A linear layer for each chunk, from its embedding to its code.

    Shape:
        (… · chunks, size) → (… · chunks, width)
    """

    def __init__(self, chunks: int, size: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(chunks, size, width, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(chunks, width, device=device, dtype=dtype))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Each chunk's code."""
        made = None if self.engine is None else self.engine.codes(embeddings)
        if made is not None:
            return made
        chunks, size, width = self.weight.shape
        rows = embeddings.view(-1, chunks, size).transpose(0, 1)
        return torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight).transpose(0, 1).reshape(-1, width)

    @torch.no_grad()
    def scale_(self, factors: Tensor) -> None:
        """Multiply what each chunk's layer makes."""
        self.weight.mul_(factors[:, None, None])
        self.bias.mul_(factors[:, None])

    def extra_repr(self) -> str:
        """Its size."""
        return "{} × ({} → {})".format(*self.weight.shape)


@rule(InputLayers)
def _(layers: InputLayers) -> dict[str, Use]:
    _, size, width = layers.weight.shape
    return {"weight": Use("weight", Fans(size, width)), "bias": Use("bias", weight="weight")}


def _is_cut(t: TensorSpec) -> bool:
    return t.role == "weight" and len(t.shape) >= 2


def _fitting(cut: Sequence[TensorSpec], size: int | None) -> int:
    """The size asked for, or the greatest; an error if there is none."""
    channels = [t.shape[:2] for t in cut]
    largest = min(max(pair) for pair in channels)
    fitting = [k for k in range(largest, 1, -1) if all(out % k == 0 or into % k == 0 for out, into in channels)]
    told = ", ".join(map(str, fitting[:SHOWN])) + (", …" if len(fitting) > SHOWN else "") if fitting else "only 1"
    if size is None:
        if not fitting:
            raise HyperfanError(
                "the channels of the generated weights have no common factor to cut them by: leave some of them out of "
                "generate=, or use Chunks(size=…, flat=True)"
            )
        return fitting[0]
    for t, (out, into) in zip(cut, channels, strict=True):
        if out % size and into % size:
            raise HyperfanError(
                f"'{t.name}' has {out} × {into} channels, neither a multiple of Chunks(size={size}): "
                f"sizes that fit every tensor: {told}"
            )
    return size
