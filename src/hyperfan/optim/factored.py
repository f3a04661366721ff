"""Heads whose codes change: the gradient stays in its factors, and the step multiplies them into the head in place."""

from typing import Any

import torch
from torch import Tensor

from hyperfan.optim.factor import Factor
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
    """``addmm(bias, codes, weight)`` whose gradient for weight and bias is :class:`FactoredGradient`.

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
        return for_codes, *gradients(Factor(codes, grads), weight, bias)
