"""Chunks by channels, as in Ha, Dai & Le, *HyperNetworks*, 2017.

A chunk is (size, kernel), cut along the output channels of a weight where they are a multiple of the size, else along
its input channels. Each chunk has a code, usually through an input layer of its own, and chunks of one kernel, cut one
way, share their head. As that head serves layers of different fans, the scale of each goes into its input layers.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.base import NO_STEPS, merge_spans, shape_name, tensor_name
from hyperfan.generators.chunk_base import ChunkGenerator
from hyperfan.generators.heads import HeadLayout
from hyperfan.generators.linear_map import InputLayers
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.generators.chunks import Chunks

MAX_SIZES_LISTED = 8
"""Sizes that fit, in an error."""


class ChannelChunks(ChunkGenerator):
    """Weights cut by their channels; biases and norm parameters have heads of their own."""

    def __init__(
        self,
        config: "Chunks",
        tensors: Sequence[TensorSpec],
        width: int,
        normalise: bool,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, tensors, width, normalise)
        in_chunks = [t for t in tensors if _has_channels(t)]
        if not in_chunks:
            raise HyperfanError("no generated tensor has channels to cut into chunks: generate some weights")
        self.size = _fitting_size(in_chunks, config.size)
        self.names, self.spans = [self._head_name(t) for t in tensors], []
        for t in tensors:
            start = self.spans[-1].stop if self.spans else 0
            self.spans.append(slice(start, start + (t.numel // self._chunk_numel(t) if _has_channels(t) else 1)))
        self.n = self.spans[-1].stop
        layouts = {}
        for name in dict.fromkeys(self.names):
            members = [i for i, other in enumerate(self.names) if other == name]
            first, rows = tensors[members[0]], merge_spans([self.spans[i] for i in members])
            values = self._chunk_numel(first) if _has_channels(first) else first.numel
            layouts[name] = HeadLayout(values, first.dtype, members, rows, any_target=_has_channels(first))
        self._add_heads(layouts, device)
        self._add_inputs_and_signs(device, dtype)
        # Where the scale of a tensor goes into input layers, one factor of 1 is left.
        factors = self.n if self._scalable_inputs is None else 1
        self.register_buffer("scale", torch.ones(factors, 1, device=device, dtype=dtype))

    @property
    def _scalable_inputs(self) -> InputLayers | None:
        """The input layers, if normalising does not undo their scale."""
        return None if self.normalise else self.inputs

    def _chunk_numel(self, t: TensorSpec) -> int:
        return self.size * math.prod(t.shape[2:])

    def _head_name(self, t: TensorSpec) -> str:
        if not _has_channels(t):
            return tensor_name(t)
        name = shape_name((self.size, *t.shape[2:]), t, self.tensors)
        return name if self.config.one_head or self._along_outputs(t) else f"{name}-inputs"

    def _along_outputs(self, t: TensorSpec) -> bool:
        return t.shape[0] % self.size == 0

    def forward(
        self,
        codes: Tensor,
        *,
        skip: Collection[int] = (),
        copy: bool = False,
        steps: Mapping[str, Tensor] = NO_STEPS,
    ) -> dict[str, Tensor]:
        """Chunks put side by side along the axis they were cut from."""
        codes = self._scaled(self._read(codes, steps))
        made: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            counts = [self.spans[i].stop - self.spans[i].start for i in layout.tensors]
            for i, chunks in zip(
                layout.tensors, torch.split(self._chunks(codes, name, steps), counts, -2), strict=True
            ):
                made[i] = self._join(self.tensors[i], chunks)
        return self._by_name(made)

    def _join(self, t: TensorSpec, chunks: Tensor) -> Tensor:
        batch = chunks.shape[:-2]
        if _has_channels(t) and self._along_outputs(t):
            out, inputs, *kernel = t.shape
            chunks = chunks.view(*batch, out // self.size, inputs, self.size, *kernel)
            chunks = chunks.transpose(len(batch) + 1, len(batch) + 2)
        return chunks.reshape(*batch, *t.shape)

    # ── scale ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _scaled(self, codes: Tensor) -> Tensor:
        return codes * self.scale

    def _set_scales_(self, scales: Sequence[float]) -> None:
        with torch.no_grad():
            self.scale.fill_(1.0)
        self._scale_codes_(scales)

    @torch.no_grad()
    def _scale_codes_(self, factors: Sequence[float]) -> None:
        """Multiply what each tensor's chunks are made from: in the input layers, or on the codes."""
        counts = torch.tensor([span.stop - span.start for span in self.spans])
        each = torch.tensor(factors, dtype=torch.float64).repeat_interleave(counts).to(self.scale)
        if self._scalable_inputs is not None:
            self._scalable_inputs.scale_(each)
        else:
            self.scale.mul_(each.unsqueeze(1))

    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """In the input layers or on the codes, so that other tensors of a head stay as they are."""
        each = [factors.get(t.name, 1.0) for t in self.tensors]
        for name, layout in self.layouts.items():
            if any(each[i] != 1 for i in layout.tensors):
                self._check_bias_is_zero(name)
        self._scale_codes_(each)
        return {}


def _has_channels(t: TensorSpec) -> bool:
    return t.role == "weight" and len(t.shape) >= 2


def _fitting_size(tensors: Sequence[TensorSpec], size: int | None) -> int:
    """The size asked for, or the greatest that fits; an error if there is none."""
    channels = [t.shape[:2] for t in tensors]
    largest = min(max(pair) for pair in channels)
    fitting = [k for k in range(largest, 1, -1) if all(out % k == 0 or into % k == 0 for out, into in channels)]
    if size is None:
        if not fitting:
            raise HyperfanError(
                "the channels of the generated weights have no common factor to cut them by: leave some of them out of "
                "generate=, or use Chunks(size=…, flat=True)"
            )
        return fitting[0]
    more = ", …" if len(fitting) > MAX_SIZES_LISTED else ""
    listed = ", ".join(map(str, fitting[:MAX_SIZES_LISTED])) + more if fitting else "only 1"
    for t, (out, inputs) in zip(tensors, channels, strict=True):
        if out % size and inputs % size:
            raise HyperfanError(
                f"'{t.name}' has {out} × {inputs} channels, neither a multiple of Chunks(size={size}): "
                f"sizes that fit every tensor: {listed}"
            )
    return size
