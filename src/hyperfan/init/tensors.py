"""Hyperfan init for people who keep their own hypernet: in place, beside ``torch.nn.init``.

A head is a linear layer whose outputs are a tensor of the mainnet. Its weight, in torch's layout, has shape
(number of generated values, d_k); its bias, if it has one, starts at zero (``torch.nn.init.zeros_(head.bias)``).
With "relu" or "linear" these are Table 1 of the paper, where the nonlinearity is the one that follows the layer. Any
other is taken to be the one that the layer *reads*, with its numerically integrated gain.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor

from hyperfan.codes.draw import Distribution, fill_
from hyperfan.errors import InitError
from hyperfan.formulas import targets
from hyperfan.formulas.contraction import LINEAR_HEAD, contraction_variance
from hyperfan.formulas.fans import Fans
from hyperfan.mainnet.gains import gains


class HeadOptions(TypedDict, total=False):
    """Keyword arguments of all functions here.

    Args:
        bias: whether the head makes the layer's bias, and not its weight; the shape is that of the weight all the same.
        biases_generated: whether the hypernet also makes this layer's bias; it counts in hyperfan-in of a weight.
        stride: of the mainnet's convolution; it counts in the fan-in of a transposed one, and in the fan-out of others,
            where the paper leaves it out.
        groups: of the mainnet's convolution.
        transposed: whether the mainnet layer is a transposed convolution.
        embedding_var: Var(e), or the mean square of what enters the head; by default 1.
        generator: source of randomness.
    """

    bias: bool
    biases_generated: bool
    stride: int | Sequence[int]
    groups: int
    transposed: bool
    embedding_var: float
    generator: torch.Generator | None


def hyperfan_in_uniform_(
    weight: Tensor, shape: Sequence[int], nonlinearity: str = "linear", **options: Unpack[HeadOptions]
) -> Tensor:
    """Fill a head's weight so that the generated tensor keeps the mainnet's forward variance.

    Var(H) = gain / (2^HBias · d_j · receptive field · d_k · Var(e)); of a bias, Var(H) = gain / (2 · d_l · Var(e)).

    Args:
        weight: the head's weight, (values of the mainnet tensor, d_k).
        shape: the mainnet tensor's shape, (out, in / groups, *kernel), or (in, out / groups, *kernel) if transposed.
        nonlinearity: "relu" or "linear" as in the paper's table, for what follows the layer; any other name of
            ``torch.nn.functional`` for what the layer reads.
        options: the layer and the embedding, see :class:`HeadOptions`.

    >>> head = torch.nn.Linear(50, 500 * 784)
    >>> _ = hyperfan_in_uniform_(head.weight, (500, 784))
    >>> _ = torch.nn.init.zeros_(head.bias)
    >>> round(head.weight.var().item() * 784 * 50, 2)
    1.0
    """
    return _fill("in", "uniform", weight, shape, nonlinearity, **options)


def hyperfan_in_normal_(
    weight: Tensor, shape: Sequence[int], nonlinearity: str = "linear", **options: Unpack[HeadOptions]
) -> Tensor:
    """:func:`hyperfan_in_uniform_` with a normal distribution."""
    return _fill("in", "normal", weight, shape, nonlinearity, **options)


def hyperfan_out_uniform_(
    weight: Tensor, shape: Sequence[int], nonlinearity: str = "linear", **options: Unpack[HeadOptions]
) -> Tensor:
    """Fill a head's weight so that the generated tensor keeps the mainnet's backward variance.

    Var(H) = gain / (d_i · receptive field · d_k · Var(e)); of a bias max(gain · (1 − d_j/d_i) / (d_l · Var(e)), 0),
    where the kernel plays no part. Arguments as for :func:`hyperfan_in_uniform_`.
    """
    return _fill("out", "uniform", weight, shape, nonlinearity, **options)


def hyperfan_out_normal_(
    weight: Tensor, shape: Sequence[int], nonlinearity: str = "linear", **options: Unpack[HeadOptions]
) -> Tensor:
    """:func:`hyperfan_out_uniform_` with a normal distribution."""
    return _fill("out", "normal", weight, shape, nonlinearity, **options)


def _fill(
    preserved: Literal["in", "out"],
    distribution: Distribution,
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str,
    *,
    bias: bool = False,
    biases_generated: bool = False,
    stride: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    fans, gain = _fans(weight, shape, groups, transposed, stride, bias), gains(nonlinearity)
    # Second moment of the layer's output: the paper doubles it before a ReLU; else the gain undoes what was read.
    output = 2.0 if nonlinearity == "relu" else 1.0
    if preserved == "in":
        bias_share = 0.5 if biases_generated else 0.0
        v = targets.fan_in_bias(output) if bias else targets.fan_in_weight(fans.fan_in, gain.forward, bias_share)
    else:
        v = targets.fan_out_weight(fans.fan_out, gain.backward)
        if bias:
            v = targets.fan_out_bias(fans.fan_in, v, output / gain.forward, output)
    if not embedding_var > 0:
        raise InitError(f"embedding_var={embedding_var}: the variance of the embedding must be positive")
    made_by_unit_variance = contraction_variance(LINEAR_HEAD, {"k": weight.shape[1]}, [1.0, embedding_var])
    return fill_(weight, v / made_by_unit_variance, distribution, generator=generator)


def _fans(
    weight: Tensor, shape: Sequence[int], groups: int, transposed: bool, stride: int | Sequence[int], bias: bool
) -> Fans:
    """The mainnet layer's fans, once the head is seen to fit it."""
    if not isinstance(weight, Tensor):
        raise InitError(f"the head's weight is a {type(weight).__name__}: pass head.weight")
    if len(shape) < 2:
        raise InitError(f"shape={tuple(shape)}: the shape of a layer's weight has at least an output and an input side")
    outputs = shape[1] * groups if transposed else shape[0]
    values = outputs if bias else math.prod(shape)
    if weight.ndim != 2 or weight.shape[0] != values:
        what = f"{values} values ({'a bias' if bias else '×'.join(map(str, shape))})"
        turned = weight.ndim == 2 and weight.shape[1] == values
        hint = "it looks transposed: pass weight.T" if turned else f"it should be ({values}, d_k)"
        raise InitError(f"the head's weight is {tuple(weight.shape)}, but it makes {what}: {hint}")
    if shape[0] % groups:
        raise InitError(
            f"groups={groups} does not divide the {shape[0]} {'input' if transposed else 'output'} channels"
        )
    return Fans.of_weight(shape, stride, groups, transposed)
