"""Hyperfan init for people who keep their own hypernet: in place, beside ``torch.nn.init``.

A head is a linear layer whose outputs are a tensor of the mainnet. Its weight, in torch's layout, has shape
(number of generated values, d_k); its bias, if it has one, starts at zero (``torch.nn.init.zeros_(head.bias)``).
With "relu" or "linear" these are Table 1 of the paper, where the nonlinearity is the one that follows the layer. Any
other is taken to be the one that the layer *reads*, with its numerically integrated gain.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hyperfan.codes.draw import Distribution, fill_
from hyperfan.errors import InitError
from hyperfan.formulas import targets
from hyperfan.formulas.contraction import LINEAR_HEAD, reach_variance
from hyperfan.formulas.fans import Fans
from hyperfan.mainnet.gains import gains


def hyperfan_in_uniform_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    biases_generated: bool = False,
    stride: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill a head's weight so that the generated tensor keeps the mainnet's forward variance.

    Var(H) = gain / (2^HBias · d_j · receptive field · d_k · Var(e))

    Args:
        weight: the head's weight, (values of the mainnet tensor, d_k).
        shape: the mainnet tensor's shape, (out, in / groups, *kernel), or (in, out / groups, *kernel) if transposed.
        nonlinearity: "relu" or "linear" as in the paper's table, for what follows the layer; any other name of
            ``torch.nn.functional`` for what the layer reads.
        biases_generated: whether the hypernet also makes this layer's bias.
        stride: of the mainnet's convolution; it counts in the fan-in of a transposed one.
        groups: of the mainnet's convolution.
        transposed: whether the mainnet layer is a transposed convolution.
        embedding_var: Var(e), or the mean square of what enters the head.
        generator: source of randomness.

    >>> head = torch.nn.Linear(50, 500 * 784)
    >>> _ = hyperfan_in_uniform_(head.weight, (500, 784))
    >>> _ = torch.nn.init.zeros_(head.bias)
    >>> round(head.weight.var().item() * 784 * 50, 2)
    1.0
    """
    v = _in_weight(_fans(weight, shape, groups, transposed, stride), nonlinearity, biases_generated)
    return _fill(weight, v, embedding_var, "uniform", generator)


def hyperfan_in_normal_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    biases_generated: bool = False,
    stride: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """:func:`hyperfan_in_uniform_` with a normal distribution."""
    v = _in_weight(_fans(weight, shape, groups, transposed, stride), nonlinearity, biases_generated)
    return _fill(weight, v, embedding_var, "normal", generator)


def hyperfan_out_uniform_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    stride: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill a head's weight so that the generated tensor keeps the mainnet's backward variance.

    Var(H) = gain / (d_i · receptive field · d_k · Var(e))

    Arguments as for :func:`hyperfan_in_uniform_`; whether biases are generated plays no part. The paper leaves the
    stride out.
    """
    v = _out_weight(_fans(weight, shape, groups, transposed, stride), nonlinearity)
    return _fill(weight, v, embedding_var, "uniform", generator)


def hyperfan_out_normal_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    stride: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """:func:`hyperfan_out_uniform_` with a normal distribution."""
    v = _out_weight(_fans(weight, shape, groups, transposed, stride), nonlinearity)
    return _fill(weight, v, embedding_var, "normal", generator)


def hyperfan_in_bias_uniform_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill the weight of a head that makes a bias: gain / (2 · d_l · Var(e)).

    ``shape`` is the shape of the layer's *weight*, as for the weight's own head.
    """
    _fans(weight, shape, groups, transposed, bias=True)
    v = _in_bias(nonlinearity)
    return _fill(weight, v, embedding_var, "uniform", generator)


def hyperfan_in_bias_normal_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """:func:`hyperfan_in_bias_uniform_` with a normal distribution."""
    _fans(weight, shape, groups, transposed, bias=True)
    v = _in_bias(nonlinearity)
    return _fill(weight, v, embedding_var, "normal", generator)


