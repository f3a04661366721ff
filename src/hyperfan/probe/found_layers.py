"""Layers that no rule knows, by what they do: the calls in which a weight multiplies something.

A module without a rule may do anything with what its weight makes, so its output tells nothing of the weight's scale.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hyperfan.mainnet import operations as op
from hyperfan.mainnet.replay import tensors
from hyperfan.mainnet.rules import uses
from hyperfan.mainnet.spec import Spec
from hyperfan.probe.layer_output import LayerOutput

_LAYERS = op.LAYER_FUNCTIONS | op.MATRIX_PRODUCTS | op.LOOKUPS
_VIEWS = op.UNCHANGED | op.REARRANGEMENTS | op.SELECTIONS


class FoundWeight(NamedTuple):
    """A weight without a rule, and the module that holds it."""

    path: str
    module: nn.Module
    local: str
    label: str

    @property
    def tensor(self) -> Tensor | None:
        """The current value of the weight."""
        return self.module._parameters.get(self.local)


def found_weights(net: nn.Module, spec: Spec) -> list[FoundWeight]:
    """The weights of a mainnet that were seen to be weights when it ran, and have no rule that says so."""
    modules, found = dict(net.named_modules(remove_duplicate=False)), []
    for name in (name for t in spec if t.role == "weight" for name in (t.name, *t.aliases)):
        path, _, local = name.rpartition(".")
        module = modules.get(path)  # None where a parametrization took the parameter's place
        if module is not None and local in module._parameters and local not in uses(module):
            found.append((path, module, local, name))
    paths = [path for path, *_ in found]
    return [
        FoundWeight(path, module, local, (path or "net") if paths.count(path) == 1 else name)
        for path, module, local, name in found
    ]


class FoundLayers(TorchFunctionMode):
    """Calls a function with the output of each call that multiplies by one of these weights, whole or in part.

    A tensor that it returns takes the output's place.
    """

    def __init__(self, weights: Sequence[FoundWeight], on_output: Callable[[LayerOutput], Tensor | None]) -> None:
        super().__init__()
        self._weights, self._on_output = weights, on_output
        self._parts: dict[int, tuple[Tensor, FoundWeight]] = {}  # with the tensors, whose ids are else used again

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function; of a layer, look at what it puts out."""
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "").strip("_")
        if not self._weights or name not in _LAYERS | _VIEWS:
            return result
        given = tensors((args, kwargs or {}))
        weight = next(self._among(given), None)
        if weight is None:
            return result
        if name in _VIEWS:
            self._parts |= {id(out): (out, weight) for out in tensors(result)}
            return result
        if not isinstance(result, Tensor) or not result.is_floating_point() or result.ndim == 0:
            return result
        bias = weight.module._parameters.get("bias")
        kernel = max(weight.tensor.ndim - 2, 0) if name in op.CONVOLUTIONS and weight.tensor is not None else 0
        has_bias = bias is not None and any(t is bias for t in given)
        out = LayerOutput(
            weight.label, weight.path, weight.module, (weight.local,), result, found_kernel=kernel, has_bias=has_bias
        )
        replaced = self._on_output(out)
        return result if replaced is None else replaced

    def _among(self, given: Sequence[Tensor]) -> Iterator[FoundWeight]:
        now = {id(weight.tensor): weight for weight in self._weights if weight.tensor is not None}
        for tensor in given:
            if id(tensor) in now:
                yield now[id(tensor)]
            elif id(tensor) in self._parts:
                yield self._parts[id(tensor)][1]
