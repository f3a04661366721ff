"""All that one look at a net brings to light, before anyone judges it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.probe.diagnosis import LayerReading, PartReading, TensorReading
from hyperfan.probe.losses import GivenLoss, direction, loss_for
from hyperfan.probe.readings import read_layers, read_parts, read_tensors
from hyperfan.probe.squares import square
from hyperfan.probe.subject import SEED, Subject
from hyperfan.probe.theory import Glimpse, Pass, Target, glimpse, one_pass, targets, twin
from hyperfan.probe.trial import Trial, try_step

TWINS = 5


@dataclass(frozen=True)
class Evidence:
    """What the checks look at.

    Args:
        subject: the net.
        wanted: what each generated tensor should be.
        made: what it is.
        seen, twins: a pass of the net, and what plain nets at the target variances do.
        layers, tensors, parts: readings.
        inputs: how many.
        input_scale: mean square of the inputs, if they are numbers.
        loss, expected_loss: mean over inputs; that of a net which knows nothing.
        constant: tensors that do not change with the embedding.
        noise: share of noise in the mean square of each tensor, where it has any.
        trial: what one step of plain SGD did, if a learning rate was given.
        y_is_finite: whether what the loss compares with holds finite numbers.
    """

    subject: Subject
    wanted: Mapping[str, Target]
    made: Mapping[str, Tensor]
    seen: Pass
    twins: tuple[Glimpse, ...]
    layers: tuple[LayerReading, ...]
    tensors: tuple[TensorReading, ...]
    parts: tuple[PartReading, ...]
    inputs: int
    input_scale: float | None
    loss: float | None
    expected_loss: float | None
    constant: tuple[str, ...]
    noise: Mapping[str, float]
    trial: Trial | None
    y_is_finite: bool


def gather(subject: Subject, y: Any, loss: GivenLoss | None, lr: float | None) -> Evidence:
    """Look at a net, and at its twins."""
    wanted = targets(subject)
    made = subject.generate()
    parts = {part: ps for part, ps in {**subject.trained(made), "plain": subject.plain()}.items() if ps}
    inputs = [t for t in pytree.tree_leaves((subject.args, subject.kwargs)) if isinstance(t, Tensor)]
    count = len(inputs[0]) if inputs and inputs[0].ndim else 1
    if not count:
        raise CallError("x is empty: give as many inputs as a training batch has")
    with torch.no_grad():
        output, _ = subject.run({name: t.detach() for name, t in made.items()})
    mean, expected = direction(output) if y is None else loss_for(output, y, loss)

    def summed(out: object) -> Tensor:
        return mean(out) * count

    squares, noise = _drawn(subject, wanted)
    seen = one_pass(subject, made, summed, [p for ps in parts.values() for p in ps.values()])
    own = torch.Generator().manual_seed(SEED)
    twins = [glimpse(one_pass(subject, twin(subject, wanted, made, own), summed)) for _ in range(TWINS)]
    numbers = [t for t in inputs if t.is_floating_point()]
    return Evidence(
        subject,
        wanted,
        made,
        seen,
        tuple(twins),
        read_layers(subject, wanted, seen, twins),
        read_tensors(subject, wanted, squares, seen, count),
        read_parts(subject, parts, seen, count),
        count,
        square(numbers[0]) if numbers else None,
        None if seen.loss is None or y is None else seen.loss / count,
        expected,
        tuple(name for name in subject.constant() if wanted[name].variance),
        noise,
        None if lr is None else try_step(subject, summed, count, lr),
        all(bool(t.isfinite().all()) for t in pytree.tree_leaves(y) if isinstance(t, Tensor)),
    )


@torch.no_grad()
def _drawn(subject: Subject, wanted: Mapping[str, Target]) -> tuple[dict[str, float], dict[str, float]]:
    """The mean square of each tensor about its mean, over draws, and the share of noise in it where there is any."""
    sums: dict[str, Tensor] = {}
    squares: dict[str, float] = dict.fromkeys(wanted, 0.0)
    draws = 0
    for made in subject.draws():
        draws += 1
        for name, tensor in made.items():
            away = tensor.detach() - wanted[name].mean
            sums[name] = away if draws == 1 else sums[name] + away
            squares[name] += square(away)
    squares = {name: total / draws for name, total in squares.items()}
    if draws == 1:
        return squares, {}
    # The mean over draws still has 1/draws of the noise in it.
    noise = {n: (squares[n] - square(sums[n] / draws)) * draws / (draws - 1) for n in squares}
    return squares, {n: v / squares[n] for n, v in noise.items() if v > 1e-12 * squares[n]}
