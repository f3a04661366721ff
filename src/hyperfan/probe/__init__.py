"""What happens inside? Statistics of the mainnet's activations and gradients."""

from hyperfan.probe.inside import QUANTITIES, Probe, Quantity, first_overflow
from hyperfan.probe.moments import Histogram, Moments
from hyperfan.probe.scales import LayerScales, layer_scales

__all__ = [
    "QUANTITIES",
    "Histogram",
    "LayerScales",
    "Moments",
    "Probe",
    "Quantity",
    "first_overflow",
    "layer_scales",
]
