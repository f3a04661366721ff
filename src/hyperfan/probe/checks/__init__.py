"""Checks: from evidence to findings, causes first, then what follows from them.

Thresholds are factors that a healthy net of any width stays well within, and every comparison with a prediction also
asks that the sampling intervals exclude it.
"""

from collections.abc import Callable, Iterator

from hyperfan.probe.checks.growth import deviation_from_prediction, deviation_from_target
from hyperfan.probe.checks.mainnet import inputs_alike, inputs_off_scale, norms, useless_units
from hyperfan.probe.checks.tensors import dead_heads, noise, unpredicted, wrong_scale
from hyperfan.probe.checks.training import loss, not_finite, rate
from hyperfan.probe.diagnosis import Finding
from hyperfan.probe.evidence import Evidence

CHECKS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    not_finite,
    wrong_scale,
    dead_heads,
    inputs_off_scale,
    norms,
    noise,
    useless_units,
    inputs_alike,
    deviation_from_prediction,
    deviation_from_target,
    loss,
    rate,
    unpredicted,
)
