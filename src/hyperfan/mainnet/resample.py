"""Functions of a trace, called again on samples of a standard normal: their moments give the gain.

A trail (:mod:`hyperfan.mainnet.trails`) holds what became of each sample of :func:`~hyperfan.mainnet.gains.grid`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hyperfan.mainnet import operations as op
from hyperfan.mainnet.gains import grid
from hyperfan.mainnet.parameters import Parameters, common_value, rms
from hyperfan.mainnet.replay import TorchCall
from hyperfan.mainnet.trails import Trail

_VECTOR = object()
"""Stands for a tensor of constants or parameters that differ from element to element."""


class Resampler:
    """Calls functions again on samples. What it made is kept, since layers of one kind do the same to them."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Any, Tensor | None]] = {}
        """From a call to its arguments, which keeps their ids theirs, and its result."""

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor | None:
        """Call a function whose first argument is samples; ``None`` if there are none, or if it returns no samples."""
        if any(a is None for a in args[:1]):
            return None
        key = (func, *map(_key, args), *((name, _key(x)) for name, x in kwargs.items()))
        if key not in self._made:
            with torch.inference_mode(False), torch.enable_grad():
                given = [_clone(a) for a in args]
                out = func(*given, **{name: _clone(x) for name, x in kwargs.items()})
            fits = isinstance(out, Tensor) and out.shape == grid().shape
            self._made[key] = (args, kwargs), out if fits else None
        return self._made[key][1]

    def repeat(self, call: TorchCall, trails: Mapping[int, Trail], parameters: Parameters) -> Tensor | None:
        """Repeat a call on samples in place of traced tensors, and on numbers in place of constant ones.

        Args:
            call: a function that works element by element.
            trails: those of the traced tensors, by id.
            parameters: of the mainnet.
        """
        values = [_resample(a, trails) for a in call.args]
        named = {k: False if k == "inplace" else _resample(a, trails) for k, a in call.kwargs.items() if k != "out"}
        vectors = [i for i, v in enumerate(values) if v is _VECTOR]
        if any(v is _VECTOR for v in named.values()):
            return None
        if vectors:
            # A bias of its own for each element has no mean effect; a gain that is a parameter counts by its rms.
            commutative = call.name in ("add", "iadd", "mul", "multiply", "imul")
            if call.name in op.ADDITIONS | op.PRODUCTS | op.QUOTIENTS and (commutative or 0 not in vectors):
                samples = next((v for v in values if isinstance(v, Tensor) and v.shape == grid().shape), None)
                gains = [rms(call.args[i]) for i in vectors if call.args[i] in parameters]
                scaled = call.name in op.PRODUCTS and gains
                return self.apply(torch.mul, samples, math.prod(gains)) if scaled else samples
            return None
        return self.apply(call.func, *values, **named)


def summed_values(call: TorchCall) -> int:
    """The number of values in each sum that ``torch.sum`` makes."""
    first, named = call.tensors[0], call.kwargs.get("dim", call.kwargs.get("axis"))
    dims = call.args[1] if len(call.args) > 1 else named
    chosen = [dims] if isinstance(dims, int) else list(dims or range(first.ndim))
    return math.prod(first.shape[d] for d in chosen)


def _resample(value: Any, trails: Mapping[int, Trail]) -> Any:
    if not isinstance(value, Tensor):
        return value
    if id(value) in trails:
        return trails[id(value)].samples
    number = common_value(value)
    return _VECTOR if number is None else torch.tensor(number, dtype=torch.float64, device="cpu")


def _key(value: Any) -> Any:
    """The cache key of an argument: a number's value, the identity of anything else."""
    if isinstance(value, Tensor) and not value.ndim:
        return value.item()
    return (type(value), value) if isinstance(value, (bool, int, float, str)) else id(value)


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value  # some functions work in place
