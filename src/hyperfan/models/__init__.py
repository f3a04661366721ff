"""On which nets? The paper's mainnets."""

from hyperfan.models.allcnn import all_cnn
from hyperfan.models.mnist import mnist_net
from hyperfan.models.mobilenet import mobilenet
from hyperfan.models.regression import regression_net

__all__ = ["all_cnn", "mnist_net", "mobilenet", "regression_net"]
