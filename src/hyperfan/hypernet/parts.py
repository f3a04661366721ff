"""The parts of a hypernet, built to fit each other: embeddings, trunk and generator."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from hyperfan.codes.embedding import Embedding
from hyperfan.codes.embeddings import Embeddings, noise_groups
from hyperfan.codes.trunk import Trunk, make_trunk, read_trunk, trunk_width
from hyperfan.errors import HyperfanError
from hyperfan.generators.added import Base
from hyperfan.generators.base import BuildContext, Generator, GeneratorConfig
from hyperfan.generators.linear import Linear, Sharing
from hyperfan.generators.sliced import Slices
from hyperfan.hypernet.bases import Bases
from hyperfan.mainnet.spec import Spec, TensorSpec


class Parts(NamedTuple):
    """Embeddings, the trunk and its layers, and the generator."""

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
    bases: Bases | None,
) -> Parts:
    """The parts without values; arguments as of :class:`HyperNet`."""
    if isinstance(heads, Slices):
        source, codes = heads.source, heads.codes
        context = BuildContext(tensors, source.width, False, device, source.scale.dtype)
        return Parts(codes.embeddings, codes.trunk, None, heads.build(context))
    embedding = embedding if isinstance(embedding, Embedding) else Embedding(embedding)
    told_apart = embedding.per == "tensor" or embedding.identity is not None
    heads = heads or ("shared" if told_apart else "separate")
    config = heads if isinstance(heads, GeneratorConfig) else Linear(heads)
    unfit = config.why_unfit(embedding, has_trunk=isinstance(trunk, nn.Module) or bool(trunk))
    if unfit is not None:
        raise HyperfanError(unfit)
    dtype, identity = tensors[0].dtype, _identity(embedding, config)
    size = embedding.size + (0 if identity is None else identity.size)
    module = make_trunk(trunk, size, device, dtype)
    width = trunk_width(module, size)
    generator = config.build(BuildContext(tensors, width, embedding.normalise, device, dtype))
    if bases is not None and (bases.values or bases.multiply or not generator.base_in_bias):
        based = [t for t in tensors if t.start is None or t.name in bases.values]
        generator.base = Base(based, bases.values, device, multiply=bases.multiply)
    groups = noise_groups(embedding, tensors, generator.spans, generator.n, generator.exclusive)
    embeddings = Embeddings(embedding, generator.n, device, dtype, identity, groups)
    return Parts(embeddings, module, read_trunk(module, size), generator)


def _identity(embedding: Embedding, heads: GeneratorConfig) -> Embedding | None:
    """The identity of each code: that of the condition, or that of the heads, drawn as the condition is."""
    own = heads.identity
    if own is None:
        return embedding.own_identity
    if embedding.identity is not None:
        raise HyperfanError(
            f"Embedding(identity=…) and heads={heads} both give each code an identity: leave out one of the two"
        )
    return embedding.as_identity(own.size, own.trainable)
