"""A hypernet that is not ours as the subject of a diagnosis or a calibration."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.errors import CallError
from hyperfan.init.registry import method
from hyperfan.mainnet.read import read
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.probe.diagnosis import HYPERNET_PART
from hyperfan.probe.moments import mean_square
from hyperfan.probe.per_code import in_one_batch, inputs_in_common
from hyperfan.probe.subject import GeneratedTensor, Subject, leaves, with_targets

MAX_ROUNDINGS = 8
"""Difference between equal rows of a matrix product, over the rounding error of its largest value."""
GenerateFunction = Callable[[], Mapping[str, Tensor]]


class ForeignSubject(Subject):
    """Any mainnet, and a callable that returns names → tensors, whatever made them."""

    def __init__(self, mainnet: nn.Module, example: Any, generate: GenerateFunction, grouped: bool = False) -> None:
        self._generate = generate
        returned = self._call()
        spec, skeleton = read(mainnet, in_one_batch(example, grouped), warn=False), Skeleton(mainnet)
        self._names = spec.canonical_names
        if any(name not in self._names for name in returned):
            skeleton.check(returned)  # raises, with the name that was probably meant
        made = {self._names[name]: t for name, t in returned.items()}
        plain = {n: t for n, t in mainnet.named_parameters() if n not in made} | dict(mainnet.named_buffers())
        theory = method("hyperfan-in")
        wanted = with_targets([t for t in spec if t.name in made], theory, "exact")
        tensors = {n: _with_head(t, made[n]) for n, t in wanted.items()}
        title = f"{type(mainnet).__name__} with {len(made)} generated tensors"
        super().__init__(title, skeleton, plain, example, spec, tensors, theory, grouped=grouped)
        many = {name: tensor for name, tensor in made.items() if self.has_many(name, tensor)}
        if grouped and not many:
            raise CallError("grouped=True is for a net for each group, and generated() returned one for all inputs")
        for name, tensor in many.items():
            self.codes = inputs_in_common(example)
            self._check_count(name, tensor)

    def _check_count(self, name: str, tensor: Tensor) -> None:
        """Raise if there is not one of a tensor for each input or group."""
        if len(tensor) != self.codes:
            each, shape = "group" if self.grouped else "input", self.generated[name].spec.shape
            seen = f"generated() returned {len(tensor)} of '{name}', {tuple(tensor.shape)}, for {self.codes} {each}s"
            raise CallError(f"{seen}: return one for all, {shape}, or one for each {each}")

    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Call the callable; a random one draws again at every call."""
        with torch.enable_grad():
            return {self._names[name]: t for name, t in self._call().items()}

    @torch.no_grad()
    def constant(self) -> list[str]:
        """The tensors of which there is one for each input, all equal but for rounding."""
        many = {name: t for name, t in self.generate().items() if self.has_many(name, t) and len(t) > 1}
        return [name for name, t in many.items() if _rows_equal(t)]

    def hypernet_parts(self, generated: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
        """The leaves of the graph that the tensors came from, as one part."""
        return {HYPERNET_PART: leaves(t for t in generated.values() if t.requires_grad)}

    def _call(self) -> dict[str, Tensor]:
        owner = self._generate if isinstance(self._generate, nn.Module) else getattr(self._generate, "__self__", None)
        buffers = list(owner.buffers()) if isinstance(owner, nn.Module) else []
        saved = [b.clone() for b in buffers]
        try:
            returned = self._generate()
        finally:
            for buffer, old in zip(buffers, saved, strict=True):
                buffer.data.copy_(old)  # through .data: the graph may need the buffer's version
        if not isinstance(returned, Mapping):
            raise CallError(
                f"generated() returned a {type(returned).__name__}: it should return a dict from names of the "
                "mainnet's parameters to tensors, such as dict(zip(names, hypernet()))"
            )
        for name, value in returned.items():
            if not isinstance(value, Tensor):
                raise CallError(f"generated() returned a {type(value).__name__} for '{name}': it should be a tensor")
        if not returned:
            raise CallError("generated() returned no tensors, so there is nothing to diagnose")
        return dict(returned)


def _with_head(tensor: GeneratedTensor, made: Tensor) -> GeneratedTensor:
    """The tensor with what its head tells, a linear layer with as many outputs as it has values; as it is without."""
    numel, behind = tensor.spec.numel, leaves([made])
    weights = [p for p in behind if p.ndim == 2 and len(p) == numel]
    if not weights:
        return tensor
    tensor = replace(tensor, width=weights[-1].shape[1])
    if len(weights) > 1:
        return tensor
    bias_square = sum(mean_square(p) for p in behind if p.shape == (numel,))
    return replace(tensor, head_square=mean_square(weights[0]), bias_square=bias_square)


def _rows_equal(t: Tensor) -> bool:
    """Whether all rows are equal but for rounding, which may differ from row to row of a matrix product."""
    return bool((t - t[:1]).abs().max() <= MAX_ROUNDINGS * torch.finfo(t.dtype).eps * t.abs().max())
