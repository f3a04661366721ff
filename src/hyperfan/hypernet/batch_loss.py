"""One loss of a batch in which each sample, or group, has its own code."""

from collections.abc import Mapping, MutableMapping
from typing import Any

ITEMS = "num_items_in_batch"
"""The argument with which a Trainer asks for the sum of a batch's losses over this number of items."""


def for_each_code(kwargs: Mapping[str, Any], codes: int) -> dict[str, Any]:
    """The mainnet's arguments where each of many codes has a part of the batch, and so of its items.

    With N items, n codes and the loss sum_i / (N/n) of each, the batch has Σ_i sum_i / N: the mean of the losses. It is
    the mean also where a mainnet does not use the number.
    """
    items = kwargs.get(ITEMS)
    return dict(kwargs) if items is None else {**kwargs, ITEMS: items / codes}


def of_batch(outputs: Any) -> Any:
    """Outputs with the mean of the losses that each code has."""
    if isinstance(outputs, MutableMapping) and "loss" in outputs:
        outputs["loss"] = outputs["loss"].mean()
        return outputs
    return (outputs[0].mean(), *outputs[1:]) if isinstance(outputs, tuple) else outputs
