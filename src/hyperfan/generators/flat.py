"""Flat chunks, as in von Oswald et al., *Continual learning with hypernetworks*, 2020.

Everything is one long vector, cut into equal chunks that come from a single head. A chunk may span tensors of different
targets, so each tensor has a fixed factor on what the head makes; embeddings could not tell them apart.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.base import NO_STEPS, tensor_name
from hyperfan.generators.chunk_base import ChunkGenerator
from hyperfan.generators.heads import HeadLayout
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.generators.chunks import Chunks

FLAT = "flat"


class FlatChunks(ChunkGenerator):
    """All tensors as one vector, but norm parameters; the last chunk is filled up with values that nobody uses."""

    exclusive = False

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
        self.size = config.size or 1
        flat = [i for i, t in enumerate(tensors) if t.start is None]
        if len({tensors[i].dtype for i in flat}) > 1:
            raise HyperfanError("tensors of different dtypes cannot be one flat vector: leave some out of generate=")
        numels = [tensors[i].numel for i in flat]
        total = sum(numels)
        if self.size > total > 0:
            raise HyperfanError(f"Chunks(size={self.size}): there are only {total} values to cut, so take fewer")
        ends = dict(zip(flat, itertools.accumulate(numels), strict=True))
        self.n = -(-total // self.size)
        self.names, self.spans, layouts = [], [], {}
        if flat:
            layouts[FLAT] = HeadLayout(self.size, tensors[flat[0]].dtype, flat, [slice(0, self.n)], any_target=True)
        for i, t in enumerate(tensors):
            if i in ends:
                self.names.append(FLAT)
                self.spans.append(slice((ends[i] - t.numel) // self.size, -(-ends[i] // self.size)))
            else:
                self.names.append(tensor_name(t))
                self.spans.append(slice(self.n, self.n + 1))
                layouts[self.names[-1]] = HeadLayout(t.numel, t.dtype, [i], [self.spans[-1]])
                self.n += 1
        self._add_heads(layouts, device)
        self._add_inputs_and_signs(device, dtype)
        self.register_buffer("scale", torch.ones(len(tensors), device=device, dtype=dtype))

    def forward(
        self,
        codes: Tensor,
        *,
        skip: Collection[int] = (),
        copy: bool = False,
        steps: Mapping[str, Tensor] = NO_STEPS,
    ) -> dict[str, Tensor]:
        """The vector, cut at the ends of the tensors."""
        codes = self._read(codes, steps)
        made: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            chunks = self._chunks(codes, name, steps)
            vector = chunks.reshape(*chunks.shape[:-2], chunks.shape[-2] * chunks.shape[-1])
            numels = [self.tensors[i].numel for i in layout.tensors]
            unused = vector.shape[-1] - sum(numels)
            for i, values in zip(layout.tensors, torch.split(vector, [*numels, unused], -1), strict=False):
                made[i] = values.reshape(*values.shape[:-1], *self.tensors[i].shape) * self.scale[i]
        return self._by_name(made)

    def _scaled(self, codes: Tensor) -> Tensor:
        return codes

    def _set_scales_(self, scales: Sequence[float]) -> None:
        with torch.no_grad():
            self.scale.copy_(torch.tensor(scales, dtype=torch.float64))

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """On what is made of each tensor."""
        each = [factors.get(t.name, 1.0) for t in self.tensors]
        self.scale.mul_(torch.tensor(each, dtype=torch.float64).to(self.scale))
        return {}
