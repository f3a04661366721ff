"""What happens inside a mainnet on some fixed inputs: activations, weights, and the gradients of both.

Four quantities, each by layer:

- *activations*: a layer's outputs before the nonlinearity, for every input and unit;
- *gradients*: ∂ℓ/∂(those outputs), with ℓ the loss of the one input;
- *weights*: the parameters, which for a hypernet are its heads' outputs;
- *weight gradients*: ∂L/∂(those parameters), with L the mean loss. For a hypernet, what reaches its heads.

Inputs go through in pieces, so memory does not grow with their number.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from hyperfan.probe.moments import Histogram, Moments
from hyperfan.probe.watch import weights_of

Quantity = Literal["activations", "gradients", "weights", "weight gradients"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
PIECE = 100

_Sum = TypeVar("_Sum", Moments, Histogram)
Inside = dict[Quantity, dict[str, _Sum]]


class Probe:
    """Measures an ordinary module on fixed inputs; of a hypernet, measure ``net.freeze()``.

    Args:
        x, y: inputs and their classes.
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def moments(self, net: nn.Module) -> Inside[Moments]:
        """Mean and standard deviation of each quantity in each layer."""
        return self._gather(net, lambda _quantity, _where, values: Moments.of(values))

    def histograms(self, net: nn.Module, known: Inside[Moments]) -> Inside[Histogram]:
        """How often each value occurs, given the moments."""

        def count(quantity: Quantity, where: str, values: Tensor) -> Histogram:
            return Histogram.around(values, known[quantity][where])

        return self._gather(net, count)

    def _gather(self, net: nn.Module, summarise: Callable[[Quantity, str, Tensor], _Sum]) -> Inside[_Sum]:
        found: Inside[_Sum] = {quantity: {} for quantity in QUANTITIES}

        def add(quantity: Quantity, where: str, values: Tensor) -> None:
            new = summarise(quantity, where, values)
            before = found[quantity].get(where)
            found[quantity][where] = new if before is None else before + new

        parameters: dict[str, Tensor] = dict(net.named_parameters())
        sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for x, y in zip(torch.split(self.x, PIECE), torch.split(self.y, PIECE), strict=True):
            outputs: dict[str, Tensor]
            outputs, loss = outputs_of_layers(net, x, y)
            grads = torch.autograd.grad(loss, [*outputs.values(), *parameters.values()])
            for (where, output), grad in zip(outputs.items(), grads, strict=False):
                add("activations", where, output)
                add("gradients", where, grad)
            for total, grad in zip(sums.values(), grads[len(outputs) :], strict=True):
                total.add_(grad)
        for name, parameter in parameters.items():
            add("weights", name, parameter)
            add("weight gradients", name, sums[name] / len(self.x))
        return found


def outputs_of_layers(net: nn.Module, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The output of every layer with weights, in the order they ran, and the summed loss."""
    outputs: dict[str, Tensor] = {}

    def watch(path: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            outputs[path] = output

        return hook

    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}  # a norm layer may count what it sees
    handles = [module.register_forward_hook(watch(path)) for path, module in layers(net)]
    try:
        with torch.enable_grad():
            loss = cross_entropy(functional_call(net, buffers, (x,)), y, reduction="sum")
    finally:
        for handle in handles:
            handle.remove()
    return outputs, loss


def layers(net: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Those that have weights, with their paths."""
    return ((path, module) for path, module in net.named_modules() if weights_of(module))


def first_overflow(net: nn.Module, x: Tensor, y: Tensor) -> str | None:
    """The first layer whose output is not finite on these inputs."""
    outputs, _ = outputs_of_layers(net, x, y)
    return next((path for path, output in outputs.items() if not torch.isfinite(output).all()), None)
