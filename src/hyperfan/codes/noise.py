"""Which embeddings share their noise: those of a layer, of a block, or all."""

from collections.abc import Sequence

from hyperfan.codes.embedding import Embedding
from hyperfan.errors import HyperfanError
from hyperfan.mainnet.spec import TensorSpec


def noise_groups(
    embedding: Embedding, tensors: Sequence[TensorSpec], spans: Sequence[slice], n: int, exclusive: bool
) -> list[int] | None:
    """For each code the number of its group, or ``None`` where each has noise of its own.

    A block is the module that holds a layer; a layer that the mainnet itself holds is one by itself.

    Args:
        embedding: tells the scope.
        tensors: what is generated.
        spans: the codes of each tensor.
        n: number of codes.
        exclusive: whether each code belongs to one tensor.
    """
    scope = embedding.scope
    if scope == "embedding" or embedding.per == "net":
        return None
    if scope == "network":
        return [0] * n
    if not exclusive:
        raise HyperfanError(f"a flat chunk may span layers, so that noise has no scope='{scope}': use 'network'")
    names = [_group(t, scope) for t in tensors]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    groups = [0] * n
    for name, span in zip(names, spans, strict=True):
        groups[span] = [number[name]] * (span.stop - span.start)
    return groups


def _group(tensor: TensorSpec, scope: str) -> str:
    holder, _, _ = tensor.layer.rpartition(".")
    return holder if scope == "block" and holder else tensor.layer
