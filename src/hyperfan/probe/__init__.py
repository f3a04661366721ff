"""What happens inside? Statistics of activations and gradients; ``diagnose`` finds faults, ``calibrate_`` corrects."""

from hyperfan.probe.calibrate import Calibration, Correction, calibrate_
from hyperfan.probe.coordinates import CoordinateCheck
from hyperfan.probe.diagnosis import Diagnosis, LayerReading, PartReading, TensorReading
from hyperfan.probe.examination import diagnose
from hyperfan.probe.findings import Finding, FindingName
from hyperfan.probe.hypernet_subject import started_with
from hyperfan.probe.inside import QUANTITIES, LayerScales, Probe, Quantity, first_overflow, layer_scales
from hyperfan.probe.moments import Histogram, Moments, Scale
from hyperfan.probe.trends import Size, Trend

__all__ = [
    "QUANTITIES",
    "Calibration",
    "CoordinateCheck",
    "Correction",
    "Diagnosis",
    "Finding",
    "FindingName",
    "Histogram",
    "LayerReading",
    "LayerScales",
    "Moments",
    "PartReading",
    "Probe",
    "Quantity",
    "Scale",
    "Size",
    "TensorReading",
    "Trend",
    "calibrate_",
    "diagnose",
    "first_overflow",
    "layer_scales",
    "started_with",
]
