"""From evidence to findings: causes first, then what follows from them.

Thresholds are factors that a healthy net of any width stays well within, and every comparison with a prediction also
asks that the sampling intervals exclude it.
"""

from collections.abc import Callable, Iterator

from hyperfan.probe.checks.dead import dead_heads, dead_parts
from hyperfan.probe.checks.growth import growth, growth_by_nature
from hyperfan.probe.checks.outside import inputs_off_scale, loss, noise, norms, not_finite, rate, unpredicted
from hyperfan.probe.checks.scale import wrong_scale
from hyperfan.probe.checks.units import alike, units
from hyperfan.probe.diagnosis import Finding
from hyperfan.probe.evidence import Evidence

CHECKS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    not_finite,
    wrong_scale,
    dead_heads,
    dead_parts,
    inputs_off_scale,
    norms,
    noise,
    units,
    alike,
    growth,
    growth_by_nature,
    loss,
    rate,
    unpredicted,
)

__all__ = ["CHECKS"]
