"""A generated weight that may never be made: a layer can be run from the code itself, or from the factors of a product.

With W = Σ_k h_k·H_k + B, a linear layer or convolution is linear in W, so there are two orders for W(x):

    weights first:  (Σ_k h_k·H_k + B)(x)            makes W for each code
    codes last:     Σ_k h_k·(H_k(x)) + B(x)         makes d_k outputs for each input row, and never W

Where each code serves one row, the second is as cheap and needs far less memory. Where a code serves many rows (a
batch, the positions of a convolution), the first is d_k times cheaper.

With W = W⁰ + L·R of low rank, W⁰(x) + L(R(x)) is cheaper than making W, and backward there is no gradient of W.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.generators.linear_map import Head
from hyperfan.mainnet.checkpointing import Composite

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


OrderOf = Callable[[str, Sizes], Order]
"""From the name of a tensor, and the sizes of a layer, to the order in which to run it."""


def cheaper(s: Sizes) -> Order:
    """The order that costs less, in multiplications and values touched."""
    weights_first = s.weight * (s.width + s.rows + TOUCH_COST)
    codes_last = s.rows * s.width * (s.weight + s.outputs + TOUCH_COST * s.outputs)
    return "codes" if codes_last < weights_first else "weights"


class StandIn(Composite):
    """Stands for one generated weight. Linear layers and convolutions run without it; the rest sees the weight.

    It may stand for the weights of n samples, of which it says the shape of one. Then ``make`` returns (n, …), and
    ``linear`` and ``convolution`` take the inputs of all, (n, rows, inputs) or (n·batch, channels, …).
    """

    @classmethod
    def _of_shape(cls, shape: Sequence[int], like: Tensor) -> Self:
        found = Tensor._make_wrapper_subclass(cls, tuple(shape), dtype=like.dtype, device=like.device)
        assert isinstance(found, cls)
        return found

    @abstractmethod
    def make(self) -> Tensor:
        """The weight itself, computed."""

    def part(self, cut: Callable[[Tensor], Tensor]) -> Tensor:
        """What a function leaves of the weight, which picks values along its last dimensions."""
        return cut(self.make())

    @abstractmethod
    def linear(self, x: Tensor, bias: Tensor | None) -> Any:
        """A linear layer with this weight, or ``NotImplemented`` if the weight is to be made for it."""

    @abstractmethod
    def convolution(self, convolve: Callable[..., Tensor], x: Tensor, bias: Tensor | None, settings: Any) -> Any:
        """A convolution in one group with this weight, as ``linear``; settings are stride, padding and dilation."""

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
    def _dispatch(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run on the weight what comes here without having been a function of torch first."""
        return _on_weights(func, args, kwargs or {})

    __torch_dispatch__: Any = _dispatch


def _on_weights(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return func(*map(_materialise, args), **{name: _materialise(x) for name, x in kwargs.items()})


def _materialise(x: Any) -> Any:
    if isinstance(x, StandIn):
        return x.make()
    return type(x)(map(_materialise, x)) if isinstance(x, (list, tuple)) else x


def _linear(input: Tensor, weight: Any, bias: Tensor | None = None) -> Any:
    if not isinstance(weight, StandIn) or isinstance(input, StandIn) or weight.ndim != 2:
        return NotImplemented
    return weight.linear(input, _materialise(bias))


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
        return weight.convolution(convolve, input, _materialise(bias), (stride, padding, dilation))

    return run


_LAYERS: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    F.conv1d: _convolution(F.conv1d, 1),
    F.conv2d: _convolution(F.conv2d, 2),
    F.conv3d: _convolution(F.conv3d, 3),
}
_PROPERTIES = ("shape", "dtype", "device", "layout", "ndim", "is_sparse")
_METADATA = {getattr(Tensor, name).__get__ for name in _PROPERTIES} | {Tensor.size, Tensor.dim, Tensor.numel}


