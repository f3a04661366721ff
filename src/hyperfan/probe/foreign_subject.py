"""A hypernet of any kind as the subject of a diagnosis: a mainnet, and a callable that returns its parameters."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.errors import CallError
from hyperfan.init.registry import method
from hyperfan.mainnet.read import read
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.probe.diagnosis import HYPERNET_PART
from hyperfan.probe.subject import Source, Subject

GenerateFunction = Callable[[], Mapping[str, Tensor]]


class ForeignSubject(Subject):
    """Any mainnet, and a callable that returns names → tensors, whatever made them."""

    def __init__(self, mainnet: nn.Module, example: Any, generate: GenerateFunction) -> None:
        self._generate = generate
        generated = self._call()
        spec, skeleton = read(mainnet, example, warn=False), Skeleton(mainnet)
        self._names = spec.canonical_names
        if any(name not in self._names for name in generated):
            skeleton.check(generated)  # raises, with the name that was probably meant
        names = {self._names[name] for name in generated}
        plain = {n: t for n, t in mainnet.named_parameters() if n not in names} | dict(mainnet.named_buffers())
        # A head is taken to be a linear layer with as many outputs as the tensor has values.
        widths = {leaf.shape[0]: leaf.shape[1] for leaf in _leaves(generated.values()) if leaf.ndim == 2}
        super().__init__(
            f"{type(mainnet).__name__} with {len(names)} generated tensors",
            skeleton,
            plain,
            example,
            spec,
            [Source(t, width=widths.get(t.numel, math.nan)) for t in spec if t.name in names],
            method("hyperfan-in"),
            "exact",
            code_scatter=0.0,
            code_known=False,
            random=True,
        )

    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Call the callable; a random one draws again at every call."""
        with torch.enable_grad():
            return {self._names[name]: t for name, t in self._call().items()}

    def hypernet_parts(self, generated: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The leaves of the graph that the tensors came from, as one part."""
        leaves = _leaves(t for t in generated.values() if t.requires_grad)
        return {HYPERNET_PART: {str(i): leaf for i, leaf in enumerate(leaves)}}

    def constant(self) -> list[str]:
        """No tensors: the embeddings cannot be changed from outside."""
        return []

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


def _leaves(tensors: Any) -> list[Tensor]:
    """The parameters that some tensors were computed from, by walking back through their graph."""
    tensors = list(tensors)
    found: dict[int, Tensor] = {id(t): t for t in tensors if t.is_leaf}
    visited: set[Any] = set()
    waiting = [t.grad_fn for t in tensors if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            found[id(leaf)] = leaf
        waiting += [following for following, _ in node.next_functions if following is not None]
    return list(found.values())
