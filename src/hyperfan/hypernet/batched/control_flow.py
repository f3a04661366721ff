"""Rules where the mainnet's own code asks for a value: of all samples, if they agree."""

import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from hyperfan.hypernet.batched.mode import DisagreementError, Samples, named, refuse, rule

MASK_MODULES = ("transformers.masking_utils", "transformers.modeling_attn_mask_utils")
"""Modules whose code asks for one thing: whether a mask hides nothing and can be left out. No is always right."""


@rule(Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.item)
def value(s: Samples, func: Any, x: Any) -> Any:
    """The value that all samples have; if they do not agree, those that do must run by themselves."""
    if not s.has(x):
        return func(x)
    if x.numel() != s.n:
        refuse(func)
    values = x.detach().reshape(s.n)
    same = (values == values[0]) | (values.isnan() & values[0].isnan())
    if not same.all():
        if values.dtype == torch.bool and _asking_module() in MASK_MODULES:
            return False
        raise DisagreementError(same)
    return func(values[0])


def _asking_module() -> str:
    """The module of the mainnet's code that asks for a value."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("hyperfan.", "torch.")):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


@rule(*named("equal", torch, Tensor))
def equal(s: Samples, func: Any, a: Any, b: Any) -> Any:
    """Whether all values of each sample's tensors are equal."""
    if not s.any((a, b)):
        return func(a, b)
    if s.shape(a) != s.shape(b):
        return False
    same = (s.batched(a) == s.batched(b)).reshape(s.n, -1).all(1)
    return value(s, Tensor.__bool__, s.mark(same))
