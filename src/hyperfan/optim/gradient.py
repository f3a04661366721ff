"""The gradient of a linear map as it comes: one code and one row for each output, never multiplied out.

A head W = C·H + 1·βᵀ that made m tensors from the codes C (m, d_k), and got back their gradients G (m, outputs), has

    ∂L/∂H = Cᵀ·G        ∂L/∂β = 1ᵀ·G

which is d_k/m times larger than what it is made of. :class:`FactoredGradient` is a tensor of that shape which holds
(C, G). It can be added, scaled and measured as it is, which is all that accumulation, clipping by norm and gradient
scaling need. Anything else, such as another optimiser, sees the dense tensor. The gradient of a linear layer's weight,
δᵀ·x for the gradients δ of its outputs and its inputs x, is of the same form.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor

from hyperfan.optim.factor import Factor, add_to_

aten = torch.ops.aten
ScaledFactors = tuple[tuple[Factor, float], ...]
"""Factors with their scales."""


def is_batched(tensor: Tensor) -> bool:
    """Whether a gradient is one of many that torch computes at once, which no factor can hold."""
    return is_functorch_wrapped_tensor(tensor) or is_legacy_batchedtensor(tensor)


class Value:
    """Σ a·Cᵀ·G over ``parts``; or, where those became too many or were changed element by element, ``dense`` alone."""

    __slots__ = ("dense", "elementwise", "parts", "summed", "viewed")

    def __init__(self, parts: ScaledFactors, dense: Tensor | None = None, summed: bool = False) -> None:
        self.parts, self.dense = parts, dense
        self.summed = summed
        """Whether it is Σ a·1ᵀ·G, as for a bias."""
        self.elementwise = False
        """Whether it was changed element by element."""
        self.viewed = False
        """Whether the dense tensor may be changed in place, through a view that was handed out."""

    @property
    def factored(self) -> bool:
        """Whether the parts hold; without any they are zero."""
        return not self.elementwise and (bool(self.parts) or self.dense is None)


class FactoredGradient(Tensor):
    """The gradient of a head's weight (d_k, outputs), Σ a·Cᵀ·G, or of its bias (outputs), Σ a·1ᵀ·G; or of layers."""

    value: Value

    @staticmethod
    def __new__(cls, like: Tensor, value: Value) -> "FactoredGradient":
        """A gradient of the shape of ``like``."""
        gradient = Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype, device=like.device)
        assert isinstance(gradient, FactoredGradient)
        gradient.value = value
        return gradient

    @property
    def parts(self) -> ScaledFactors | None:
        """The factors with their scales, unless only the dense tensor holds."""
        if self.value.viewed and self.value.factored:
            seen, self.value.dense = self.value.dense, None
            self.value.elementwise = seen is not None and not torch.equal(seen, self.to_dense())
            self.value.dense = seen
        if not self.value.factored:
            return None
        for factor, _ in self.value.parts:
            factor.check()
        return self.value.parts

    def to_dense(self, *_: Any, **__: Any) -> Tensor:
        """The gradient as an ordinary tensor."""
        if self.value.dense is None:
            dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
            self.add_to_(dense, 1.0)
            return dense
        return self.value.dense

    @property
    def product(self) -> tuple[Tensor, Tensor] | None:
        """A and B, both matrices, of a gradient that is Aᵀ·B."""
        parts = self.parts
        if parts is None or len(parts) != 1 or self.value.summed:
            return None
        ((factor, scale),) = parts
        if scale != 1 or factor.codes.ndim != 2 or not isinstance(factor.grads, Tensor):
            return None
        return factor.codes, factor.grads

    def add_to_(self, target: Tensor, alpha: float, beta: float = 1.0) -> None:
        """``target ← beta·target + alpha·self``, without writing this out."""
        parts = self.parts
        for factor, scale in parts or ():
            factor.add_to_(target, alpha * scale, beta, self.value.summed)
            beta = 1.0
        if parts is None:
            add_to_(target, self.to_dense(), alpha, beta)
        elif beta != 1:
            target.mul_(beta) if beta else target.zero_()

    def numpy(self, *, force: bool = False) -> Any:
        """The dense gradient as an array."""
        return self.to_dense().numpy(force=force)

    def tolist(self) -> Any:
        """The dense gradient as nested lists."""
        return self.to_dense().tolist()

    def _text(self, *, tensor_contents: Any = None) -> str:
        """The dense gradient, as torch prints it."""
        return repr(self.to_dense())

    __repr__: Any = _text

    # Torch's own way to leave all to __torch_dispatch__.
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def _dispatch(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Stay factored where that is exact, else write out."""
        exact = _EXACT.get(func)
        result = NotImplemented if exact is None else exact(*args, **(kwargs or {}))
        return _written_out(func, args, kwargs or {}) if result is NotImplemented else result

    __torch_dispatch__: Any = _dispatch


def product_gradient(like: Tensor, codes: Tensor, grads: Tensor | Sequence[Tensor]) -> FactoredGradient:
    """Cᵀ·G."""
    return FactoredGradient(like, Value(((Factor(codes, grads), 1.0),)))


def gradients(codes: Tensor, grads: Tensor | Sequence[Tensor], weight: Tensor, bias: Tensor) -> list[Tensor]:
    """The gradients of a map's weight and bias, which share the factor."""
    of_weight = product_gradient(weight, codes, grads)
    return [of_weight, FactoredGradient(bias, Value(of_weight.value.parts, summed=True))]


def _written_out(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on dense tensors, which are kept so that changes in place, or through a view, are kept too."""

    def dense(x: Any) -> Any:
        if isinstance(x, FactoredGradient):
            x.value.dense = x.to_dense()  # kept: who asks once asks again
            return x.value.dense
        return type(x)(map(dense, x)) if isinstance(x, (list, tuple)) else x

    out = func(*dense(args), **{name: dense(x) for name, x in kwargs.items()})
    schema = func._schema
    viewing = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    named = {a.name: x for a, x in zip(schema.arguments, args, strict=False)} | kwargs
    for argument in schema.arguments:
        written = argument.alias_info is not None and argument.alias_info.is_write
        given = named.get(argument.name)
        for x in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(x, FactoredGradient):
                x.value.elementwise |= written
                x.value.viewed |= viewing
    return args[0] if schema.is_mutable and isinstance(args[0], FactoredGradient) else out


def _sum(a: Any, b: Any, alpha: float = 1) -> Value | None:
    if not (isinstance(a, FactoredGradient) and isinstance(b, FactoredGradient)) or alpha != 1 or a.shape != b.shape:
        return None
    if a.parts is None or b.parts is None or a.value.summed != b.value.summed:
        return Value((), a.to_dense() + b.to_dense())
    parts = list(a.parts)
    if len({factor.codes.shape[-1] for factor, _ in (*parts, *b.parts)}) > 1:  # as one code's and those of CodesLast
        return Value((), a.to_dense() + b.to_dense())
    for factor, scale in b.parts:
        for i, (mine, its_scale) in enumerate(parts):
            if mine.codes is factor.codes and its_scale == scale:
                parts[i] = (mine.plus(factor), scale)
                break
        else:
            parts.append((factor, scale))
    total = FactoredGradient(a, Value(tuple(parts), summed=a.value.summed))
    if parts and sum(factor.rank for factor, _ in parts) > min(parts[0][0].codes.shape[-1], a.shape[-1]):
        return Value((), total.to_dense())  # which is smaller
    return total.value


def _product(a: Any, by: Any) -> Value | None:
    if (
        not isinstance(a, FactoredGradient)
        or isinstance(by, FactoredGradient)
        or (isinstance(by, Tensor) and by.ndim > 0)
    ):
        return None
    if a.parts is None:
        return Value((), a.to_dense() * by)
    return Value(tuple((factor, scale * float(by)) for factor, scale in a.parts))


def _quotient(a: Any, by: Any) -> Value | None:
    if isinstance(by, Tensor) and (isinstance(by, FactoredGradient) or by.ndim > 0):
        return None
    return None if float(by) == 0 else _product(a, 1 / float(by))


def _new(operation: Callable[..., Value | None]) -> Callable[..., Any]:
    def run(a: Any, *args: Any, **kwargs: Any) -> Any:
        value = operation(a, *args, **kwargs)
        if value is None:
            return NotImplemented
        value.summed = a.value.summed
        return FactoredGradient(a, value)

    return run


def _in_place(operation: Callable[..., Value | None]) -> Callable[..., Any]:
    def run(a: Any, *args: Any, **kwargs: Any) -> Any:
        value = operation(a, *args, **kwargs)
        if value is None:
            return NotImplemented
        a.value.parts, a.value.dense = value.parts, value.dense
        a.value.elementwise &= not value.factored
        return a

    return run


def _clone(a: FactoredGradient, *, memory_format: Any = None) -> Value:
    if a.parts is None:
        return Value((), a.to_dense().clone())
    return Value(tuple((Factor(factor.codes, factor.matrix.clone()), scale) for factor, scale in a.parts))


def _unscale(grads: Sequence[Tensor], found_inf: Tensor, inverse_scale: Tensor) -> None:
    """What a GradScaler does to all gradients: scale them, and set a flag if one is not finite."""
    for grad in grads:
        each = [grad]
        if isinstance(grad, FactoredGradient):
            each = [grad.to_dense()] if grad.parts is None else [factor.matrix for factor, _ in grad.parts]
        for values in each:
            found_inf.copy_(torch.maximum(found_inf, 1.0 - values.isfinite().all().to(found_inf)))
        grad.mul_(inverse_scale.to(grad.dtype).view(()))


def _norm(a: FactoredGradient, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The Euclidean norm, from the factors' inner products."""
    if ord != 2 or dim is not None or keepdim or dtype is not None:
        return NotImplemented
    parts = a.parts
    if not parts or a.value.summed:
        return a.to_dense().square().sum().sqrt()
    pairs = [x * y * f.overlap(g) for f, x in parts for g, y in parts]
    return torch.stack(pairs).sum().clamp_min(0).sqrt()


def _all_norms(gradients: Sequence[Tensor], ord: float = 2, dtype: Any = None) -> list[Tensor]:
    """The norm of each gradient, as clipping asks for where they are sharded between processes."""
    return [torch.linalg.vector_norm(g, ord, dtype=dtype) for g in gradients]


def _multiply_all_(gradients: Sequence[Tensor], by: Tensor) -> None:
    for g in gradients:
        g.mul_(by)


_EXACT: dict[Any, Callable[..., Any]] = {
    aten.detach.default: lambda a: FactoredGradient(a, a.value),  # an alias: what is done to one is done to the other
    aten.clone.default: _new(_clone),
    aten.add.Tensor: _new(_sum),
    aten.add_.Tensor: _in_place(_sum),
    aten.mul.Tensor: _new(_product),
    aten.mul_.Tensor: _in_place(_product),
    aten.div.Tensor: _new(_quotient),
    aten.div_.Tensor: _in_place(_quotient),
    aten.neg.default: _new(lambda a: _product(a, -1.0)),
    aten.zero_.default: _in_place(lambda a: Value(())),
    aten.linalg_vector_norm.default: _norm,
    aten._foreach_norm.Scalar: _all_norms,
    aten._foreach_mul_.Tensor: _multiply_all_,
    aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
}
