"""All that one look at a net brings to light, before anyone judges it."""

import math
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
        read_tensors(subject, wanted, made, seen, count),
        read_parts(subject, parts, seen, count),
        count,
        square(numbers[0]) if numbers else None,
        None if seen.loss is None or y is None else seen.loss / count,
        expected,
        tuple(name for name in subject.constant() if wanted[name].variance),
        _noise(subject) if subject.random else {},
        None if lr is None else try_step(subject, summed, count, lr),
    )


def _noise(subject: Subject) -> dict[str, float]:
    """The share of noise in each tensor's mean square, from two draws."""
    torch.manual_seed(SEED + 2)
    with torch.no_grad():
        a, b = subject.generate(noise=True), subject.generate(noise=True)
    shares = {}
    for name in a:
        noise, both = square(a[name] - b[name]) / 2, (square(a[name]) + square(b[name])) / 2
        if 0 < noise < math.inf:
            shares[name] = noise / both
    return shares
