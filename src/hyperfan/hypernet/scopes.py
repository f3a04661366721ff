"""Which embeddings get the same noise: those of a layer, of a block, or all."""

from hyperfan.errors import HyperfanError
from hyperfan.hypernet.embeddings import Embedding
from hyperfan.hypernet.layout import Layout
from hyperfan.mainnet.spec import TensorSpec


def noise_groups(embedding: Embedding, layout: Layout) -> list[int] | None:
    """For each code the number of its group, or ``None`` where each has noise of its own.

    A block is the module that holds a layer; a layer that the mainnet itself holds is one by itself.
    """
    scope = embedding.scope
    if scope == "embedding" or embedding.per == "net":
        return None
    if scope == "network":
        return [0] * layout.pieces
    if layout.mixed:
        raise HyperfanError(f"a flat chunk may span layers, so that noise has no scope='{scope}': use 'network'")
    names = [_group(t, scope) for t in layout.tensors]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    groups = [0] * layout.pieces
    for name, span in zip(names, layout.spans, strict=True):
        groups[span] = [number[name]] * (span.stop - span.start)
    return groups


def _group(tensor: TensorSpec, scope: str) -> str:
    holder, _, _ = tensor.layer.rpartition(".")
    return holder if scope == "block" and holder else tensor.layer
