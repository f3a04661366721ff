"""``Skeleton``: the mainnet without its values, on the meta device, called with tensors given at the call."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hyperfan.errors import CallError, nearest


class Skeleton:
    """A memory-free copy of a module that runs with the tensors it is given.

    Not an ``nn.Module``, so that whoever holds it does not register its parameters. ``functional_call`` accepts
    wrong shapes silently and runs on tensors left on the meta device; this checks names, shapes, dtypes and devices.
    """

    def __init__(self, module: nn.Module) -> None:
        memo: dict[int, Any] = {}
        names: dict[int, str] = {}
        self.aliases: dict[str, str] = {}
        self.tensors: dict[str, Tensor] = {}
        named = module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
        for name, tensor in itertools.chain(*named):
            if id(tensor) in names:
                self.aliases[name] = names[id(tensor)]
                continue
            names[id(tensor)] = name
            empty = torch.empty_like(tensor, device="meta", requires_grad=False)
            if isinstance(tensor, nn.Parameter):
                empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = self.tensors[name] = empty
        self.module = duplicate(module, memo)
        self.mode: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        """In which the mainnet runs; an optimiser may want its layers to run in another way."""
        self._expected = [(name, empty.shape, empty.dtype) for name, empty in self.tensors.items()]
        self._homes = [(*home(self.module, name), name) for name in self.tensors]
        self._homes += [(*home(self.module, alias), name) for alias, name in self.aliases.items()]

    def __call__(self, tensors: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """Run the mainnet with these parameters and buffers, one for each name (tied ones once)."""
        self.check(tensors)
        if torch.compiler.is_compiling():
            with_aliases = {**tensors, **{alias: tensors[name] for alias, name in self.aliases.items()}}
            return functional_call(self.module, with_aliases, args, kwargs, tie_weights=False)
        # What functional_call does, without looking up every name at every call.
        before = []
        try:
            for owner, store, local, name in self._homes:
                place = getattr(owner, store)
                before.append((place, local, place[local]))
                place[local] = tensors[name]
            with self.mode():
                return self.module(*args, **kwargs)
        finally:
            for place, local, tensor in before:
                place[local] = tensor

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise unless every name has a tensor of the right shape and dtype, all on one device."""
        for name in tensors:
            if name not in self.tensors:
                known = nearest(name, self.tensors)
                raise CallError(f"'{name}' was given, but the mainnet has no parameter or buffer of that name: {known}")
        dtypes: dict[torch.dtype, tuple[str, torch.dtype]] = {}
        device: tuple[str, torch.device] | None = None
        for name, shape, kind in self._expected:
            if name not in tensors:
                raise CallError(f"'{name}' is missing: the mainnet needs a tensor of shape {tuple(shape)} for it")
            given = tensors[name]
            if given.shape != shape:
                raise CallError(
                    f"'{name}' has shape {tuple(given.shape)}, the mainnet needs {tuple(shape)}"
                    + _hint(tuple(given.shape), tuple(shape))
                )
            first, dtype = dtypes.setdefault(kind, (name, given.dtype))
            if given.dtype != dtype and not torch.is_autocast_enabled(given.device.type):
                raise CallError(
                    f"'{name}' is {given.dtype} while '{first}' is {dtype}, and both are {kind} in the "
                    f"mainnet: convert one with .to(torch.{str(dtype).removeprefix('torch.')})"
                )
            device = device or (name, given.device)
            if given.device != device[1]:
                raise CallError(
                    f"'{name}' is on {given.device} while '{device[0]}' is on {device[1]}: "
                    f"move all of them with .to('{device[1]}')"
                )

    def materialise(self, tensors: Mapping[str, Tensor]) -> nn.Module:
        """Make an ordinary module that owns copies of these tensors; ties stay ties."""
        self.check(tensors)
        memo: dict[int, Any] = {}
        for name, empty in self.tensors.items():
            real = tensors[name].detach().clone()
            if isinstance(empty, nn.Parameter):
                real = nn.Parameter(real, requires_grad=empty.requires_grad)
            memo[id(empty)] = real
        return duplicate(self.module, memo)


def duplicate(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Copy a module, with the tensors in ``memo`` in place of their originals.

    A weight that a hook computes from a parameter (pruning, old-style weight norm) is no leaf, and torch does not copy
    it; the hook computes it anew.
    """
    for m in module.modules():
        memo |= {id(v): v.detach() for v in vars(m).values() if isinstance(v, Tensor) and not v.is_leaf}
    return copy.deepcopy(module, memo)


def home(module: nn.Module, name: str) -> tuple[nn.Module, str, str]:
    """The submodule that holds a tensor, the name of its dictionary there, and the tensor's name in that."""
    path, _, local = name.rpartition(".")
    owner = module.get_submodule(path)
    return owner, "_parameters" if local in owner._parameters else "_buffers", local


def _hint(given: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if given == expected[::-1] and len(given) > 1:
        return ": it looks transposed, torch keeps (out, in)"
    if torch.Size(given).numel() == torch.Size(expected).numel():
        return f": the number of values fits, so .reshape({expected}) mends it"
    return ""
