"""One set of generated weights for each sample of a batch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.mainnet.skeleton import Skeleton


def run_per_sample(
    skeleton: Skeleton, tensors: dict[str, Tensor], constant: dict[str, Tensor], args: Any, kwargs: Any
) -> Any:
    """Run the mainnet by vmap: ``tensors`` and every input have a leading batch dimension, ``constant`` does not."""
    for path, m in skeleton.module.named_modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and (m.training or not m.track_running_stats):
            raise CallError(
                f"'{path}' is a batch norm in training mode, which cannot run with one set of weights per sample: "
                "call net.eval(), or use a group norm"
            )
    leaves, tree = pytree.tree_flatten((args, kwargs))
    batched = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    batch = next(iter(tensors.values())).shape[0]
    for i in batched:
        if leaves[i].ndim == 0 or leaves[i].shape[0] != batch:
            raise CallError(
                f"{batch} codes were given, one per sample; an input has shape {tuple(leaves[i].shape)}: repeat it by "
                f".expand({batch}, …)"
            )

    def one(tensors: Mapping[str, Tensor], inputs: list[Tensor]) -> Any:
        filled = list(leaves)
        for i, x in zip(batched, inputs, strict=True):
            filled[i] = x.unsqueeze(0)
        args, kwargs = pytree.tree_unflatten(filled, tree)
        out = skeleton({**tensors, **constant}, *args, **kwargs)
        return pytree.tree_map_only(Tensor, lambda t: t.squeeze(0), out)

    return torch.func.vmap(one, randomness="different")(tensors, [leaves[i] for i in batched])
