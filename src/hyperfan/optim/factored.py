"""Products whose weight's gradient stays in its factors: those of heads, and of linear layers in the mainnet."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.generators.head_shards import apply_function
from hyperfan.optim.gradient import gradients, is_batched, product_gradient

COLUMN_BLOCKS = 8
"""Blocks of columns that a product with few rows is cut into, so that several threads share it."""
MAX_ROWS_CUT = 8
"""Rows up to which that pays."""


def _product(codes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``addmm(bias, codes, weight)``. On CPUs, where a product with few rows runs in one thread, in several blocks."""
    (rows, width), outputs = codes.shape, len(bias)
    if weight.device.type != "cpu" or rows > MAX_ROWS_CUT or outputs % COLUMN_BLOCKS:
        return torch.addmm(bias, codes, weight)
    blocks = weight.view(width, COLUMN_BLOCKS, -1).transpose(0, 1)
    product = torch.baddbmm(bias.view(COLUMN_BLOCKS, 1, -1), codes.expand(COLUMN_BLOCKS, rows, width), blocks)
    return product.transpose(0, 1).reshape(rows, outputs)


class Factored(torch.autograd.Function):
    """``addmm(bias, codes, weight)`` whose gradient for weight and bias is factored.

    Where more codes come than the head is wide, the dense gradient is the smaller one and is used instead.
    """

    @staticmethod
    def forward(ctx: Any, codes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Generate from each code."""
        ctx.save_for_backward(codes, weight if codes.requires_grad else None)
        ctx.parameters = weight, bias
        return _product(codes.to(weight.dtype), weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grads: Tensor) -> Any:
        """An ordinary gradient for the codes, factors for the head."""
        codes, saved = ctx.saved_tensors
        weight, bias = ctx.parameters
        grads = grads.to(weight.dtype)
        for_codes = (grads @ saved.T).to(codes.dtype) if ctx.needs_input_grad[0] else None
        codes = codes.detach().to(weight.dtype, copy=True)  # they may be a parameter, which the step changes
        if len(codes) > codes.shape[1] or is_batched(grads):
            return for_codes, codes.T @ grads, grads.sum(0)
        return for_codes, *gradients(codes, grads, weight, bias)


def factored_product(codes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The product of :class:`Factored`."""
    product: Tensor = apply_function(Factored, codes, weight, bias)
    return product


class FactoredLinear(torch.autograd.Function):
    """``F.linear`` whose gradient for the weight is factored: δᵀ·x, not multiplied out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's outputs."""
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Ordinary gradients for input and bias."""
        x, weight = ctx.saved_tensors
        for_x = grad @ weight if ctx.needs_input_grad[0] else None
        rows, inputs = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        for_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        if torch.is_grad_enabled() or is_batched(grad):  # someone will differentiate this again
            return for_x, rows.mT @ inputs, for_bias
        return for_x, product_gradient(weight, rows.clone(), inputs.clone()), for_bias  # theirs, who may change them


class CodesLast(torch.autograd.Function):
    """A linear layer run from its weight's code, Σ_k h_k·(H_k·x) + B·x, with gradients of the head in factors.

    The gradient of H, seen as (d_k·outputs, inputs), is (h⊗δ)ᵀ·x, with a row for each input row.

    Shape:
        x (b, rows, inputs), codes (b, d_k), weight (d_k, outputs·inputs), bias (outputs·inputs) →
        (b, rows, outputs), and H_k·x for all k, (b, rows, d_k, outputs)
    """

    @staticmethod
    def forward(x: Tensor, codes: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's outputs, and what they are sums of."""
        rows = x.flatten(0, 1)
        each = (rows @ weight.view(-1, rows.shape[1]).T).view(*x.shape[:-1], codes.shape[-1], -1)
        shared = (rows @ bias.view(-1, rows.shape[1]).T).view(*x.shape[:-1], -1)
        return (codes[:, None, None] @ each).squeeze(-2) + shared, each

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save what the backward pass needs."""
        ctx.save_for_backward(*inputs, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: None) -> Any:
        """Ordinary gradients for input and codes."""
        if grad is None:
            return None, None, None, None
        x, codes, weight, bias, each = ctx.saved_tensors
        for_codes = torch.einsum("brko,bro->bk", each, grad) if ctx.needs_input_grad[1] else None
        spread = codes[:, None, :, None] * grad.unsqueeze(2)
        rows = spread.reshape(-1, spread.shape[-2] * spread.shape[-1])
        grads, inputs = (t.reshape(-1, t.shape[-1]) for t in (grad, x))
        for_x = None
        if ctx.needs_input_grad[0]:
            for_x = (rows @ weight.view(rows.shape[-1], -1) + grads @ bias.view(grads.shape[-1], -1)).reshape(x.shape)
        if len(rows) * (rows.shape[1] + inputs.shape[1]) > weight.numel() or is_batched(grad):
            return for_x, for_codes, (rows.T @ inputs).view(weight.shape), (grads.T @ inputs).view(bias.shape)
        inputs, grads = inputs.clone(), grads.clone()
        return for_x, for_codes, product_gradient(weight, rows, inputs), product_gradient(bias, grads, inputs)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, codes: Tensor, weight: Tensor, bias: Tensor) -> Any:
        """Run the layers of all samples at once, as one batch of codes."""
        size = info.batch_size
        x, codes = (
            t.unsqueeze(0).expand(size, *t.shape) if d is None else t.movedim(d, 0)
            for t, d in zip((x, codes), in_dims, strict=False)
        )
        out = apply_function(CodesLast, x.flatten(0, 1), codes.flatten(0, 1), weight, bias)
        return tuple(t.unflatten(0, (size, -1)) for t in out), (0, 0)
