"""What should be: the variance of each generated tensor, and what a plain net with such weights does.

The theory says that a hypernet at the right scale behaves like a plain net with independent weights of the target
variances. So the prediction is made with such nets, *twins*, on the same inputs: it holds for any architecture,
whatever norms, sums and nonlinearities stand between the layers, and comes with the scatter of nets of this width.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError, InitError
from hyperfan.init.asked import Asked
from hyperfan.init.registry import Reading
from hyperfan.init.write import fill_
from hyperfan.probe.squares import square, sum_of_squares
from hyperfan.probe.subject import OurNet, Subject
from hyperfan.probe.watch import Into, Watch

Loss = Callable[[object], Tensor]
"""From the mainnet's output to the loss, summed over inputs."""


@dataclass(frozen=True)
class Target:
    """What is asked of one generated tensor.

    Args:
        variance: about its mean; ``None`` where the method cannot say.
        mean: the value it should start at.
        equation: where the variance comes from.
        reading: how the method saw it.
        output: second moment of its layer's output, for a weight.
    """

    variance: float | None
    equation: str
    mean: float = 0.0
    reading: Reading | None = None
    output: float | None = None


def targets(subject: Subject) -> dict[str, Target]:
    """For every generated tensor."""
    asked = Asked(subject.slots, subject.method, subject.fidelity)
    found = {t.name: _target(asked, t.name, t.role, t.start) for t in subject.generated}
    if isinstance(subject, OurNet):  # what was rescaled since has a target of its own
        planned = {r.tensor: r.target for r in subject.net.plan.rows if r.made_by == "head" and r.target is not None}
        found = {n: replace(t, variance=planned.get(n, t.variance)) for n, t in found.items()}
    return found


def _target(asked: Asked, name: str, role: str, start: float | None) -> Target:
    if start is not None:
        return Target(0.0, f"= {start:g}", mean=start)
    try:
        reading, aim = asked.of(name)
        output = asked.output(name) if role == "weight" else None
    except InitError as error:
        return Target(None, str(error))
    return Target(aim.target, aim.equation, reading=reading, output=output)


@dataclass(frozen=True)
class Pass:
    """One pass of a net, forward and backward.

    Args:
        output: what came out.
        watch: what was seen.
        loss: summed over inputs; ``None`` if it is not finite.
        gradients: ∂loss/∂(layer's output), by layer; none where the graph does not reach.
        tensor_gradients: ∂loss/∂(generated tensor), by name.
        other_gradients: ∂loss/∂(what else was asked for), in order.
    """

    output: Tensor
    watch: Watch
    loss: float | None
    gradients: dict[str, Tensor]
    tensor_gradients: dict[str, Tensor]
    other_gradients: list[Tensor | None]


def one_pass(subject: Subject, made: Mapping[str, Tensor], loss: Loss, others: Sequence[Tensor] = ()) -> Pass:
    """Run the mainnet with these tensors, and go back through their graph, if they have one, to the others."""
    made = {name: t if t.requires_grad else t.detach().requires_grad_() for name, t in made.items()}
    with torch.enable_grad():
        output, watch = subject.run(made)
        value = loss(output)
    layers = {label: o.values for label, o in watch.outputs.items() if o.values.requires_grad}
    wanted = [*layers.values(), *made.values(), *others]
    found: list[Tensor | None] = [None] * len(wanted)
    if torch.isfinite(value) and value.requires_grad:
        found = list(torch.autograd.grad(value, wanted, allow_unused=True))
    own = found[len(layers) : len(layers) + len(made)]
    return Pass(
        first_tensor(output).detach(),
        watch,
        value.item() if torch.isfinite(value) else None,
        {label: g for label, g in zip(layers, found, strict=False) if g is not None},
        {name: g for name, g in zip(made, own, strict=True) if g is not None},
        found[len(layers) + len(made) :],
    )


@dataclass(frozen=True)
class Glimpse:
    """What is kept of a twin's pass: numbers only.

    Args:
        activations, gradients: mean squares by layer.
        into: what went into its nonlinearities.
        spread: variance of the output over inputs, over its mean square.
        backward: squared norm of the first layer's gradient, over that of the last; 0 where there is none.
    """

    activations: dict[str, float]
    gradients: dict[str, float]
    into: list[Into]
    spread: float
    backward: float


def glimpse(p: Pass) -> Glimpse:
    """What is kept of a pass."""
    return Glimpse(
        {label: square(o.values) for label, o in p.watch.outputs.items()},
        {label: square(g) for label, g in p.gradients.items()},
        p.watch.into,
        spread(p.output),
        backward(p),
    )


def spread(values: Tensor) -> float:
    """Variance over inputs, as a part of the mean square."""
    v = values.detach().double()
    return (v.var(0, correction=0).mean() / v.square().mean()).item() if len(v) > 1 else 1.0


def backward(p: Pass) -> float:
    """Squared norm of the gradient at the first layer, over that at the last; 0 where there is none."""
    squares = [sum_of_squares(g) for g in p.gradients.values()]
    return squares[0] / squares[-1] if len(squares) > 1 and all(0 < s < math.inf for s in squares) else 0.0


def twin(
    subject: Subject, wanted: Mapping[str, Target], made: Mapping[str, Tensor], generator: torch.Generator
) -> dict[str, Tensor]:
    """Independent normal tensors of the target variances; what has no target stays as it was made.

    The mainnet's own parameters stay too, but for biases beside generated weights, which the theory has at 0.
    """
    drawn = {}
    for t in subject.spec:
        if t.name in subject.own and made.keys() & set(t.weights):
            drawn[t.name] = torch.zeros_like(subject.own[t.name], requires_grad=False)
    for name, tensor in made.items():
        target = wanted[name]
        if target.variance is None:
            drawn[name] = tensor.detach()
        else:
            fresh = torch.empty(tensor.shape, dtype=torch.float32)
            drawn[name] = fill_(fresh, target.variance, "normal", target.mean, generator).to(tensor)
    return drawn


def first_tensor(output: object) -> Tensor:
    """The tensor that a mainnet puts out, or the first of several."""
    return float_tensors(output)[0]


def float_tensors(output: object) -> list[Tensor]:
    """All that a mainnet puts out, if it is in tuples, lists and dicts."""
    found = [t for t in pytree.tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point()]
    if not found:
        raise CallError(
            f"the mainnet puts out a {type(output).__name__}, and no tensor of floating point numbers in tuples or "
            "dicts: wrap it in a module that returns one"
        )
    return found
