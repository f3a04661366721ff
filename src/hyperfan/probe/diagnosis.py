"""What a diagnosis says: readings of layers, tensors and parts, and findings. Frozen values that print."""

import dataclasses
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hyperfan.charts.html import notebook_diagnosis
from hyperfan.charts.scale import scale_chart
from hyperfan.probe.moments import Histogram
from hyperfan.text import number, table

Severity = Literal["error", "warning", "note"]
"""An error keeps the net from learning; a warning will cost; a note is for your information and leaves it healthy."""


@dataclass(frozen=True)
class Scale:
    """A mean square with its 95 % sampling interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class LayerReading:
    """One layer in forward order: mean squares as they should be, and as they are.

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


@dataclass(frozen=True)
class TensorReading:
    """One generated tensor.

    Args:
        tensor: its name in the mainnet.
        role, shape: what it is.
        head: the head that makes it, or "" where that is not known.
        target: variance it should have, and ``equation``, where that comes from.
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


@dataclass(frozen=True)
class PartReading:
    """What is trained, part by part: each head, the trunk, the embeddings, the mainnet's own parameters.

    Args:
        part: "head 500x500", "trunk", "embedding", "plain", or "hypernet" for all of a foreign one.
        parameters: how many.
        gradient: norm of ∂L/∂(its parameters).
        rate: effective learning rate: how far along their gradient a step of SGD on this part moves the generated
            tensors, over the same step on the tensors themselves. For a head that makes one tensor it is ‖h‖² + 1.
    """

    part: str
    parameters: int
    gradient: float
    rate: float | None


@dataclass(frozen=True)
class Finding:
    """Something wrong: what was seen, why it is likely, and the call that mends it.

    Args:
        name: what it is, in a few words that do not change from net to net: "exploding activations".
        severity: how bad.
        where: the layers, tensors or parts concerned.
        evidence: the numbers.
        cause: the likely reason.
        remedy: the call that mends it.
    """

    name: str
    severity: Severity
    where: tuple[str, ...]
    evidence: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        head = f"{self.severity}: {self.name} in {_few(self.where)}" if self.where else f"{self.severity}: {self.name}"
        rows = [("seen", self.evidence), ("likely", self.cause), ("mend", self.remedy)]
        return "\n".join([head, *(_wrapped(label, text) for label, text in rows)])


@dataclass(frozen=True)
class Diagnosis:
    """Everything seen in one look at a net. ``print`` it; ``diagnosis.healthy`` is what a script asks.

    Args:
        net: what was looked at.
        theory: the init method whose targets were taken.
        inputs: how many, and ``twins``, how many plain nets the prediction is made of.
        layers, tensors, parts, findings: what was seen.
        loss: the mean loss, and ``expected_loss``, that of a net which tells nothing; where there is a loss.
        stable_rate: up to which learning rate the first step of plain SGD lowers the loss, by the curvature along it;
            if ``lr`` was given, and if there is such a rate.
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

    @property
    def healthy(self) -> bool:
        """Whether there is nothing worse than a note."""
        return all(f.severity == "note" for f in self.findings)

    @property
    def summary(self) -> str:
        """One sentence."""
        bad = [f for f in self.findings if f.severity != "note"]
        if not bad:
            known = sum(r.target is not None for r in self.layers)
            some = f"{known} of {len(self.layers)}" if known < len(self.layers) else f"{known}"
            return f"Healthy: {some} layers have a target, and are like those of plain nets that {self.theory} starts."
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        return f"{bad[0].name.capitalize()}{' in ' + _few(bad[0].where) if bad[0].where else ''}{more}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, which knows no infinity: what is not finite is ``None``."""
        plain: dict[str, Any] = _plain({"healthy": self.healthy, "summary": self.summary, **dataclasses.asdict(self)})
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Diagnosis":
        """From what :meth:`to_dict` made; what was not finite is not a number now."""
        rows: dict[str, Any] = {
            name: tuple(_from_dict(kind, row) for row in values[name])
            for name, kind in (
                ("layers", LayerReading), ("tensors", TensorReading), ("parts", PartReading), ("findings", Finding),
            )
        }  # fmt: skip
        plain = {f.name: values[f.name] for f in dataclasses.fields(cls) if f.name not in rows}
        return cls(**plain, **rows)

    def _repr_html_(self) -> str:
        """Findings and the scale of every layer, for a notebook."""
        found = [dataclasses.asdict(f) for f in self.findings]
        return notebook_diagnosis(self.net, self.summary, found, scale_chart({"measured": self.layers}))

    def __str__(self) -> str:
        header = ["layer", "kind", "target", "predicted", "measured", "[95 %]", "gradient predicted", "measured"]
        parts = table(
            ["part", "parameters", "gradient", "effective rate"],
            [[p.part, f"{p.parameters:,}", number(p.gradient), number(p.rate)] for p in self.parts],
        )
        blocks = [
            f"{self.net}\n{self.summary}",
            *(str(f) for f in self.findings),
            "Mean squares by layer, in forward order\n" + table(header, [_row(r) for r in self.layers]),
            "What is trained\n" + parts,
        ]
        if self.loss is not None:
            expected = "" if self.expected_loss is None else f"; guessing has {self.expected_loss:.4g}"
            blocks.append(f"Loss {self.loss:.4g}{expected}")
        if self.stable_rate is not None:
            blocks.append(f"By its curvature the loss allows a learning rate of {self.stable_rate:.2g} in plain SGD")
        return "\n\n".join(blocks)


def _row(r: LayerReading) -> list[str]:
    interval = f"[{number(r.measured.low)}, {number(r.measured.high)}]"
    scales = (r.predicted_gradient, r.measured_gradient)
    predicted = number(r.predicted.value if r.predicted else None)
    gradients = [number(s.value if s else None) for s in scales]
    return [r.layer, r.kind, number(r.target), predicted, number(r.measured.value), interval, *gradients]


def _from_dict(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Of a reading or a finding, with its own scales and histogram."""
    made = {}
    for f in dataclasses.fields(kind):
        value = values[f.name]
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, dict):
            value = _from_dict(Histogram if "counts" in value else Scale, value)
        elif value is None and f.type is float:
            value = math.nan
        made[f.name] = value
    return kind(**made)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _few(names: tuple[str, ...]) -> str:
    """The first three, and how many more."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{n}'" for n in names[:3]) + more


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(text, 116, initial_indent=f"  {label + ':':<8}", subsequent_indent=" " * 10)
