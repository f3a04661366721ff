"""Adam's step on a head, without its gradient: in blocks that stay in cache, or compiled to one loop.

Torch's own fused kernel reads a gradient of the parameter's size. Here it is made block by block, right before the
kernel reads it; or, where a compiler is found and the head is large enough to be worth its seconds, value by value.
"""

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperfan.errors import HyperfanWarning, first_line

BLOCK = 2**19
"""Values of a block; several of them fit in a CPU's cache."""
MIN_COMPILED = 2**20
"""Values of a head from which to compile."""
MAX_COMPILED_RANK = 4
"""Codes up to which a compiled loop is faster than a product of matrices."""


class Hyper(NamedTuple):
    """What Adam multiplies by in one step."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    decay: float
    decoupled: bool
    maximize: bool
    step: int

    @property
    def corrections(self) -> tuple[float, float]:
        """1 − β₁ᵗ, and the root of 1 − β₂ᵗ."""
        return 1 - self.beta1**self.step, (1 - self.beta2**self.step) ** 0.5


def step_moments_(grad: Tensor, m: Tensor, v: Tensor, v_max: Tensor | None, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """Move the moments; returns m̂ and √v̂."""
    m.lerp_(grad, 1 - hyper.beta1)
    v.mul_(hyper.beta2).addcmul_(grad, grad, value=1 - hyper.beta2)
    largest = v if v_max is None else torch.maximum(v_max, v, out=v_max)
    first, second = hyper.corrections
    return m / first, largest.sqrt().div_(second)


def step_rows_(weight: Tensor, codes: Tensor, m: Tensor, root: Tensor, hyper: Hyper, compiled: bool) -> None:
    """Move (…, d_k, n) by what Adam makes of gradients h⊗g, from m̂ and √v̂ (…, 1, n) of g and the codes h (…, d_k, 1).

    As h·m̂/(|h|·√v̂ + ε) = m̂/(sign(h)·√v̂ + ε/h), which is 0 for h = 0 too.
    """
    sign, offset, keep = codes.sign(), hyper.eps / codes, 1 - hyper.lr * hyper.decay
    if compiled:
        numbers = torch.tensor([hyper.lr, keep], dtype=weight.dtype, device=weight.device)
        if run_compiled(_rows, weight, m, root, sign, offset, numbers):
            return
    width = max(1, BLOCK // codes.numel())
    for block, its_m, its_root in zip(*(torch.split(t, width, -1) for t in (weight, m, root)), strict=True):
        (block.mul_(keep) if keep != 1 else block).addcdiv_(
            its_m, torch.addcmul(offset, sign, its_root), value=-hyper.lr
        )


def _rows(weight: Tensor, m: Tensor, root: Tensor, sign: Tensor, offset: Tensor, numbers: Tensor) -> None:
    weight.copy_(weight * numbers[1] - numbers[0] * m / (sign * root + offset))


def step_product_(
    p: Tensor, codes: Tensor, grads: Tensor, moments: tuple[Tensor, Tensor, Tensor | None], hyper: Hyper, compiled: bool
) -> None:
    """Adam's step along Cᵀ·G, in whatever shape the parameter has."""
    m, v, v_max = moments
    if compiled and len(codes) <= MAX_COMPILED_RANK and codes.shape[1] == len(p):
        first, second = hyper.corrections
        sign = -1.0 if hyper.maximize else 1.0
        keep, added = (1 - hyper.lr * hyper.decay, 0.0) if hyper.decoupled else (1.0, hyper.decay)
        betas = [1 - hyper.beta1, hyper.beta2, 1 - hyper.beta2]  # of which the last loses digits in single precision
        scalars = [sign, added, *betas, hyper.lr / first, second, hyper.eps, keep]
        numbers = torch.tensor(scalars, dtype=p.dtype, device=p.device)
        if run_compiled(_product, p, m, v, v_max, list(codes), list(grads), numbers):
            return
    kernel = torch._fused_adamw_ if hyper.decoupled else torch._fused_adam_
    step = torch.tensor(float(hyper.step), device=p.device)
    p, m, v = (t.view(codes.shape[1], grads.shape[1]) for t in (p, m, v))
    v_max = None if v_max is None else v_max.view(p.shape)
    width = min(BLOCK, p.shape[1])
    height = BLOCK // width
    scratch = p.new_empty(height, width)
    for rows, columns in itertools.product(range(0, p.shape[0], height), range(0, p.shape[1], width)):
        block = (slice(rows, rows + height), slice(columns, columns + width))  # contiguous: whole rows, or part of one
        grad = scratch[: p[block].shape[0], : p[block].shape[1]]
        torch.mm(codes.T[block[0]], grads[:, block[1]], out=grad)
        kernel(
            [p[block]],
            [grad],
            [m[block]],
            [v[block]],
            [] if v_max is None else [v_max[block]],
            [step],
            lr=hyper.lr,
            beta1=hyper.beta1,
            beta2=hyper.beta2,
            weight_decay=hyper.decay,
            eps=hyper.eps,
            amsgrad=v_max is not None,
            maximize=hyper.maximize,
        )


def _product(
    p: Tensor, m: Tensor, v: Tensor, v_max: Tensor | None, codes: list[Tensor], grads: list[Tensor], numbers: Tensor
) -> None:
    sign, added, first, beta2, rest, rate, second, eps, keep = numbers.unbind(0)
    grad = sign * sum(c[:, None] * g[None, :] for c, g in zip(codes, grads, strict=True)) + added * p
    new_m = m + first * (grad - m)
    new_v = v * beta2 + rest * grad * grad
    largest = new_v if v_max is None else torch.maximum(v_max, new_v)
    p.copy_(p * keep - rate * new_m / (largest.sqrt() / second + eps))
    m.copy_(new_m)
    v.copy_(new_v)
    if v_max is not None:
        v_max.copy_(largest)


# ── compiling ──────────────────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def why_not_compiled(device: str) -> str | None:
    """The reason why nothing can be compiled for a device, that no compiler is found; ``None`` if it can."""
    try:
        if device == "cpu":
            from torch._inductor.cpp_builder import get_cpp_compiler

            get_cpp_compiler()
        elif not torch.utils._triton.has_triton():
            return "Triton is not installed"
    except Exception as error:  # torch has several, by platform
        return first_line(error)
    return None


ONE_LOOP: dict[str, Any] = {"realize_reads_threshold": 64, "realize_opcount_threshold": 512}
"""The compiler writes no intermediate value to memory, such as the gradient."""
_FAILED: set[Callable[..., None]] = set()


@functools.cache
def _compile(function: Callable[..., None]) -> Callable[..., None]:
    compiled: Callable[..., None] = torch.compile(function, dynamic=True, fullgraph=True, options=ONE_LOOP)
    return compiled


def run_compiled(function: Callable[..., None], *args: Any) -> bool:
    """Run a function compiled; returns whether that was possible. It is compiled at its first call."""
    if function in _FAILED:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch itself, in its compiler
            _compile(function)(*args)
    except (torch._dynamo.exc.TorchDynamoException, torch._inductor.exc.InductorError) as error:
        _FAILED.add(function)
        reason = " ".join(str(error).split("\n\n")[0].split())
        warnings.warn(f"a step could not be compiled and is slower: {reason}", HyperfanWarning, stacklevel=2)
        return False
    return True
