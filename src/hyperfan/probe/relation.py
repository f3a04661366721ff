"""How much the nets of two conditions have in common at the start.

With a share ρ of the variance generated, the weights of two codes h and h′ have correlation 1 − ρ + ρ·cos(h, h′).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hyperfan.hypernet import HyperNet

CONDITIONS = 4
"""Number of conditions that are compared, each with each."""


@dataclass(frozen=True)
class ConditionReading:
    """The conditions that a net is looked at under.

    Args:
        given: whether they are given at the call, and not the embeddings of tasks.
        learnt: whether those given require gradients, as the codes of an encoder that is trained with the net.
        count: number of conditions.
        values: number of values in all of them.
        square: mean square of their values.
        ratio: mean square of their values over what is expected.
        code_ratio: ‖h‖² of their codes over what the heads were started for; NaN where that is not known.
        spread: variance between conditions as a share of their mean square; ``None`` of one condition.
    """

    given: bool
    learnt: bool
    count: int
    values: int
    square: float
    ratio: float
    code_ratio: float
    spread: float | None

    @classmethod
    def of(
        cls, conditions: Tensor, expected: float, code_ratio: float, *, given: bool, learnt: bool = False
    ) -> "ConditionReading":
        """Read (count, …) conditions, of whose values this mean square is expected."""
        rows = conditions.detach().double().flatten(1)
        square = rows.square().mean().item()
        spread = None
        if len(rows) > 1:
            spread = rows.var(0, correction=0).mean().item() / square if square else 0.0
        return cls(given, learnt, len(rows), rows.numel(), square, square / expected, code_ratio, spread)


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
    nonzero = [name for name in names if lengths[name] == count]
    if not nonzero:
        return None
    sizes = {name: sums[name].numel() for name in nonzero}
    cosines = {name: (sums[name].square().sum().item() - count) / (count * (count - 1)) for name in nonzero}
    return sum(cosines[name] * sizes[name] for name in nonzero) / sum(sizes.values())
