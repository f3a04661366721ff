"""What should be: the variance of each generated tensor, and what a plain net with such weights does.

The theory says that a hypernet at the right scale behaves like a plain net with independent weights of the target
variances. So the prediction is made with such nets, *twins*, on the same inputs: it holds for any architecture,
whatever norms, sums and nonlinearities stand between the layers, and comes with the scatter of nets of this width.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.errors import InitError
from hyperfan.init.asked import Asked
from hyperfan.init.registry import Reading
from hyperfan.init.write import fill_
from hyperfan.probe.subject import Subject
from hyperfan.probe.watch import Watch

SEED = 2020_1043
"""Not one that people use: twins drawn from the seed of the inputs would have the inputs as their weights."""
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
    return {t.name: _target(asked, t.name, t.role, t.start) for t in subject.generated}


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
        loss: summed over inputs; ``None`` if the output is not finite.
        gradients: ∂loss/∂(layer's output), and ∂loss/∂(generated tensor), by name; none where the graph does not reach.
    """

    output: Tensor
    watch: Watch
    loss: float | None
    gradients: dict[str, Tensor]
    tensor_gradients: dict[str, Tensor]


def one_pass(subject: Subject, made: Mapping[str, Tensor], loss: Loss) -> Pass:
    """Run the mainnet with these tensors, which get no graph of their own here."""
    leaves = {name: t.detach().requires_grad_() for name, t in made.items()}
    with torch.enable_grad():
        output, watch = subject.run(leaves)
        value = loss(output)
    layers = {label: o.values for label, o in watch.outputs.items() if o.values.requires_grad}
    found: list[Tensor | None] = [None] * (len(layers) + len(leaves))
    if torch.isfinite(value) and value.requires_grad:
        found = list(torch.autograd.grad(value, [*layers.values(), *leaves.values()], allow_unused=True))
    return Pass(
        first_tensor(output).detach(),
        watch,
        value.item() if torch.isfinite(value) else None,
        {label: g for label, g in zip(layers, found, strict=False) if g is not None},
        {name: g for name, g in zip(leaves, found[len(layers) :], strict=True) if g is not None},
    )


def twin(
    subject: Subject, wanted: Mapping[str, Target], made: Mapping[str, Tensor], generator: torch.Generator
) -> dict[str, Tensor]:
    """Independent normal tensors of the target variances; what has no target stays as it was made.

    Of the mainnet's own parameters, biases are at 0 and norms at 1 and 0, as the theory has them.
    """
    drawn = {}
    for t in subject.spec:
        if t.name in subject.own and (t.role == "bias" or t.start is not None):
            drawn[t.name] = torch.full_like(subject.own[t.name], t.start or 0.0, requires_grad=False)
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
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf
    raise InitError("the mainnet puts out no tensor of floating point numbers")
