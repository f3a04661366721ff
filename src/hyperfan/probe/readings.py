"""Readings: a pass of a net and of its twins, layer by layer, tensor by tensor, part by part."""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from hyperfan.probe.diagnosis import PLAIN_PART, LayerReading, PartReading, Scale, TensorReading, head_part
from hyperfan.probe.intervals import measured_scale, predicted_scale
from hyperfan.probe.moments import Histogram, Moments, mean_square, sum_of_squares
from hyperfan.probe.passes import Pass, PassSummary
from hyperfan.probe.subject import Subject
from hyperfan.probe.targets import Targets


def read_layers(
    subject: Subject, targets: Targets, measured: Pass, twins: Sequence[PassSummary]
) -> tuple[LayerReading, ...]:
    """Read every layer in forward order, beside the twins."""
    rows = []
    # A code that is larger than expected makes every layer larger, one after the other.
    drift = 2 * math.sqrt(subject.code_scatter)
    count = len(measured.recording.outputs)
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
                any(w in targets for w in weights) or not weights,
                next((targets[w].layer_output for w in weights if w in targets and out.sums), None),
                _widened(predicted_scale(activations), drift * i) if activations else None,
                measured_scale(out.values, out.units),
                _widened(predicted_scale(gradients), drift * (count - i + 1)) if gradients else None,
                None if gradient is None else measured_scale(gradient, out.units),
                Histogram.around(out.values, Moments.of(out.values)),
            )
        )
    return tuple(rows)


def read_tensors(
    subject: Subject, targets: Targets, squares: Mapping[str, float], measured: Pass, count: int
) -> tuple[TensorReading, ...]:
    """Read every generated tensor, by its mean square, beside its target."""
    rows = []
    for source in subject.sources:
        target, value = targets[source.tensor.name], squares[source.tensor.name]
        gradient = measured.tensor_gradients.get(source.tensor.name)
        rows.append(
            TensorReading(
                source.tensor.name,
                source.tensor.role,
                source.tensor.shape,
                source.head,
                target.variance,
                target.equation,
                # With the scatter of the code, if the head was not fitted to that.
                _widened(Scale(value, value, value), 2 * math.sqrt(2 / source.tensor.numel + subject.code_scatter)),
                math.nan if gradient is None else math.sqrt(mean_square(gradient)) / count,
            )
        )
    return tuple(rows)


def read_parts(
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


def _widened(scale: Scale, reach: float) -> Scale:
    return Scale(scale.value, scale.low * math.exp(-reach), scale.high * math.exp(min(reach, 700)))
