"""``Evidence``: everything measured on a subject and on its twins, before it is judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.probe.diagnosis import PLAIN_PART, LayerReading, PartReading, TensorReading
from hyperfan.probe.losses import UserLoss, mean_loss, random_direction
from hyperfan.probe.moments import mean_square
from hyperfan.probe.passes import Pass, PassSummary, draw_twin, run_pass, summarise
from hyperfan.probe.readings import read_layers, read_parts, read_tensors
from hyperfan.probe.subject import SEED, Subject
from hyperfan.probe.targets import Targets, find_targets
from hyperfan.probe.trial import Trial, try_step

TWINS = 5
"""Number of twins that the prediction is made of."""


@dataclass(frozen=True)
class Evidence:
    """The measurements that the checks judge.

    Args:
        subject: the net.
        targets: what the theory wants of each generated tensor.
        generated: the generated tensors.
        measured, twins: a pass of the net, and what plain nets at the target variances do.
        layers, tensors, parts: readings.
        inputs: their number.
        input_scale: mean square of the inputs, if they are numbers.
        loss, expected_loss: mean over inputs; that of a net which knows nothing.
        constant: tensors that do not change with the embedding.
        noise: share of noise in the mean square of each tensor, where it has any.
        trial: one step of plain SGD, if a learning rate was given.
        y_is_finite: whether y holds finite numbers only.
    """

    subject: Subject
    targets: Targets
    generated: Mapping[str, Tensor]
    measured: Pass
    twins: tuple[PassSummary, ...]
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


def gather(subject: Subject, y: Any, loss: UserLoss | None, lr: float | None) -> Evidence:
    """Measure a net and its twins."""
    targets = find_targets(subject)
    generated = subject.generate()
    parts = {**subject.trained_parts(generated), PLAIN_PART: subject.trained_plain()}
    parts = {part: parameters for part, parameters in parts.items() if parameters}
    inputs = subject.inputs
    count = len(inputs[0]) if inputs and inputs[0].ndim else 1
    if not count:
        raise CallError("x is empty: give as many inputs as a training batch has")
    with torch.no_grad():
        output, _ = subject.run({name: t.detach() for name, t in generated.items()})
    mean, expected = (random_direction(output), None) if y is None else mean_loss(output, y, loss)

    def summed(out: object) -> Tensor:
        return mean(out) * count

    squares, noise = _over_draws(subject, targets)
    measured = run_pass(subject, generated, summed, [p for ps in parts.values() for p in ps.values()])
    generator = torch.Generator().manual_seed(SEED)
    drawn = (draw_twin(subject, targets, generated, generator) for _ in range(TWINS))
    twins = tuple(summarise(run_pass(subject, twin, summed)) for twin in drawn)
    numbers = [t for t in inputs if t.is_floating_point()]
    return Evidence(
        subject,
        targets,
        generated,
        measured,
        twins,
        read_layers(subject, targets, measured, twins),
        read_tensors(subject, targets, squares, measured, count),
        read_parts(subject, parts, measured, count),
        count,
        mean_square(numbers[0]) if numbers else None,
        None if measured.loss is None or y is None else measured.loss / count,
        expected,
        tuple(name for name in subject.constant() if targets[name].variance),
        noise,
        None if lr is None else try_step(subject, summed, count, lr),
        all(bool(t.isfinite().all()) for t in pytree.tree_leaves(y) if isinstance(t, Tensor)),
    )


@torch.no_grad()
def _over_draws(subject: Subject, targets: Targets) -> tuple[dict[str, float], dict[str, float]]:
    """The mean square of each tensor about its mean, over draws, and the share of noise in it where there is any."""
    sums: dict[str, Tensor] = {}
    squares: dict[str, float] = dict.fromkeys(targets, 0.0)
    draws = 0
    for generated in subject.draws():
        draws += 1
        for name, tensor in generated.items():
            deviation = tensor.detach() - targets[name].mean
            sums[name] = deviation if draws == 1 else sums[name] + deviation
            squares[name] += mean_square(deviation)
    squares = {name: total / draws for name, total in squares.items()}
    if draws == 1:
        return squares, {}
    # The mean over draws still has 1/draws of the noise in it.
    noise = {n: (squares[n] - mean_square(sums[n] / draws)) * draws / (draws - 1) for n in squares}
    return squares, {n: v / squares[n] for n, v in noise.items() if v > 1e-12 * squares[n]}
