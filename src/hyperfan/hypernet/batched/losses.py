"""Rules of losses, of which each sample has its own."""

from typing import Any

import torch.nn.functional as F

from hyperfan.hypernet.batched.mode import Samples, refuse, rule


@rule(F.cross_entropy)
def cross_entropy(s: Samples, func: Any, input: Any, target: Any, weight: Any = None, size_average: Any = None,
                  ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Any:  # fmt: skip
    """Of (rows, classes) logits and (rows,) classes."""
    if not s.any((input, target, weight)):
        return func(input, target, weight, None, ignore_index, None, reduction, label_smoothing)
    plain = weight is None and size_average is None and reduce is None and not label_smoothing
    if not plain or s.ndim(input) != 2 or s.ndim(target) != 1:
        refuse(func)
    input, target = s.batched(input), s.batched(target)
    each = func(input.flatten(0, 1), target.flatten(), ignore_index=ignore_index, reduction="none").view(target.shape)
    if reduction == "none":
        return s.mark(each)
    return s.mark(each.sum(1) if reduction == "sum" else each.sum(1) / (target != ignore_index).sum(1))
