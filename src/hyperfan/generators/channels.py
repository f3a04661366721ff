"""Chunks by channels, as in Ha, Dai & Le, *HyperNetworks*, 2017.

A chunk is (size, kernel), cut along the output channels of a weight where they are a multiple of the size, else along
its input channels. Each chunk has a code, usually through an input layer of its own, and chunks of one kernel, cut one
way, share their head. As that head serves layers of different fans, the scale of each goes into its input layers.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.chunks import ChunkGenerator
from hyperfan.generators.generator import NO_STEPS, Steps
from hyperfan.generators.layout import HeadLayout, attribute_name, layouts_by_name, shape_name
from hyperfan.mainnet.spec import TensorSpec

MAX_SIZES_LISTED = 8
"""Sizes that fit, in an error."""


class ChannelChunks(ChunkGenerator):
    """Weights cut by their channels; biases and norm parameters have heads of their own."""

    def _cut(self) -> tuple[dict[str, HeadLayout], tuple[int, ...]]:
        weights = [t for t in self.tensors if _has_channels(t)]
        if not weights:
            raise HyperfanError("no generated tensor has channels to cut into chunks: generate some weights")
        self.size = _fitting_size(weights, self.config.size)
        self.names = [self._head_name(t) for t in self.tensors]
        outputs = [self.size * math.prod(t.shape[2:]) if _has_channels(t) else t.numel for t in self.tensors]
        counts = [t.numel // values for t, values in zip(self.tensors, outputs, strict=True)]
        self.spans = [slice(end - count, end) for count, end in zip(counts, itertools.accumulate(counts), strict=True)]
        self.n = sum(counts)
        layouts = layouts_by_name(self.names, outputs, self.spans, [_has_channels(t) for t in self.tensors])
        # A factor on each code; where input layers have the scale, one factor of 1 is left.
        return layouts, (1 if self.scales_inputs else self.n, 1)

    def _head_name(self, t: TensorSpec) -> str:
        if not _has_channels(t):
            return attribute_name(t)
        name = shape_name((self.size, *t.shape[2:]), t, self.tensors)
        return name if self.config.one_head or self._along_outputs(t) else f"{name}-inputs"

    def _along_outputs(self, t: TensorSpec) -> bool:
        return t.shape[0] % self.size == 0

    def _join(self, layout: HeadLayout, chunks: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Chunks side by side along the axis they were cut from."""
        batch = chunks.shape[:-2]
        counts = [self.spans[i].stop - self.spans[i].start for i in layout.tensors]
        for i, each in zip(layout.tensors, torch.split(chunks, counts, -2), strict=True):
            t = self.tensors[i]
            if _has_channels(t) and self._along_outputs(t):
                out, inputs, *kernel = t.shape
                each = each.view(*batch, out // self.size, inputs, self.size, *kernel)
                each = each.transpose(len(batch) + 1, len(batch) + 2)
            yield i, each.reshape(*batch, *t.shape)

    # ── scale ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def head_inputs(self, codes: Tensor, steps: Steps = NO_STEPS) -> Tensor:
        """Codes behind the input layers, multiplied by the scale of each tensor where scales are on codes."""
        return super().head_inputs(codes, steps) * self.scale

    @torch.no_grad()
    def _set_scales_(self, scales: Sequence[float]) -> None:
        self.scale.fill_(1.0)
        self._scale_codes_(scales)

    def _scale_codes_(self, factors: Sequence[float]) -> None:
        """Multiply what each tensor's chunks are made from: in the input layers, or on the codes."""
        counts = torch.tensor([span.stop - span.start for span in self.spans], device=self.scale.device)
        each = self._like_scale(factors).repeat_interleave(counts)
        if self.scales_inputs and self.inputs is not None:
            self.inputs.scale_(each)
        else:
            self.scale.mul_(each.unsqueeze(1))

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """Multiply tensors in the input layers or on the codes, so that others of the same head stay as they are."""
        each = [factors.get(t.name, 1.0) for t in self.tensors]
        for name, layout in self.layouts.items():
            if any(each[i] != 1 for i in layout.tensors):
                self._check_bias_is_zero(name)
        self._scale_codes_(each)
        return {}


def _has_channels(t: TensorSpec) -> bool:
    return t.may_be_weight and len(t.shape) >= 2


def _fitting_size(tensors: Sequence[TensorSpec], size: int | None) -> int:
    """The given size, or the greatest that fits; an error if there is none."""
    channels = [t.shape[:2] for t in tensors]
    largest = min(max(pair) for pair in channels)
    fitting = [k for k in range(largest, 1, -1) if all(out % k == 0 or inputs % k == 0 for out, inputs in channels)]
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
