"""How much the nets of two conditions have in common at the start.

With a share ρ of the variance generated, the weights of two codes h and h′ have correlation 1 − ρ + ρ·cos(h, h′).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.hypernet import HyperNet

CONDITIONS = 4
"""Number of conditions that are compared, each with each."""


def calls(net: HyperNet, embeddings: Tensor | None) -> list[dict[str, Any]]:
    """The arguments of calls with different conditions: tasks, or embeddings that are given; none if there is one."""
    tasks = net.embeddings.config.tasks
    if tasks is not None:
        return [{"task": i} for i in range(min(tasks, CONDITIONS))]
    return [] if embeddings is None else [{"embedding": e} for e in embeddings[:CONDITIONS]]


@torch.no_grad()
def correlation(net: HyperNet, conditions: Sequence[Mapping[str, Any]], names: Sequence[str]) -> float | None:
    """The mean cosine between what two conditions make of these tensors, each counted by its size."""
    count, sums, lengths = len(conditions), dict[str, Tensor](), dict.fromkeys(names, 0)
    if count < 2:
        return None
    for condition in conditions:  # one by one, so that few sets of weights are held
        made = net.generate(**condition, noise=False)
        for name in names:
            norm = torch.linalg.vector_norm(made[name])
            if norm > 0:
                lengths[name] += 1
                unit = (made[name] / norm).double()
                sums[name] = unit if name not in sums else sums[name] + unit
    whole = [name for name in names if lengths[name] == count]
    if not whole:
        return None
    sizes = {name: sums[name].numel() for name in whole}
    cosines = {name: (sums[name].square().sum().item() - count) / (count * (count - 1)) for name in whole}
    return sum(cosines[name] * sizes[name] for name in whole) / sum(sizes.values())
