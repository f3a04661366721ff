"""Passes of a subject and of its *twins*, forward and backward.

The theory says that a hypernet at the right scale behaves like a plain net with independent weights of the target
variances. So the prediction is made with such nets, *twins*, on the same inputs: it holds for any architecture,
whatever norms, sums and nonlinearities stand between the layers, and comes with the scatter of nets of this width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hyperfan.codes.draw import fill_
from hyperfan.probe.losses import Loss, first_tensor
from hyperfan.probe.moments import mean_square, sum_of_squares
from hyperfan.probe.recorder import NonlinearityInput, Recording
from hyperfan.probe.subject import Subject
from hyperfan.probe.targets import Targets


@dataclass(frozen=True)
class Pass:
    """One pass of a net, forward and backward.

    Args:
        output: the mainnet's output, or its first tensor.
        recording: of the layers.
        loss: summed over inputs; ``None`` if it is not finite.
        gradients: ∂loss/∂(layer's output), by layer; none where the graph does not reach.
        tensor_gradients: ∂loss/∂(generated tensor), by name.
        parameter_gradients: ∂loss/∂(parameters given), in order.
    """

    output: Tensor
    recording: Recording
    loss: float | None
    gradients: dict[str, Tensor]
    tensor_gradients: dict[str, Tensor]
    parameter_gradients: list[Tensor | None]


def run_pass(subject: Subject, generated: Mapping[str, Tensor], loss: Loss, parameters: Sequence[Tensor] = ()) -> Pass:
    """Run the mainnet with these tensors, and go back through their graph, if they have one, to the parameters."""
    tensors = {name: t if t.requires_grad else t.detach().requires_grad_() for name, t in generated.items()}
    with torch.enable_grad():
        output, recording = subject.run(tensors)
        value = loss(output)
    layers = {label: o.values for label, o in recording.outputs.items() if o.values.requires_grad}
    sources = [*layers.values(), *tensors.values(), *parameters]
    found: list[Tensor | None] = [None] * len(sources)
    if torch.isfinite(value) and value.requires_grad:
        found = list(torch.autograd.grad(value, sources, allow_unused=True))
    gradients = iter(found)
    return Pass(
        first_tensor(output).detach(),
        recording,
        value.item() if torch.isfinite(value) else None,
        {label: g for label, g in zip(layers, gradients, strict=False) if g is not None},
        {name: g for name, g in zip(tensors, gradients, strict=False) if g is not None},
        list(gradients),
    )


@dataclass(frozen=True)
class PassSummary:
    """The numbers that are kept of a twin's pass.

    Args:
        activations, gradients: mean squares by layer.
        nonlinearity_inputs: as recorded.
        input_variation: see :func:`input_variation`.
        backward_growth: see :func:`backward_growth`.
    """

    activations: dict[str, float]
    gradients: dict[str, float]
    nonlinearity_inputs: list[NonlinearityInput]
    input_variation: float
    backward_growth: float


def summarise(p: Pass) -> PassSummary:
    """Keep the numbers of a pass, and none of its tensors."""
    return PassSummary(
        {label: mean_square(o.values) for label, o in p.recording.outputs.items()},
        {label: mean_square(g) for label, g in p.gradients.items()},
        p.recording.nonlinearity_inputs,
        input_variation(p.output),
        backward_growth(p),
    )


def input_variation(values: Tensor) -> float:
    """Variance over inputs (dimension 0), as a share of the mean square."""
    v = values.detach().double()
    return (v.var(0, correction=0).mean() / v.square().mean()).item() if len(v) > 1 else 1.0


def backward_growth(p: Pass) -> float:
    """Squared norm of the gradient at the first layer, over that at the last; 0 where there is none."""
    squares = [sum_of_squares(g) for g in p.gradients.values()]
    return squares[0] / squares[-1] if len(squares) > 1 and all(0 < s < math.inf for s in squares) else 0.0


def draw_twin(
    subject: Subject, targets: Targets, generated: Mapping[str, Tensor], generator: torch.Generator
) -> dict[str, Tensor]:
    """Draw independent normal tensors of the target variances; a tensor without a target stays as it was generated.

    Plain parameters stay too, but for biases beside generated weights, which the theory has at 0.
    """
    drawn = {}
    for t in subject.spec:
        if t.name in subject.plain and generated.keys() & set(t.weights):
            drawn[t.name] = torch.zeros_like(subject.plain[t.name], requires_grad=False)
    for name, tensor in generated.items():
        target = targets[name]
        if target.variance is None:
            drawn[name] = tensor.detach()
        else:
            empty = torch.empty(tensor.shape, dtype=torch.float32)
            drawn[name] = fill_(empty, target.variance, "normal", target.mean, generator).to(tensor)
    return drawn