class FromCode(StandIn):
    """A weight that its head makes of a code."""

    code: Tensor
    weight: Tensor
    bias: Tensor
    order: Callable[[Sizes], Order]
    trainer_linear: Callable[[Tensor, Tensor], Tensor | None] | None

    @staticmethod
    def __new__(cls, code: Tensor, head: Head, shape: tuple[int, ...], order: Callable[[Sizes], Order]) -> "FromCode":
        """Make one of its code (d_k,), or the codes of n weights (n, d_k), its head, and who chooses the order."""
        stand_in = cls._of_shape(shape, head.weight)
        stand_in.weight, stand_in.bias = head.weight, head.bias
        stand_in.code = code.to(stand_in.weight.dtype)
        stand_in.order, stand_in.trainer_linear = order, None if head.trainer is None else head.trainer.linear
        return stand_in

    def parts(self) -> list[Tensor]:
        """The code; its head is a parameter."""
        return [self.code]

    def of_parts(self, parts: Sequence[Tensor]) -> Self:
        """A weight of the same head, from another code."""
        stand_in = self._of_shape(self.shape, self.weight)
        stand_in.weight, stand_in.bias, (stand_in.code,) = self.weight, self.bias, parts
        stand_in.order, stand_in.trainer_linear = self.order, self.trainer_linear
        return stand_in

    @property
    def codes(self) -> Tensor:
        """The codes of n weights, (n, d_k), also of one."""
        return self.code if self.code.ndim == 2 else self.code.unsqueeze(0)

    def make(self) -> Tensor:
        """The weight that the head makes of the code."""
        return (self.code @ self.weight + self.bias).view(*self.code.shape[:-1], *self.shape)

    def part(self, cut: Callable[[Tensor], Tensor]) -> Tensor:
        """A part of the weight, made by that part of its head."""
        weight, bias = cut(self.weight.view(-1, *self.shape)), cut(self.bias.view(self.shape))
        return (self.code @ weight.flatten(1) + bias.flatten()).view(*self.code.shape[:-1], *bias.shape)

    def linear(self, x: Tensor, bias: Tensor | None) -> Any:
        """A linear layer, in the cheaper order."""
        (outputs, inputs), (n, width) = self.shape, self.codes.shape
        batches = x.reshape(n, -1, inputs)
        if self.order(Sizes(width, outputs * inputs, outputs, batches.shape[1])) == "weights":
            return NotImplemented
        made = None if self.trainer_linear is None else self.trainer_linear(batches, self.codes)
        if made is None:
            each = F.linear(batches, self.weight.view(width * outputs, inputs)).view(n, -1, width, outputs)
            made = (self.codes[:, None, None] @ each).squeeze(-2) + F.linear(batches, self.bias.view(outputs, inputs))
        made = made.view(*x.shape[:-1], outputs)
        return made if bias is None else made + bias

    def convolution(self, convolve: Callable[..., Tensor], x: Tensor, bias: Tensor | None, settings: Any) -> Any:
        """A convolution, in the cheaper order."""
        outputs, (n, width) = self.shape[0], self.codes.shape
        with torch.device("meta"):
            empty = convolve(torch.empty(x.shape), torch.empty(self.shape), None, *settings)
        rows = empty.numel() // max(outputs * n, 1)
        if self.order(Sizes(width, self.numel(), outputs, rows)) == "weights":
            return NotImplemented
        shared = convolve(x, self.bias.view(self.shape), bias, *settings)
        each = convolve(x, self.weight.view(width * outputs, *self.shape[1:]), None, *settings)
        each = each.reshape(n, len(x) // n, width, -1)
        return shared + (self.codes[:, None, None] @ each).view(shared.shape)


class Product(StandIn):
    """A weight (out, in, …) that is a product, on a base or not: as a matrix, base + left·right.

    Shape:
        left (out, rank), right (rank, in·…), base (out, in, …). For the weights of n samples left is (n, out, rank) or
        right is (n, rank, in·…), or both, and inputs are (n, rows, in) or (n·batch, in, …).
    """

    left: Tensor
    right: Tensor
    base: Tensor | None

    @staticmethod
    def __new__(cls, left: Tensor, right: Tensor, base: Tensor | None, shape: tuple[int, ...]) -> "Product":
        """Make one of its factors and its base."""
        stand_in = cls._of_shape(shape, left)
        stand_in.left, stand_in.right, stand_in.base = left, right, base
        return stand_in

    def parts(self) -> list[Tensor]:
        """The factors; a base is a parameter, or has no gradient."""
        return [self.left, self.right]

    def of_parts(self, parts: Sequence[Tensor]) -> Self:
        """A product of other factors on the same base."""
        stand_in = self._of_shape(self.shape, parts[0])
        (stand_in.left, stand_in.right), stand_in.base = parts, self.base
        return stand_in

    def make(self) -> Tensor:
        """The product, on its base."""
        product = self.left @ self.right
        product = product.view(*product.shape[:-2], *self.shape)
        return product if self.base is None else product + self.base

    def linear(self, x: Tensor, bias: Tensor | None) -> Any:
        """Base(x) + left(right(x)), without the weight."""
        narrow = torch.bmm(x, self.right.mT) if self.right.ndim == 3 else x @ self.right.mT
        if self.base is not None and self.left.ndim == 3:
            return torch.baddbmm(F.linear(x, self.base, bias), narrow, self.left.mT)
        update = narrow @ self.left.mT
        if self.base is not None:
            return F.linear(x, self.base, bias) + update
        return update if bias is None else update + bias.to(update.dtype)  # as a layer does under autocast

    def convolution(self, convolve: Callable[..., Tensor], x: Tensor, bias: Tensor | None, settings: Any) -> Any:
        """Base(x) + left(right(x)), where ``left`` is a convolution of width 1."""
        *samples, outputs, rank = self.left.shape
        kernels = self.right.reshape(-1, *self.shape[1:])
        if self.right.ndim == 2:
            narrow = convolve(x, kernels, None, *settings)
        else:  # a group for each sample
            n = len(self.right)
            rows = x.reshape(n, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)
            narrow = convolve(rows, kernels, None, *settings, n)
            narrow = narrow.view(len(rows), n, rank, *narrow.shape[2:]).transpose(0, 1).flatten(0, 1)
        if samples:
            each = narrow.reshape(len(self.left), -1, rank, narrow[0, 0].numel())
            update = (self.left.unsqueeze(1) @ each).view(len(narrow), outputs, *narrow.shape[2:])
        else:
            update = convolve(narrow, self.left.view(*self.left.shape, *[1] * (len(self.shape) - 2)))
        if self.base is not None:
            return convolve(x, self.base, bias, *settings) + update
        return update if bias is None else update + bias.view(-1, *[1] * (len(self.shape) - 2))
