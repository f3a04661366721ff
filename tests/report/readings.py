"""Diagnoses made by hand, so that every number in them is known."""

import math
from dataclasses import replace

import torch

from hyperfan.probe.diagnosis import Diagnosis, LayerReading, PartReading, TensorReading
from hyperfan.probe.findings import Finding
from hyperfan.probe.moments import Histogram, Scale

NAMES = ("0", "2", "4", "6", "8", "10")
THEORY = (0.61, 0.36, 0.19, 0.12, 0.092, 0.081)
GRADIENTS = (2e-4, 2.1e-4, 2.2e-4, 2.2e-4, 2.3e-4, 0.09)


def scale(value: float, wide: float = 1.1) -> Scale:
    return Scale(value, value / wide, value * wide)


def histogram(rms: float) -> Histogram:
    """Of a Gaussian."""
    values = rms * torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    return Histogram.of(values, 0.0, rms / 20, 5 * rms, 81)


def layer(i: int, factor: float = 1.0, **changes) -> LayerReading:
    """A layer whose measured scale is so many times the predicted."""
    made = LayerReading(
        layer=NAMES[i],
        kind="Linear",
        weights=(f"{NAMES[i]}.weight",),
        generated=True,
        target=1.0,
        predicted=scale(THEORY[i], 1.25),
        measured=scale(THEORY[i] * factor),
        predicted_gradient=scale(GRADIENTS[i], 1.4),
        measured_gradient=scale(GRADIENTS[i] * (1 + (factor > 2) * 9.0 ** (6 - i))),
        histogram=histogram(math.sqrt(THEORY[i] * factor)),
    )
    return replace(made, **changes)


def layers(*factors: float) -> tuple[LayerReading, ...]:
    return tuple(layer(i, f) for i, f in enumerate(factors or (1.02, 0.97, 1.05, 0.98, 1.03, 0.95)))


def tensor(i: int, factor: float = 1.0, **changes) -> TensorReading:
    variance = 1 / 784 if i == 0 else 1 / 500
    made = TensorReading(
        f"{NAMES[i]}.weight", "weight", (500, 784 if i == 0 else 500), "head 500x500", variance, "eq. 8",
        scale(variance * factor, 1.01), 1e-3,
    )  # fmt: skip
    return replace(made, **changes)


EXPLODES = Finding(
    "exploding activations",
    "error",
    ("0", "2", "4"),
    "mean square 478 where hyperfan-in predicts 0.61",
    "the head was initialised as if its output were activations",
    "hf.HyperNet(mainnet, 50, init='hyperfan-in')",
)
HOT = Finding(
    "learning rate too high", "warning", ("head 500x500",), "51 times the rate of the plain net", "‖h‖² + 1 = 51",
    "hf.SGD(net, lr=5e-4)",
)  # fmt: skip
NOTE = Finding("small batch", "note", (), "10 inputs", "intervals are wide", "hf.diagnose(net, x[:300], y[:300])")


def diagnosis(factors=(), findings=(), **changes) -> Diagnosis:
    made = Diagnosis(
        net="HyperNet of Sequential, 2.7 M generated weights",
        theory="hyperfan-in",
        inputs=300,
        twins=20,
        layers=layers(*factors),
        tensors=tuple(tensor(i, f) for i, f in enumerate(factors or (1.0,) * 6)),
        parts=(PartReading("head 500x500", 12_750_000, 0.31, 51.2), PartReading("embedding", 300, 0.02, None)),
        findings=tuple(findings),
        loss=2.41,
        expected_loss=math.log(10),
        stable_rate=0.0123,
    )
    return replace(made, **changes)


BAD = (784.0, 1500.0, 2100.0, 3400.0, 4700.0, 6000.0)
"""Factors of a classical init on a hypernet."""
