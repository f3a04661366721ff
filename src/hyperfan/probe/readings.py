"""A pass of the net and of its twins, read layer by layer, tensor by tensor, part by part."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from hyperfan.probe.diagnosis import LayerReading, PartReading, Scale, TensorReading
from hyperfan.probe.intervals import measured_scale, predicted_scale
from hyperfan.probe.moments import Histogram, Moments
from hyperfan.probe.subject import Subject
from hyperfan.probe.theory import Loss, Pass, Target


def read_layers(
    subject: Subject, wanted: Mapping[str, Target], seen: Pass, twins: tuple[Pass, ...]
) -> tuple[LayerReading, ...]:
    """Every layer in forward order, beside what the twins have."""
    rows = []
    # A code that is larger than expected makes every layer larger, one after the other.
    drift = 2 * math.sqrt(subject.scatter)
    count = len(seen.watch.outputs)
    for i, (label, out) in enumerate(seen.watch.outputs.items(), 1):
        weights = subject.weights_of(out)
        gradient = seen.gradients.get(label)
        beside = [t.watch.outputs[label].values for t in twins if label in t.watch.outputs]
        backward = [t.gradients[label] for t in twins if label in t.gradients]
        rows.append(
            LayerReading(
                label,
                out.kind,
                weights,
                any(w in wanted for w in weights) or not weights,
                next((wanted[w].output for w in weights if w in wanted and out.sums), None),
                _widened(predicted_scale([square(v) for v in beside]), drift * i) if beside else None,
                measured_scale(out.values, out.units),
                _widened(predicted_scale([square(g) for g in backward]), drift * (count - i + 1)) if backward else None,
                None if gradient is None else measured_scale(gradient, out.units),
                Histogram.around(out.values, Moments.of(out.values)),
            )
        )
    return tuple(rows)


def read_tensors(
    subject: Subject, wanted: Mapping[str, Target], made: Mapping[str, Tensor], seen: Pass, count: int
) -> tuple[TensorReading, ...]:
    """Every generated tensor, beside its target."""
    rows = []
    for slot in subject.slots:
        tensor, target = made[slot.tensor.name].detach(), wanted[slot.tensor.name]
        gradient = seen.tensor_gradients.get(slot.tensor.name)
        rows.append(
            TensorReading(
                slot.tensor.name,
                slot.tensor.role,
                tuple(tensor.shape),
                slot.head,
                target.variance,
                target.equation,
                _realised(subject, tensor - target.mean),
                math.nan if gradient is None else math.sqrt(square(gradient)) / count,
            )
        )
    return tuple(rows)


def _realised(subject: Subject, values: Tensor) -> Scale:
    """Mean square of a tensor, with the scatter of its code in the interval if the head was not fitted to that."""
    value = square(values)
    return _widened(Scale(value, value, value), 2 * math.sqrt(2 / values.numel() + subject.scatter))


def _widened(scale: Scale, reach: float) -> Scale:
    return Scale(scale.value, scale.low * math.exp(-reach), scale.high * math.exp(min(reach, 700)))


def read_parts(subject: Subject, made: Mapping[str, Tensor], loss: Loss, count: int) -> tuple[PartReading, ...]:
    """What reaches everything that is trained, through the graph of the generated tensors."""
    parts = {**subject.trained(made), "plain": subject.plain()}
    trained = {(part, name): p for part, ps in parts.items() for name, p in ps.items()}
    reached = {name: t for name, t in made.items() if t.requires_grad}
    with torch.enable_grad():
        output, _ = subject.run(made)
        value = loss(output) / count
    if not torch.isfinite(value) or not value.requires_grad:
        return tuple(
            PartReading(part, sum(p.numel() for p in ps.values()), math.nan, None) for part, ps in parts.items() if ps
        )
    grads = torch.autograd.grad(value, [*reached.values(), *trained.values()], allow_unused=True)
    squares = {name: sum_of_squares(g) for name, g in zip(reached, grads, strict=False)}
    found: dict[str, float] = dict.fromkeys(parts, 0.0)
    for (part, _), g in zip(trained, grads[len(reached) :], strict=True):
        found[part] += sum_of_squares(g)
    rows = []
    for part, ps in parts.items():
        through = {s.tensor.name for s in subject.slots if part == f"head {s.head}"} or set(squares)
        moved = sum(squares[n] for n in through if n in squares)
        rate = found[part] / moved if moved and part != "plain" else None
        if ps:
            rows.append(PartReading(part, sum(p.numel() for p in ps.values()), math.sqrt(found[part]), rate))
    return tuple(rows)


def square(values: Tensor) -> float:
    """Mean square."""
    return sum_of_squares(values) / values.numel()


def sum_of_squares(gradient: Tensor | None) -> float:
    """In double precision, without a copy in it."""
    if gradient is None:
        return 0.0
    return float(torch.linalg.vector_norm(gradient.detach(), dtype=torch.float64).item() ** 2)
