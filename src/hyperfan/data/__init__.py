"""On which data? Readers for the data sets. Nothing is downloaded unless ``fetch`` is called."""

from hyperfan.data.curves import demonstrations
from hyperfan.data.folder import ImageFolder, imagenette, tiny_imagenet
from hyperfan.data.labelled import CIFAR10, IMAGENET, MNIST, Labelled, Splits, standardise
from hyperfan.data.lasa import lasa
from hyperfan.data.readers import cifar10, mnist
from hyperfan.data.regression import regression_tasks

__all__ = [
    "CIFAR10",
    "IMAGENET",
    "MNIST",
    "ImageFolder",
    "Labelled",
    "Splits",
    "cifar10",
    "demonstrations",
    "imagenette",
    "lasa",
    "mnist",
    "regression_tasks",
    "standardise",
    "tiny_imagenet",
]
