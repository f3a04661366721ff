"""A chain of known layers for all samples at once: the rules of a batched run, without the mode that finds them."""

from collections.abc import Mapping
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from hyperfan.generators.stand_in import StandIn
from hyperfan.hypernet.batched.layers import lazy_linear, linear
from hyperfan.hypernet.batched.mode import Samples
from hyperfan.mainnet.chain import Chain


def run_chain(s: Samples, chain: Chain, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Outputs of all samples, (n, …), of an input that is marked or the same for all."""
    return s.unmarked(chain.run(tensors, x, partial(_linear, s), partial(_elementwise, s)))


def _linear(s: Samples, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    made = None
    if isinstance(weight, StandIn) or isinstance(bias, StandIn):
        made = lazy_linear(s, F.linear, x, weight, bias)
        weight, bias = (weight, bias) if made is not None else (s.weights(weight), s.weights(bias))
    found: Tensor = linear(s, F.linear, x, weight, bias) if made is None else made
    return found


def _elementwise(s: Samples, layer: nn.Module, x: Tensor) -> Tensor:
    made: Tensor = layer.forward(x)
    return s.mark(made) if s.has(x) else made
