"""Products whose weight's gradient stays in its factors: those of heads, and of linear layers inside the mainnet."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.optim.gradient import gradients, is_batched

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
        codes = codes.detach().to(weight.dtype)
        if len(codes) > codes.shape[1] or is_batched(grads):
            return for_codes, codes.T @ grads, grads.sum(0)
        return for_codes, *gradients(codes, grads, weight, bias)


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
        return for_x, *gradients(rows, inputs, weight), for_bias
