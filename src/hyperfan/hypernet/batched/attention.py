"""Rules of attention: a product over positions, in each sample by itself."""

from typing import Any

import torch.nn.functional as F

from hyperfan.hypernet.batched.mode import Samples, refuse, rule


@rule(F.scaled_dot_product_attention)
def scaled_dot_product_attention(s: Samples, func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any) -> Any:  # fmt: skip
    """Of all samples' batches, one behind the other."""
    qkv = (query, key, value)
    if not s.any((*qkv, attn_mask)):
        return refuse(func) if dropout_p else func(*qkv, attn_mask, dropout_p, is_causal, **kwargs)
    nd = s.ndim(query)
    if any(s.ndim(x) != nd for x in qkv) or nd < 3 or len({s.shape(x)[0] for x in qkv}) > 1:
        refuse(func)
    mask = attn_mask
    if mask is not None and (s.has(mask) or (mask.ndim == nd and len(mask) > 1)):
        if s.ndim(mask) != nd or s.shape(mask)[0] != s.shape(query)[0]:
            refuse(func)
        mask = s.batched(mask).flatten(0, 1)
    made = func(*(s.batched(x).flatten(0, 1) for x in qkv), mask, dropout_p, is_causal, **kwargs)
    return s.mark(made.view(s.n, len(made) // s.n, *made.shape[1:]))
