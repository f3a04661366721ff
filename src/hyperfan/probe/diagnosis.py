"""``Diagnosis``: readings of layers, tensors and parts, and findings, as frozen values that print."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyperfan.charts.axis import digits
from hyperfan.charts.html import notebook_diagnosis
from hyperfan.charts.scale import Signal, scale_chart
from hyperfan.files import finite_or_none
from hyperfan.probe.findings import Finding, in_places, remedies_once, without_notes
from hyperfan.probe.first_step import FIRST_STEPS, OptimiserName
from hyperfan.probe.moments import Histogram, Scale
from hyperfan.text import capitalise, number, table

TRUNK_PART, EMBEDDING_PART, BASE_PART, PLAIN_PART, HYPERNET_PART = "trunk", "embedding", "base", "plain", "hypernet"
"""Names of parts: the trunk, the embeddings, bases of generated tensors, the mainnet's plain parameters, and all of a
foreign hypernet."""
ENCODER_PART = "encoder"
"""Name of what computed the embedding that is passed to a diagnosis."""
Table = tuple[list[str], list[list[str]]]
"""A header, and rows."""
MIN_SKEW = 1.5
"""Target over prediction that needs an explanation."""


def head_part(head: str) -> str:
    """The name of the part that is one head."""
    return f"head {head}"


@dataclass(frozen=True)
class LayerReading:
    """The mean squares of one layer as they should be, and as they are.

    Args:
        layer: path of the module, with the number of the call if there are several.
        kind: its class.
        weights: names of its weights.
        generated: whether a weight of it is generated.
        target: the mean square that the theory wants of its output; ``None`` where it cannot be analysed.
        predicted, measured: mean square of the layer's output. The prediction is what a plain net with independent
            weights of the target variances does on the same inputs; its interval is the scatter of such nets.
        predicted_gradient, measured_gradient: the same for ∂ℓ/∂(output), with ℓ the loss of one input.
        histogram: of the output's values.
    """

    layer: str
    kind: str
    weights: tuple[str, ...]
    generated: bool
    target: float | None
    predicted: Scale | None
    measured: Scale
    predicted_gradient: Scale | None
    measured_gradient: Scale | None
    histogram: Histogram = field(repr=False)

    def scales(self, of: Signal) -> tuple[Scale | None, Scale | None]:
        """Mean squares as measured and as predicted, of outputs or of gradients; ``None`` where there is none."""
        if of == "activations":
            return self.measured, self.predicted
        return self.measured_gradient, self.predicted_gradient


@dataclass(frozen=True)
class TensorReading:
    """The variance and the gradient of one generated tensor.

    Args:
        tensor: its name in the mainnet.
        role, shape: as read from the mainnet.
        head: the head that makes it, or "" where that is not known.
        target: variance it should have.
        equation: where the target comes from.
        realised: its mean square, or that about the value it should start at, as it is.
        gradient: root mean square of ∂L/∂(the tensor), with L the mean loss.
    """

    tensor: str
    role: str
    shape: tuple[int, ...]
    head: str
    target: float | None
    equation: str
    realised: Scale
    gradient: float

    @property
    def ratio(self) -> float | None:
        """Realised over target variance, where both are positive."""
        return self.realised.value / self.target if self.target and self.realised.value > 0 else None


@dataclass(frozen=True)
class PartReading:
    """The gradient of one part of what is trained: a head, the trunk, the embeddings, the plain parameters.

    Args:
        part: :func:`head_part`, or one of the constants above.
        parameters: their number.
        gradient: norm of ∂L/∂(its parameters).
        rate: effective learning rate: how far along their gradient a step on this part moves the generated tensors,
            over the same step on the tensors themselves. For a head that makes one tensor it is ‖h‖² + 1 in SGD, and
            ‖h‖₁ + 1 in Adam and AdamW.
    """

    part: str
    parameters: int
    gradient: float
    rate: float | None


@dataclass(frozen=True)
class Diagnosis:
    """The result of ``diagnose``. ``print`` it; a script reads ``diagnosis.healthy``.

    Args:
        net: a title of the net.
        theory: the init method whose targets were taken.
        inputs: number of inputs.
        twins: number of plain nets that the prediction is made of.
        layers, tensors, parts, findings: readings, and the faults found.
        loss: the mean loss, where there is one.
        expected_loss: that of a net which knows nothing.
        stable_rate: the learning rate up to which the optimiser's first step lowers the loss, by the curvature along
            it; if ``lr`` was given, and if there is such a rate.
        optimiser: the optimiser of effective rates and of ``stable_rate``.
        codes: number of codes: one for all inputs, or one for each.
        correlation: between the weights of two conditions, in the mean over pairs; if there are conditions.
    """

    net: str
    theory: str
    inputs: int
    twins: int
    layers: tuple[LayerReading, ...]
    tensors: tuple[TensorReading, ...]
    parts: tuple[PartReading, ...]
    findings: tuple[Finding, ...]
    loss: float | None = None
    expected_loss: float | None = None
    stable_rate: float | None = None
    optimiser: OptimiserName = "sgd"
    codes: int = 1
    correlation: float | None = None

    @property
    def healthy(self) -> bool:
        """Whether there is nothing worse than a note."""
        return not without_notes(self.findings)

    @property
    def summary(self) -> str:
        """The worst finding, or that there is none, in one sentence."""
        bad = without_notes(self.findings)
        if not bad:
            known = sum(r.target is not None for r in self.layers)
            if not known:
                return f"Nothing found, and little looked at: none of the {len(self.layers)} layers has a target."
            some = f"{known} of {len(self.layers)}" if known < len(self.layers) else f"{known}"
            return f"Healthy: {some} layers have a target, and are like those of plain nets that {self.theory} starts."
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        return f"{capitalise(bad[0].name)}{in_places(bad[0].where)}{more}."

    @property
    def facts(self) -> str:
        """What it was measured with, the loss, and the learning rate that it allows, in one sentence."""
        groups = f" in {self.codes:,} groups" if 1 < self.codes < self.inputs else ""
        inputs = f"{self.inputs:,} inputs{groups}{', each with a code of its own' if self.codes > 1 else ''}"
        facts = [f"Theory: {self.theory}", inputs, f"prediction from {self.twins} plain nets"]
        if self.loss is not None:
            guess = "" if self.expected_loss is None else f" (guessing has {digits(self.expected_loss)})"
            facts.append(f"loss {digits(self.loss)}{guess}")
        if self.correlation is not None:
            facts.append(f"the weights of two conditions have correlation {self.correlation:.2f}")
        if self.stable_rate is not None:
            allowed, title = digits(self.stable_rate), FIRST_STEPS[self.optimiser].title
            facts.append(f"by its curvature the loss allows a learning rate of {allowed} in a first step of {title}")
        return "; ".join(facts) + "."

    def layer_table(self, write: Callable[[float | None], str] = number) -> Table:
        """Mean squares of all layers in forward order; ``write`` formats a number."""
        header = ["layer", "kind", "generated", "target", "predicted", "measured", "[95 %]"]
        rows = []
        for r in self.layers:
            scales = r.predicted, r.measured, r.predicted_gradient, r.measured_gradient
            predicted, measured, *gradients = (write(s.value if s else None) for s in scales)
            interval = f"[{write(r.measured.low)}, {write(r.measured.high)}]"
            generated = "yes" if r.generated else "no"
            rows.append([r.layer, r.kind, generated, write(r.target), predicted, measured, interval, *gradients])
        return [*header, "gradient predicted", "measured"], rows

    @property
    def scatter_note(self) -> str:
        """Why predictions lie below targets where plain nets scatter widely; empty where they do not."""
        wide = [
            (r.layer, r.predicted)
            for r in self.layers
            if r.target and r.predicted and r.predicted.value < r.target / MIN_SKEW < r.target <= r.predicted.high
        ]
        if not wide:
            return ""
        (_, first), names = wide[0], [layer for layer, _ in wide]
        return (
            f"Predicted is the middle of plain nets, and the target their mean, which is larger{in_places(names)}: "
            f"with few outputs they scatter, 95 % of them from {digits(first.low)} to {digits(first.high)}."
        )

    def part_table(self, write: Callable[[float | None], str] = number) -> Table:
        """The gradient and effective rate of each part that is trained; ``write`` formats a number."""
        rows = [[p.part, f"{p.parameters:,}", write(p.gradient), write(p.rate)] for p in self.parts]
        title = FIRST_STEPS[self.optimiser].title
        return ["part", "parameters", "gradient norm", f"effective rate in {title}"], rows

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON, which knows no infinity: what is not finite is ``None``."""
        return dict(finite_or_none({"healthy": self.healthy, "summary": self.summary, **dataclasses.asdict(self)}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Diagnosis":
        """Rebuild from :meth:`to_dict`; what was not finite is NaN now."""
        kinds = {"layers": LayerReading, "tensors": TensorReading, "parts": PartReading, "findings": Finding}
        fields = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        for name, kind in kinds.items():
            fields[name] = tuple(_from_dict(kind, row) for row in values[name])
        return cls(**fields)

    def _repr_html_(self) -> str:
        """Findings and the scale of every layer, for a notebook."""
        return notebook_diagnosis(self.net, self.summary, self.findings, scale_chart({"measured": self.layers}))

    def __str__(self) -> str:
        blocks = [
            f"{self.net}\n{self.summary}",
            *map(str, remedies_once(self.findings)),
            "Mean squares by layer, in forward order\n" + table(*self.layer_table()),
            *([self.scatter_note] if self.scatter_note else []),
            "What is trained\n" + table(*self.part_table()),
            self.facts,
        ]
        return "\n\n".join(blocks)


def _from_dict(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Rebuild a reading or a finding, with its scales and histogram."""
    fields = {}
    for f in dataclasses.fields(kind):
        value = values[f.name]
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, dict):
            value = _from_dict(Histogram if "counts" in value else Scale, value)
        elif value is None and f.type is float:
            value = math.nan
        fields[f.name] = value
    return kind(**fields)
