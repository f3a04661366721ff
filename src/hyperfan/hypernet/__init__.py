"""What holds the parts together? ``HyperNet``: mainnet, codes and generator as one module."""

from hyperfan.hypernet.hypernet import HyperNet
from hyperfan.hypernet.per_sample import PerSample
from hyperfan.hypernet.prediction import Prediction, predict
from hyperfan.hypernet.trainer import SaveConfig

__all__ = ["HyperNet", "PerSample", "Prediction", "SaveConfig", "predict"]
