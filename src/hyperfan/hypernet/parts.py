"""The parts of a hypernet, built to fit each other: embeddings, trunk and generator."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from hyperfan.codes.embedding import Embedding
from hyperfan.codes.embeddings import Embeddings
from hyperfan.codes.noise import noise_groups
from hyperfan.codes.trunk import Trunk, make_trunk, read_trunk, trunk_width
from hyperfan.generators.base import BuildContext, Generator, GeneratorConfig
from hyperfan.generators.linear import Linear, Sharing
from hyperfan.mainnet.spec import Spec, TensorSpec


class Parts(NamedTuple):
    """From embeddings to generated tensors.

    Args:
        embeddings: conditions and identities.
        trunk: from embeddings to codes, if there is one.
        trunk_spec: its layers, if it has any.
        generator: from codes to tensors.
    """

    embeddings: Embeddings
    trunk: nn.Module | None
    trunk_spec: Spec | None
    generator: Generator


def build_parts(
    tensors: Sequence[TensorSpec],
    embedding: int | Embedding,
    trunk: Trunk,
    heads: Sharing | GeneratorConfig | None,
    device: torch.device,
) -> Parts:
    """The parts that generate these tensors, without values; arguments as of :class:`HyperNet`."""
    embedding = embedding if isinstance(embedding, Embedding) else Embedding(embedding)
    heads = heads or ("shared" if embedding.per == "tensor" else "separate")
    config = heads if isinstance(heads, GeneratorConfig) else Linear(heads)
    config.check(embedding, has_trunk=isinstance(trunk, nn.Module) or bool(trunk))
    dtype, size = tensors[0].dtype, embedding.size + config.identity.size
    module = make_trunk(trunk, size, device, dtype)
    width = trunk_width(module, size)
    generator = config.build(BuildContext(tensors, width, embedding.normalise, device, dtype))
    groups = noise_groups(embedding, tensors, generator.spans, generator.n, generator.exclusive)
    embeddings = Embeddings(embedding, generator.n, device, dtype, config.identity, groups)
    return Parts(embeddings, module, read_trunk(module, size), generator)
