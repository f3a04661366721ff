"""A mainnet that is a chain of torch's own layers: read once, then run without modules, hooks or places for tensors.

Of these layers it is known what they compute, so that whoever calls them may compute it in another way; and that they
treat the rows of a batch one by one.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

ELEMENTWISE = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.SELU, nn.CELU, nn.LeakyReLU, nn.Tanh,
    nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.LogSigmoid, nn.Tanhshrink,
)  # fmt: skip
FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {
    kind: kind.forward for kind in (*ELEMENTWISE, nn.Linear, nn.Sequential)
}
"""The layers' forward functions, as torch defines them."""
_GLOBAL_HOOKS: tuple[Mapping[int, Any], ...] = (
    torch_module._global_forward_hooks,
    torch_module._global_forward_pre_hooks,
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
)

LinearFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class ChainLayer(NamedTuple):
    """One layer, and the names of its weight and bias, if it is linear and has them."""

    layer: nn.Module
    weight: str | None
    bias: str | None


class Chain:
    """Linear layers and functions of each element, one behind the other.

    Args:
        steps: the layers in the order they run.
        holders: the modules that hold them.
    """

    def __init__(self, steps: list[ChainLayer], holders: list[nn.Module]) -> None:
        self.steps = steps
        self._kinds = [(m, type(m)) for m in (*(s.layer for s in steps), *holders)]

    def holds(self) -> bool:
        """Whether a call of the modules would do just this: no hooks, and nothing was changed since it was read.

        That no layer was replaced or added is for the caller to know.
        """
        for hooks in _GLOBAL_HOOKS:
            if hooks:
                return False
        for m, kind in self._kinds:
            if type(m) is not kind or kind.forward is not FORWARDS[kind] or "forward" in m.__dict__:
                return False
            if m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks:
                return False
            if m._compiled_call_impl is not None:
                return False
        return True

    def run(
        self,
        tensors: Mapping[str, Tensor],
        x: Any,
        linear: LinearFunction = F.linear,
        elementwise: Callable[[nn.Module, Tensor], Tensor] | None = None,
    ) -> Any:
        """What the mainnet makes of its one input, with these tensors in place of its own.

        Args:
            tensors: by name.
            x: the input.
            linear: runs a linear layer on its input, weight and bias.
            elementwise: runs another layer on its input.
        """
        for layer, weight, bias in self.steps:
            if weight is None:
                x = layer.forward(x) if elementwise is None else elementwise(layer, x)
                continue
            held: Mapping[str, Any] = layer._parameters
            w, b = tensors.get(weight), None if bias is None else tensors.get(bias)
            x = linear(x, held["weight"] if w is None else w, held["bias"] if b is None else b)
        return x


def read_chain(module: nn.Module, biases: Collection[str]) -> Chain | None:
    """The chain that a module with these biases is; ``None`` if it is something else."""
    steps: list[ChainLayer] = []
    holders: list[nn.Module] = []
    found = _read(module, "", steps, holders)
    named = [ChainLayer(layer, weight, bias if bias in biases else None) for layer, weight, bias in steps]
    return Chain(named, holders) if found and steps else None


def _read(module: nn.Module, path: str, steps: list[ChainLayer], holders: list[nn.Module]) -> bool:
    kind = type(module)
    if kind is nn.Sequential:
        holders.append(module)
        children = [(f"{path}{key}.", child) for key, child in module._modules.items()]
        return all(child is not None and _read(child, at, steps, holders) for at, child in children)
    if kind is nn.Linear and {"weight", "bias"} <= module._parameters.keys():
        steps.append(ChainLayer(module, f"{path}weight", f"{path}bias"))
        return True
    if kind in ELEMENTWISE and not getattr(module, "inplace", False):
        steps.append(ChainLayer(module, None, None))
        return True
    return False
