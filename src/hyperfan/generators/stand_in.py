"""A generated weight that may never be made: a layer can be run from the code itself.

With W = Σ_k h_k·H_k + B, a linear layer or convolution is linear in W, so there are two orders for W(x):

    weights first:  (Σ_k h_k·H_k + B)(x)            makes W for each code
    codes last:     Σ_k h_k·(H_k(x)) + B(x)         makes d_k outputs for each input row, and never W

Where each code serves one row, the second is as cheap and needs far less memory. Where a code serves many rows (a
batch, the positions of a convolution), the first is d_k times cheaper.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.generators.linear_map import Head

Order = Literal["weights", "codes"]
TOUCH_COST = 100.0
"""Cost of a generated value, kept and with its gradient, in multiplications: about what ``benchmarks/orders.py``
shows on CPUs, where new memory is slow."""


class Sizes(NamedTuple):
    """One layer, run with one code of a width d_k: the values in its weight, and its output features or channels.

    Rows are those of its input, or the output positions of a convolution.
    """

    width: int
    weight: int
    outputs: int
    rows: int


def cheaper(s: Sizes) -> Order:
    """The order that costs less, in multiplications and values touched."""
    weights_first = s.weight * (s.width + s.rows + TOUCH_COST)
    codes_last = s.rows * s.width * (s.weight + s.outputs + TOUCH_COST * s.outputs)
    return "codes" if codes_last < weights_first else "weights"


class StandIn(Tensor):
    """Stands for one generated weight. Linear layers and convolutions run from its code; the rest sees the weight."""

    code: Tensor
    weight: Tensor
    bias: Tensor
    order: Callable[[Sizes], Order]
    linear: Callable[[Tensor, Tensor], Tensor | None] | None

    @staticmethod
    def __new__(cls, code: Tensor, head: Head, shape: tuple[int, ...], order: Callable[[Sizes], Order]) -> "StandIn":
        """From its code (d_k,), its head, and who chooses the order."""
        weight, bias = head.weight, head.bias
        stand_in = Tensor._make_wrapper_subclass(cls, shape, dtype=weight.dtype, device=weight.device)
        assert isinstance(stand_in, StandIn)
        stand_in.code, stand_in.weight, stand_in.bias = code.to(weight.dtype), weight, bias
        stand_in.order, stand_in.linear = order, None if head.trainer is None else head.trainer.linear
        return stand_in

    def make(self) -> Tensor:
        """The weight itself, generated from the code."""
        return (self.code @ self.weight + self.bias).view(self.shape)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run layers in the cheaper order, everything else on the weight."""
        kwargs = kwargs or {}
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        run = _LAYERS.get(func)
        result = NotImplemented if run is None else run(*args, **kwargs)
        return _on_weights(func, args, kwargs) if result is NotImplemented else result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch calls it with the function first, which its stubs leave out
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """For what comes here without having been a function of torch first."""
        return _on_weights(func, args, kwargs or {})


def _on_weights(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return func(*map(_materialise, args), **{name: _materialise(x) for name, x in kwargs.items()})


def _materialise(x: Any) -> Any:
    if isinstance(x, StandIn):
        return x.make()
    return type(x)(map(_materialise, x)) if isinstance(x, (list, tuple)) else x


def _linear(input: Tensor, weight: Any, bias: Tensor | None = None) -> Any:
    if not isinstance(weight, StandIn) or isinstance(input, StandIn) or weight.ndim != 2:
        return NotImplemented
    outputs, inputs = weight.shape
    width = len(weight.code)
    sizes = Sizes(width, outputs * inputs, outputs, input.numel() // max(inputs, 1))
    if weight.order(sizes) == "weights":
        return NotImplemented
    if weight.linear is not None:
        own = weight.linear(input.reshape(-1, inputs), weight.code)
        if own is not None:
            own = own.view(*input.shape[:-1], outputs)
            return own if bias is None else own + _materialise(bias)
    each = F.linear(input, weight.weight.view(width * outputs, inputs))
    each = each.view(*each.shape[:-1], width, outputs)
    shared = F.linear(input, weight.bias.view(outputs, inputs), _materialise(bias))
    return shared + (weight.code @ each)


def _convolution(convolve: Callable[..., Tensor], spatial: int) -> Callable[..., Any]:
    def run(
        input: Tensor,
        weight: Any,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        if not isinstance(weight, StandIn) or isinstance(input, StandIn) or groups != 1 or input.ndim != spatial + 2:
            return NotImplemented
        outputs, width = weight.shape[0], len(weight.code)
        with torch.device("meta"):
            empty = convolve(torch.empty(input.shape), torch.empty(weight.shape), None, stride, padding, dilation)
        rows = empty.numel() // max(outputs, 1)
        if weight.order(Sizes(width, weight.numel(), outputs, rows)) == "weights":
            return NotImplemented
        settings = (stride, padding, dilation)
        each = convolve(input, weight.weight.view(width * outputs, *weight.shape[1:]), None, *settings)
        each = each.view(len(each), width, outputs, *each.shape[2:]).movedim(1, -1)
        return convolve(input, weight.bias.view(weight.shape), _materialise(bias), *settings) + each @ weight.code

    return run


_LAYERS: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    F.conv1d: _convolution(F.conv1d, 1),
    F.conv2d: _convolution(F.conv2d, 2),
    F.conv3d: _convolution(F.conv3d, 3),
}
_PROPERTIES = ("shape", "dtype", "device", "layout", "ndim", "is_sparse")
_METADATA = {getattr(Tensor, name).__get__ for name in _PROPERTIES} | {Tensor.size, Tensor.dim, Tensor.numel}
