"""Attention: the scale of its logits, before the softmax, if queries and keys have unit scale.

A dot product of d terms has second moment d. Most attention divides by √d, and the logits start at 1. T5 does not: its
authors start the queries at 1/d instead, because at d the softmax would choose one key and pass no gradient.

What comes out, a mixture Σ pᵢ·vᵢ of n values, has a mean square between that of one value (all are alike, or the
softmax chose one) and Σ pᵢ² of it (they are independent). How alike values are at different positions, only data tell;
the plan takes a mean of the bounds (:func:`~hyperfan.formulas.gains.attention_mean_square`), with n as in the example.
"""

from collections.abc import Sequence

from torch import Tensor

from hyperfan.mainnet import operations as op
from hyperfan.mainnet.replay import TorchCall
from hyperfan.mainnet.trails import Logits, Trail


def logits(call: TorchCall, inputs: Sequence[Trail]) -> Logits | None:
    """What a product of traced queries and keys makes; ``None`` of any other product."""
    terms = _summed_terms(call)
    slopes = [trail.slope for trail in inputs[:2]]
    if terms is None or len(slopes) != 2 or slopes[0] is None or slopes[1] is None:
        return None
    queries, keys = inputs[:2]
    second_moment = terms * (slopes[0] * slopes[1]) ** 2
    if call.name == "scaled_dot_product_attention" and (scale := call.kwargs.get("scale")) is not None:
        second_moment *= scale**2
    elif call.name == "scaled_dot_product_attention":
        second_moment /= terms
    alone = len(queries.sources) == 1 and not queries.sources & keys.sources and not queries.normalised
    return Logits(queries.sources if alone else frozenset(), second_moment)


def mixed_keys(call: TorchCall, weights: Tensor | None) -> int:
    """How many values each mixture of an attention has; 1 of any other product.

    Args:
        call: the product.
        weights: what a softmax made and the product was given, if anything.
    """
    if call.name == "scaled_dot_product_attention":
        key = call.args[1] if len(call.args) > 1 else call.kwargs.get("key")
        return key.shape[-2] if isinstance(key, Tensor) and key.ndim > 1 else 1
    return 1 if weights is None or not weights.ndim else weights.shape[-1]


def _summed_terms(call: TorchCall) -> int | None:
    """The number of terms in each dot product."""
    first = call.args[0] if call.args else call.kwargs.get("query")
    if call.name in op.PLAIN_PRODUCTS or call.name == "scaled_dot_product_attention":
        return first.shape[-1] if isinstance(first, Tensor) else None
    if call.name == "einsum" and isinstance(first, str) and isinstance(call.args[1], Tensor):
        inputs, _, out = first.replace(" ", "").partition("->")
        left, _, right = inputs.partition(",")
        summed = [i for i, letter in enumerate(left) if letter in right and letter not in out]
        return call.args[1].shape[summed[0]] if len(summed) == 1 and "." not in left else None
    return None
