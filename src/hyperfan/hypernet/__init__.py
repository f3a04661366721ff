"""What holds the parts together? ``HyperNet``: mainnet, codes and generator as one module."""

from hyperfan.hypernet.hypernet import HyperNet
from hyperfan.hypernet.per_sample import PerSample
from hyperfan.hypernet.prediction import Prediction, predict

__all__ = ["HyperNet", "PerSample", "Prediction", "predict"]
