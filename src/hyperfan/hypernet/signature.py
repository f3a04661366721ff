"""Which arguments a net's forward takes: those of its mainnet, and the net's own."""

import inspect
from inspect import Parameter
from types import MethodType
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def show_arguments(net: "HyperNet", mainnet: nn.Module) -> None:
    """Let ``inspect.signature(net.forward)`` show the mainnet's arguments, for trainers that choose columns by them."""
    function = type(net).forward

    def forward(self: "HyperNet", *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    shown: Any = forward
    shown.__signature__ = _signature(function, mainnet)  # where inspect looks for it
    module: Any = net
    module.forward = MethodType(forward, net)


def _signature(function: Any, mainnet: nn.Module) -> inspect.Signature:
    net_self, *parameters = inspect.signature(function).parameters.values()
    keywords = {p.name: p for p in parameters if p.kind == Parameter.KEYWORD_ONLY and p.name != "labels"}
    theirs = [p for p in _arguments(mainnet) if p.name not in keywords]
    before = [p for p in theirs if p.kind not in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)]
    behind = [p for p in theirs if p.kind == Parameter.VAR_KEYWORD]
    between = [p for p in theirs if p.kind == Parameter.KEYWORD_ONLY]
    return inspect.Signature([net_self, *before, *between, *keywords.values(), *behind])


def _arguments(mainnet: nn.Module) -> list[Parameter]:
    """The arguments of a mainnet; where one of PEFT's passes on whatever it is given, those of the model inside."""
    found = list(inspect.signature(mainnet.forward).parameters.values())
    inside = getattr(mainnet, "get_base_model", None)
    if inside is not None and all(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in found):
        return _arguments(inside())
    return found
