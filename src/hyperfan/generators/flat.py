"""Flat chunks, as in von Oswald et al., *Continual learning with hypernetworks*, 2020.

Everything is one long vector, cut into equal chunks that come from a single head. A chunk may span tensors of different
targets, so each tensor has a fixed factor on what the head makes; embeddings could not tell them apart.
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.generators.chunks import ChunkGenerator
from hyperfan.generators.layout import HeadLayout, attribute_name

FLAT = "flat"


class FlatChunks(ChunkGenerator):
    """All tensors as one vector, but norm parameters; the last chunk is filled up with values that nobody uses."""

    exclusive = False

    def _cut(self) -> tuple[dict[str, HeadLayout], tuple[int, ...]]:
        self.size, tensors = self.config.size or 1, self.tensors
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
            layouts[FLAT] = HeadLayout({FLAT: self.size}, flat, [slice(0, self.n)], any_target=True)
        for i, t in enumerate(tensors):
            if i in ends:
                self.names.append(FLAT)
                self.spans.append(slice((ends[i] - t.numel) // self.size, -(-ends[i] // self.size)))
            else:
                self.names.append(attribute_name(t))
                self.spans.append(slice(self.n, self.n + 1))
                layouts[self.names[-1]] = HeadLayout({self.names[-1]: t.numel}, [i], [self.spans[-1]])
                self.n += 1
        return layouts, (len(tensors),)

    def _join(self, layout: HeadLayout, chunks: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Cut the vector at the ends of the tensors, each of which has a scale."""
        vector = chunks.reshape(*chunks.shape[:-2], chunks.shape[-2] * chunks.shape[-1])
        numels = [self.tensors[i].numel for i in layout.tensors]
        unused = vector.shape[-1] - sum(numels)
        for i, values in zip(layout.tensors, torch.split(vector, [*numels, unused], -1), strict=False):
            yield i, values.reshape(*values.shape[:-1], *self.tensors[i].shape) * self.scale[i]
