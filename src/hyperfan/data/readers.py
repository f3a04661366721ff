"""MNIST and CIFAR-10, read from the files of their publishers, each of which is known by its SHA-256."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path

import torch
from torch import Tensor

from hyperfan.data.labelled import Labelled, Splits
from hyperfan.data.lookup import CIFAR10_FILES, MNIST_FILES, fetch_advice, find, read_errors
from hyperfan.errors import DataError

CIFAR10_RECORD_BYTES = 1 + 3 * 32 * 32
"""A byte for the label and then 32×32 bytes each of red, green and blue."""


def mnist(data_dir: str | os.PathLike[str] | None = None) -> Splits:
    """Read MNIST: 60,000 and 10,000 handwritten digits, as pictures of (28, 28).

    Its files, compressed or not, are in the IDX format of http://yann.lecun.com/exdb/mnist: four bytes, then four for
    each dimension, then the values.
    """
    with fetch_advice("mnist", data_dir):
        folder = find("mnist", data_dir)
        files = (_read(_compressed_or_not(folder / name), sha256) for name, sha256 in MNIST_FILES.items())
        train_images, train_labels, test_images, test_labels = files
        return Splits(_from_idx(train_images, train_labels), _from_idx(test_images, test_labels))


def cifar10(data_dir: str | os.PathLike[str] | None = None) -> Splits:
    """Read CIFAR-10: 50,000 and 10,000 pictures of (3, 32, 32) in 10 classes.

    Its files are of the binary version at https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    with fetch_advice("cifar10", data_dir):
        folder = find("cifar10", data_dir)
        *train, test = (_read(folder / name, sha256) for name, sha256 in CIFAR10_FILES.items())
        return Splits(_from_records(torch.cat(train)), _from_records(test))


def _from_idx(images: Tensor, labels: Tensor) -> Labelled:
    return Labelled(images[16:].reshape(-1, 28, 28), labels[8:].long())


def _from_records(values: Tensor) -> Labelled:
    records = values.reshape(-1, CIFAR10_RECORD_BYTES)
    return Labelled(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long())


def _compressed_or_not(path: Path) -> Path:
    compressed = path.with_name(f"{path.name}.gz")
    return path if path.exists() and not compressed.exists() else compressed


def _read(path: Path, sha256: str) -> Tensor:
    """The bytes of a file, uncompressed, once they are seen to be the official ones, whoever compressed them."""
    advice = "was its download cut off, a web page saved in its place, or the file changed?"
    with read_errors(path):
        try:
            with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
                content = bytearray(stream.read())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path} cannot be uncompressed ({error}): {advice}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{path} is not the official file, its SHA-256 differs: {advice}")
    return torch.frombuffer(content, dtype=torch.uint8)
