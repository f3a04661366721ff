"""``Evidence``: everything measured on a subject and on its twins, before it is judged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.probe.diagnosis import PLAIN_PART, Diagnosis, LayerReading, PartReading, Scale, TensorReading, head_part
from hyperfan.probe.intervals import measured_scale, predicted_scale
from hyperfan.probe.losses import UserLoss, guessing_loss, mean_loss, random_direction
from hyperfan.probe.moments import Histogram, Moments, mean_square, sum_of_squares
from hyperfan.probe.passes import Pass, PassSummary, draw_twin, run_pass, summarise
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
        readings: of layers, tensors and parts, and the loss: a diagnosis without findings.
        input_scale: mean square of the inputs, if they are numbers.
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
    readings: Diagnosis
    input_scale: float | None
    constant: tuple[str, ...]
    noise: Mapping[str, float]
    trial: Trial | None
    y_is_finite: bool


def gather(subject: Subject, y: Any, loss: UserLoss | None, lr: float | None) -> Evidence:
    """Measure a net and its twins."""
    targets = find_targets(subject)
    torch.manual_seed(SEED)
    generated = subject.generate()
    parts = subject.trained_parts(generated)
    trained = [p for parameters in parts.values() for p in parameters.values()]
    inputs = subject.inputs
    count = len(inputs[0]) if inputs and inputs[0].ndim else 1
    if not count:
        raise CallError("x is empty: give as many inputs as a training batch has")

    def mean(out: object) -> Tensor:
        return random_direction(out) if y is None else mean_loss(out, y, loss)

    def summed(out: object) -> Tensor:
        return mean(out) * count

    squares, noise = _over_draws(subject, targets)
    measured = run_pass(subject, generated, summed, trained)
    generator = torch.Generator().manual_seed(SEED)
    drawn = (draw_twin(subject, targets, generated, generator) for _ in range(TWINS))
    twins = tuple(summarise(run_pass(subject, twin, summed)) for twin in drawn)
    constant = tuple(name for name in subject.constant() if targets[name].variance)
    value = None if measured.loss is None or y is None else measured.loss / count
    trial: Trial | None = None
    if lr is not None and value is not None:
        gradients = zip(trained, measured.parameter_gradients, strict=True)
        trial = try_step(subject, mean, value, [(p, g / count) for p, g in gradients if g is not None], lr)
    readings = Diagnosis(
        subject.name,
        subject.method.name,
        count,
        TWINS,
        _read_layers(subject, targets, measured, twins),
        _read_tensors(subject, targets, squares, measured, count),
        _read_parts(subject, parts, measured, count),
        findings=(),
        loss=value,
        expected_loss=None if y is None else guessing_loss(measured.output, y, loss),
        stable_rate=None if trial is None else trial.stable_rate,
    )
    input_scale = next((mean_square(t) for t in inputs if t.is_floating_point()), None)
    y_is_finite = all(bool(t.isfinite().all()) for t in pytree.tree_leaves(y) if isinstance(t, Tensor))
    return Evidence(
        subject, targets, generated, measured, twins, readings, input_scale, constant, noise, trial, y_is_finite
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


def _read_layers(
    subject: Subject, targets: Targets, measured: Pass, twins: Sequence[PassSummary]
) -> tuple[LayerReading, ...]:
    """Read every layer in forward order, beside the twins."""
    # A code that is larger than expected makes every layer larger, one after the other.
    drift = 2 * math.sqrt(subject.code_scatter)
    rows, count = [], len(measured.recording.outputs)
    for i, (label, out) in enumerate(measured.recording.outputs.items(), 1):
        weights = subject.weights_of(out)
        gradient = measured.gradients.get(label)
        activations = [t.activations[label] for t in twins if label in t.activations]
        gradients = [t.gradients[label] for t in twins if label in t.gradients]
        rows.append(
            LayerReading(
                label,
                out.kind,
                weights,
                generated=any(w in targets for w in weights) or not weights,
                target=next((targets[w].layer_output for w in weights if w in targets and out.sums), None),
                predicted=predicted_scale(activations).widened(drift * i) if activations else None,
                measured=measured_scale(out.values, out.units),
                predicted_gradient=predicted_scale(gradients).widened(drift * (count - i + 1)) if gradients else None,
                measured_gradient=None if gradient is None else measured_scale(gradient, out.units),
                histogram=Histogram.around(out.values, Moments.of(out.values)),
            )
        )
    return tuple(rows)


def _read_tensors(
    subject: Subject, targets: Targets, squares: Mapping[str, float], measured: Pass, count: int
) -> tuple[TensorReading, ...]:
    """Read every generated tensor, by its mean square, beside its target."""
    rows = []
    for source in subject.sources:
        t, target, value = source.tensor, targets[source.tensor.name], squares[source.tensor.name]
        # With the scatter of the code, if the head was not fitted to that.
        realised = Scale(value, value, value).widened(2 * math.sqrt(2 / t.numel + subject.code_scatter))
        gradient = measured.tensor_gradients.get(t.name)
        rms = math.nan if gradient is None else math.sqrt(mean_square(gradient)) / count
        rows.append(
            TensorReading(t.name, t.role, t.shape, source.head, target.variance, target.equation, realised, rms)
        )
    return tuple(rows)


def _read_parts(
    subject: Subject, parts: Mapping[str, Mapping[str, Tensor]], measured: Pass, count: int
) -> tuple[PartReading, ...]:
    """Read everything that is trained: ``measured`` has the gradients of all parts' parameters, in order."""
    rows, gradients = [], iter(measured.parameter_gradients)
    of_tensors = {name: sum_of_squares(g) for name, g in measured.tensor_gradients.items()}
    for part, parameters in parts.items():
        of_part = sum(sum_of_squares(next(gradients)) for _ in parameters)
        tensors = [s.tensor.name for s in subject.sources if part == head_part(s.head)] or list(of_tensors)
        of_its_tensors = sum(of_tensors.get(name, 0.0) for name in tensors)
        rate = of_part / of_its_tensors if of_its_tensors and part != PLAIN_PART else None
        norm = math.nan if measured.loss is None else math.sqrt(of_part) / count
        rows.append(PartReading(part, sum(p.numel() for p in parameters.values()), norm, rate))
    return tuple(rows)
