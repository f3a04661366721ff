"""Values of the mainnet that are not saved with a net: bases that were given, and frozen parameters."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.errors import CheckpointError, HyperfanWarning

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

MARK_VALUES = 64
"""Values of a tensor that its mark is taken of, about."""
MARK_TOLERANCE = 0.002
"""Marks of one tensor differ by less after a change of dtype; those of two by about √(2/MARK_VALUES)."""


def marks(values: Mapping[str, Tensor]) -> dict[str, float]:
    """A number by which the values of each tensor can be told from others.

    It is the cosine between some of the values and a fixed wave: equal after a change of dtype, another in another net.
    """
    found = {}
    for name, value in values.items():
        if not value.is_meta:
            value = value.detach()
            real = torch.stack([value.real, value.imag]) if value.is_complex() else value
            some = real.flatten()[:: max(real.numel() // MARK_VALUES, 1)].double().cpu()
            wave = torch.arange(1.0, len(some) + 1, dtype=torch.float64).sin()
            found[name] = float(torch.nn.functional.cosine_similarity(some, wave, dim=0))
    return found


def given_bases(net: "HyperNet") -> dict[str, Tensor]:
    """The bases that were given and are not saved, by name."""
    base = net.heads.base
    return {} if base is None else {n: base.value(n) for n, trained in base.to_json().items() if trained is False}


def check_marks(values: Mapping[str, Tensor], saved: Mapping[str, float]) -> None:
    """Warn if tensors that are not saved have other values than when the net was saved."""
    now = marks(values)
    others = [name for name, mark in saved.items() if name in now and abs(now[name] - mark) > MARK_TOLERANCE]
    if others:
        more = f" and of {len(others) - 1} more" if len(others) > 1 else ""
        warnings.warn(
            f"the base or frozen value of '{others[0]}'{more} is not saved with the net, and this mainnet has other "
            "values than the one it was saved with: pass from_pretrained that one",
            HyperfanWarning,
            stacklevel=5,
        )


def frozen_values(saved: Mapping[str, float], parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Frozen parameters that are not saved, from the mainnet that is given."""
    found = {name: parameters[name].detach() for name in saved}
    empty = [name for name, value in found.items() if value.is_meta]
    if empty:
        raise CheckpointError(
            f"'{empty[0]}' is frozen and not saved with the net, and this mainnet is on the meta device, without its "
            "value: pass one that has it, or save with save_pretrained(…, frozen=True)"
        )
    return found
