"""What happens inside? Statistics of the mainnet's activations and gradients."""

from hyperfan.probe.calibrate import Calibration, Correction, calibrate_
from hyperfan.probe.diagnosis import Diagnosis, Finding, LayerReading, PartReading, Scale, TensorReading
from hyperfan.probe.examination import diagnose
from hyperfan.probe.inside import QUANTITIES, Probe, Quantity, first_overflow
from hyperfan.probe.moments import Histogram, Moments
from hyperfan.probe.scales import LayerScales, layer_scales
from hyperfan.probe.subject import started_with

__all__ = [
    "QUANTITIES",
    "Calibration",
    "Correction",
    "Diagnosis",
    "Finding",
    "Histogram",
    "LayerReading",
    "LayerScales",
    "Moments",
    "PartReading",
    "Probe",
    "Quantity",
    "Scale",
    "TensorReading",
    "calibrate_",
    "diagnose",
    "first_overflow",
    "layer_scales",
    "started_with",
]
