"""Targets: the variance and mean that each generated tensor should have, by the method's theory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperfan.errors import InitError
from hyperfan.init import targets as theory
from hyperfan.init.registry import Fidelity, Method, Reading
from hyperfan.mainnet.spec import TensorSpec
from hyperfan.probe.subject import Subject


@dataclass(frozen=True)
class Target:
    """The variance and mean that one generated tensor should have.

    Args:
        variance: about its mean; ``None`` where the method cannot say.
        equation: where the variance comes from, or why there is none.
        mean: the value it should start at.
        reading: how the method saw it.
        layer_output: mean square of its layer's output, for a weight.
    """

    variance: float | None
    equation: str
    mean: float = 0.0
    reading: Reading | None = None
    layer_output: float | None = None


Targets = dict[str, Target]


def find_targets(subject: Subject, fidelity: Fidelity | None = None) -> Targets:
    """The target of every generated tensor, by its name; where a tensor was rescaled since, by its plan."""
    asked = theory.Targets(subject.generated, subject.method, fidelity or subject.fidelity)
    found = {}
    for source in subject.sources:
        target = _target(asked, source.tensor)
        if source.planned is not None and not fidelity:
            target = replace(target, variance=source.planned)
        found[source.tensor.name] = target
    return found


def aims_at_variances(tensors: Sequence[TensorSpec], method: Method, fidelity: Fidelity) -> bool:
    """Whether a method says which variance a tensor should have, and not only that of the head."""
    asked = theory.Targets(tensors, method, fidelity)
    for t in tensors:
        if t.start is None:
            try:
                return asked.aim(t.name).target is not None
            except InitError:
                continue
    return True


def _target(asked: theory.Targets, t: TensorSpec) -> Target:
    if t.start is not None:
        return Target(0.0, f"= {t.start:g}", mean=t.start)
    try:
        reading, aim = asked.reading(t.name), asked.aim(t.name)
        layer_output = asked.output(t.name) if t.role == "weight" else None
    except InitError as error:
        return Target(None, str(error))
    return Target(aim.target, aim.equation, reading=reading, layer_output=layer_output)
