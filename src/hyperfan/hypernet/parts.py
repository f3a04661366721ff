"""The parts of a hypernet, built to fit each other: embeddings, trunk and generator."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from hyperfan.codes.embedding import CODE, Embedding
from hyperfan.codes.embeddings import Embeddings, noise_groups
from hyperfan.codes.identities import read_identities
from hyperfan.codes.trunk import Trunk, make_trunk, read_trunk, trunk_width
from hyperfan.errors import HyperfanError
from hyperfan.generators.config import BuildContext, GeneratorConfig
from hyperfan.generators.generator import Generator
from hyperfan.generators.layout import Sharing
from hyperfan.generators.linear import Linear
from hyperfan.hypernet.bases import Bases
from hyperfan.mainnet.spec import Spec, TensorSpec


class Parts(NamedTuple):
    """Embeddings, the trunk and its layers, and the generator."""

    embeddings: Embeddings
    trunk: nn.Module | None
    trunk_spec: Spec | None
    generator: Generator


def read_heads(heads: Sharing | GeneratorConfig | None, embedding: Embedding) -> GeneratorConfig:
    """The choice of a generator; by default linear heads, which are shared if no two codes are equal."""
    if isinstance(heads, GeneratorConfig):
        return heads
    have_distinct_codes = embedding.per == "tensor" or embedding.identity is not None
    return Linear(heads or ("shared" if have_distinct_codes else "separate"))


def build_parts(
    tensors: Sequence[TensorSpec],
    embedding: Embedding,
    trunk: Trunk,
    heads: GeneratorConfig,
    device: torch.device,
    bases: Bases | None,
) -> Parts:
    """The parts without values; arguments as of :class:`HyperNet`."""
    unfit = heads.why_unfit(embedding, has_trunk=isinstance(trunk, nn.Module) or bool(trunk))
    if unfit is not None:
        raise HyperfanError(unfit)
    if (codes := heads.codes) is not None:
        generator = heads.build(BuildContext(tensors, embedding.size, embedding.normalise, device, tensors[0].dtype))
        return Parts(codes.embeddings, codes.trunk, None, generator)
    dtype, identities = tensors[0].dtype, _identities(embedding, heads)
    size = embedding.size + sum(identity.size for identity in identities.values())
    module = make_trunk(trunk, size, device, dtype)
    width = trunk_width(module, size)
    generator = heads.build(BuildContext(tensors, width, embedding.normalise, device, dtype))
    if bases is not None and (bases.values or bases.multiply or not generator.bias_may_hold_base):
        generator.add_base(bases.values, device, multiply=bases.multiply)
    groups = noise_groups(embedding, tensors, generator.spans, generator.n, generator.exclusive)
    shared, n = [layout.rows for layout in generator.layouts.values()], generator.n
    identity = read_identities(identities, tensors, generator.spans, n, generator.exclusive, shared)
    embeddings = Embeddings(embedding, n, device, dtype, identity, groups)
    return Parts(embeddings, module, read_trunk(module, size), generator)


def _identities(embedding: Embedding, heads: GeneratorConfig) -> dict[str, Embedding]:
    """The identities of codes: those of the condition, or that of the heads, drawn as the condition is."""
    identity = heads.identity
    if identity is None:
        return embedding.identities
    if embedding.identity is not None:
        raise HyperfanError(
            f"Embedding(identity=…) and heads={heads} both give each code an identity: leave out one of the two"
        )
    return {CODE: embedding.as_identity(identity.size, identity.trainable)}
