"""A pass of the net and of its twins, read layer by layer, tensor by tensor, part by part."""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from hyperfan.probe.diagnosis import LayerReading, PartReading, Scale, TensorReading
from hyperfan.probe.intervals import measured_scale, predicted_scale
from hyperfan.probe.moments import Histogram, Moments
from hyperfan.probe.squares import square, sum_of_squares
from hyperfan.probe.subject import Subject
from hyperfan.probe.theory import Glimpse, Pass, Target


def read_layers(
    subject: Subject, wanted: Mapping[str, Target], seen: Pass, twins: Sequence[Glimpse]
) -> tuple[LayerReading, ...]:
    """Every layer in forward order, beside what the twins have."""
    rows = []
    # A code that is larger than expected makes every layer larger, one after the other.
    drift = 2 * math.sqrt(subject.scatter)
    count = len(seen.watch.outputs)
    for i, (label, out) in enumerate(seen.watch.outputs.items(), 1):
        weights = subject.weights_of(out)
        gradient = seen.gradients.get(label)
        beside = [t.activations[label] for t in twins if label in t.activations]
        backward = [t.gradients[label] for t in twins if label in t.gradients]
        rows.append(
            LayerReading(
                label,
                out.kind,
                weights,
                any(w in wanted for w in weights) or not weights,
                next((wanted[w].output for w in weights if w in wanted and out.sums), None),
                _widened(predicted_scale(beside), drift * i) if beside else None,
                measured_scale(out.values, out.units),
                _widened(predicted_scale(backward), drift * (count - i + 1)) if backward else None,
                None if gradient is None else measured_scale(gradient, out.units),
                Histogram.around(out.values, Moments.of(out.values)),
            )
        )
    return tuple(rows)


def read_tensors(
    subject: Subject, wanted: Mapping[str, Target], squares: Mapping[str, float], seen: Pass, count: int
) -> tuple[TensorReading, ...]:
    """Every generated tensor, by its mean square, beside its target."""
    rows = []
    for slot in subject.slots:
        target, value = wanted[slot.tensor.name], squares[slot.tensor.name]
        gradient = seen.tensor_gradients.get(slot.tensor.name)
        rows.append(
            TensorReading(
                slot.tensor.name,
                slot.tensor.role,
                slot.tensor.shape,
                slot.head,
                target.variance,
                target.equation,
                # With the scatter of the code, if the head was not fitted to that.
                _widened(Scale(value, value, value), 2 * math.sqrt(2 / slot.tensor.numel + subject.scatter)),
                math.nan if gradient is None else math.sqrt(square(gradient)) / count,
            )
        )
    return tuple(rows)


def _widened(scale: Scale, reach: float) -> Scale:
    return Scale(scale.value, scale.low * math.exp(-reach), scale.high * math.exp(min(reach, 700)))


def read_parts(
    subject: Subject, parts: Mapping[str, Mapping[str, Tensor]], seen: Pass, count: int
) -> tuple[PartReading, ...]:
    """What reaches everything that is trained: ``seen`` has the gradients of all parts, in order."""
    rows, left = [], iter(seen.other_gradients)
    through = {name: sum_of_squares(g) for name, g in seen.tensor_gradients.items()}
    for part, parameters in parts.items():
        reached = sum(sum_of_squares(next(left)) for _ in parameters)
        made = {s.tensor.name for s in subject.slots if part == f"head {s.head}"} or set(through)
        moved = sum(through.get(name, 0.0) for name in made)
        rate = reached / moved if moved and part != "plain" else None
        norm = math.nan if seen.loss is None else math.sqrt(reached) / count
        rows.append(PartReading(part, sum(p.numel() for p in parameters.values()), norm, rate))
    return tuple(rows)