def hyperfan_out_bias_uniform_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill the weight of a head that makes a bias: max(gain · (1 − d_j/d_i) / (d_l · Var(e)), 0).

    ``shape`` is the shape of the layer's *weight*; the kernel plays no part.
    """
    v = _out_bias(_fans(weight, shape, groups, transposed, bias=True), nonlinearity)
    return _fill(weight, v, embedding_var, "uniform", generator)


def hyperfan_out_bias_normal_(
    weight: Tensor,
    shape: Sequence[int],
    nonlinearity: str = "linear",
    *,
    groups: int = 1,
    transposed: bool = False,
    embedding_var: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """:func:`hyperfan_out_bias_uniform_` with a normal distribution."""
    v = _out_bias(_fans(weight, shape, groups, transposed, bias=True), nonlinearity)
    return _fill(weight, v, embedding_var, "normal", generator)


def _in_weight(fans: Fans, nonlinearity: str, biases_generated: bool) -> float:
    return targets.fan_in_weight(fans.fan_in, gains(nonlinearity).forward, 0.5 if biases_generated else 0.0)


def _out_weight(fans: Fans, nonlinearity: str) -> float:
    return targets.fan_out_weight(fans.fan_out, gains(nonlinearity).backward)


def _in_bias(nonlinearity: str) -> float:
    return targets.fan_in_bias(_output(nonlinearity))


def _out_bias(fans: Fans, nonlinearity: str) -> float:
    consumed = _output(nonlinearity) / gains(nonlinearity).forward
    return targets.fan_out_bias(fans.fan_in, _out_weight(fans, nonlinearity), consumed, _output(nonlinearity))


def _output(nonlinearity: str) -> float:
    """Second moment of the layer's output: the paper doubles it before a ReLU; else the gain undoes what was read."""
    return 2.0 if nonlinearity == "relu" else 1.0


def _fans(
    weight: Tensor,
    shape: Sequence[int],
    groups: int,
    transposed: bool,
    stride: int | Sequence[int] = 1,
    *,
    bias: bool = False,
) -> Fans:
    """The mainnet layer's fans, once the head is seen to fit it."""
    if not isinstance(weight, Tensor):
        raise InitError(f"the head's weight is a {type(weight).__name__}: pass head.weight")
    if len(shape) < 2:
        raise InitError(f"shape={tuple(shape)}: the shape of a layer's weight has at least an output and an input side")
    if transposed:
        inputs, outputs = shape[0], shape[1] * groups
    else:
        inputs, outputs = shape[1] * groups, shape[0]
    values = outputs if bias else math.prod(shape)
    if weight.ndim != 2 or weight.shape[0] != values:
        what = f"{values} values ({'a bias' if bias else '×'.join(map(str, shape))})"
        turned = weight.ndim == 2 and weight.shape[1] == values
        hint = "it looks transposed: pass weight.T" if turned else f"it should be ({values}, d_k)"
        raise InitError(f"the head's weight is {tuple(weight.shape)}, but it makes {what}: {hint}")
    if outputs % groups or inputs % groups:
        raise InitError(f"groups={groups} does not divide the {inputs} input and {outputs} output channels")
    kernel = shape[2:]
    strides = [stride] * len(kernel) if isinstance(stride, int) else stride
    return Fans.conv(inputs, outputs, kernel, strides, groups, transposed)


def _fill(
    weight: Tensor,
    v: float,
    embedding_var: float,
    distribution: Distribution,
    generator: torch.Generator | None,
) -> Tensor:
    if not embedding_var > 0:
        raise InitError(f"embedding_var={embedding_var}: the variance of the embedding must be positive")
    variance = reach_variance(v, LINEAR_HEAD, {"k": weight.shape[1]}, [None, embedding_var])
    return fill_(weight, variance, distribution, generator=generator)
