"""Statistics of an ordinary module on fixed inputs: activations, weights, and the gradients of both.

Four quantities, each by layer:

- *activations*: a layer's outputs before the nonlinearity, for every input and unit;
- *gradients*: ∂ℓ/∂(those outputs), with ℓ the loss of the one input;
- *weights*: the parameters, which for a hypernet are its heads' outputs;
- *weight gradients*: ∂L/∂(those parameters), with L the mean loss. For a hypernet, what reaches its heads.

Of a hypernet, measure ``net.freeze()``. Inputs go through in pieces, so memory does not grow with their number.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from hyperfan.probe.layer_output import LayerOutput
from hyperfan.probe.moments import Histogram, Moments
from hyperfan.probe.recorder import layer_hooks

Quantity = Literal["activations", "gradients", "weights", "weight gradients"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
INPUTS_PER_PIECE = 100

_Statistic = TypeVar("_Statistic", Moments, Histogram)
Statistics = dict[Quantity, dict[str, _Statistic]]


class Probe:
    """Measures an ordinary module on fixed inputs and their classes."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def moments(self, net: nn.Module) -> Statistics[Moments]:
        """Measure mean and standard deviation of each quantity in each layer."""
        return self._gather(net, lambda _quantity, _layer, values: Moments.of(values))

    def histograms(self, net: nn.Module, known: Statistics[Moments]) -> Statistics[Histogram]:
        """Count how often each value occurs, given the moments."""
        return self._gather(net, lambda quantity, layer, values: Histogram.around(values, known[quantity][layer]))

    def _gather(
        self, net: nn.Module, summarise: Callable[[Quantity, str, Tensor], _Statistic]
    ) -> Statistics[_Statistic]:
        found: Statistics[_Statistic] = {quantity: {} for quantity in QUANTITIES}

        def add(quantity: Quantity, layer: str, values: Tensor) -> None:
            new = summarise(quantity, layer, values)
            before = found[quantity].get(layer)
            found[quantity][layer] = new if before is None else before + new

        parameters: dict[str, Tensor] = dict(net.named_parameters())
        sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for x, y in zip(torch.split(self.x, INPUTS_PER_PIECE), torch.split(self.y, INPUTS_PER_PIECE), strict=True):
            outputs: dict[str, Tensor]
            outputs, loss = outputs_of_layers(net, x, y)
            grads = torch.autograd.grad(loss, [*outputs.values(), *parameters.values()])
            for (layer, output), grad in zip(outputs.items(), grads, strict=False):
                add("activations", layer, output)
                add("gradients", layer, grad)
            for total, grad in zip(sums.values(), grads[len(outputs) :], strict=True):
                total.add_(grad)
        for name, parameter in parameters.items():
            add("weights", name, parameter)
            add("weight gradients", name, sums[name] / len(self.x))
        return found


class LayerScales(NamedTuple):
    """Standard deviations of each layer's output and of the gradient at it, in the order they ran, and the mean loss.

    The gradient is that of the loss summed over samples, so that it does not depend on the batch size.
    """

    layers: tuple[str, ...]
    preactivation: tuple[float, ...]
    gradient: tuple[float, ...]
    loss: float


def layer_scales(net: nn.Module, x: Tensor, y: Tensor) -> LayerScales:
    """Measure the scale of every layer's pre-activations and of the gradients that reach them."""
    outputs, loss = outputs_of_layers(net, x, y)
    gradients = torch.autograd.grad(loss, list(outputs.values()))
    return LayerScales(
        tuple(outputs),
        tuple(t.std().item() for t in outputs.values()),
        tuple(g.std().item() for g in gradients),
        loss.item() / len(x),
    )


def first_overflow(net: nn.Module, x: Tensor, y: Tensor) -> str | None:
    """The first layer whose output is not finite on these inputs."""
    outputs, _ = outputs_of_layers(net, x, y)
    return next((path for path, output in outputs.items() if not torch.isfinite(output).all()), None)


def outputs_of_layers(net: nn.Module, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The output of every layer with weights, in the order they ran, and the summed loss."""
    outputs: dict[str, Tensor] = {}

    def collect(output: LayerOutput) -> None:
        outputs[output.path] = output.values

    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}  # a norm layer may count what it sees
    with layer_hooks(net, collect), torch.enable_grad():
        loss = cross_entropy(functional_call(net, buffers, (x,)), y, reduction="sum")
    return outputs, loss
