"""MNIST, in the IDX files of its publishers, http://yann.lecun.com/exdb/mnist.

An IDX file is 0, 0, 8 (for unsigned bytes), the number of dimensions, each dimension in four bytes, most significant
first, and then the values.
"""

import gzip
import hashlib
import io
import math
import os
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from hyperfan.data.labelled import Labelled, Splits
from hyperfan.data.lookup import fetch_advice, find, read_errors
from hyperfan.errors import DataError

MAX_VALUES = 10**8
"""No file of MNIST holds as many values; a header that promises more is not believed."""

CHECKSUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""SHA-256 of the official files, uncompressed, so that it does not matter who compressed them."""


def mnist(data_dir: str | os.PathLike[str] | None = None) -> Splits:
    """Read MNIST: 60,000 and 10,000 handwritten digits, as pictures of (28, 28)."""
    with fetch_advice("mnist", data_dir):
        folder = find("mnist", data_dir)
        return Splits(_read_official(folder, "train", 60_000), _read_official(folder, "t10k", 10_000))


def _read_official(folder: Path, part: str, count: int) -> Labelled:
    images, labels = (_file(folder, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    read = read_pair(images, labels)
    if read.images.shape != (count, 28, 28):
        raise DataError(f"{images} holds {_by(read.images.shape)} values; MNIST has {count}x28x28: is it another set?")
    for path, values in ((images, read.images), (labels, read.labels)):
        if _sha256(values) != CHECKSUMS[path.name.removesuffix(".gz")]:
            raise DataError(
                f"{path} has the form of MNIST but not its content (SHA-256): is it another set, or changed?"
            )
    return read


def read_pair(images: Path, labels: Path) -> Labelled:
    """Read the pictures of one IDX file with the labels, 0 to 9, of another."""
    pictures, classes = read_idx(images, 3), read_idx(labels, 1)
    if classes.max() > 9:
        raise DataError(f"{labels} holds the label {classes.max()}, and should hold 0 to 9: is it a file of labels?")
    if len(pictures) != len(classes):
        raise DataError(
            f"{images} holds {len(pictures)} pictures, {labels} {len(classes)} labels: are they of one set?"
        )
    return Labelled(pictures, classes.long())


def read_idx(path: Path, dims: int) -> Tensor:
    """Read the unsigned bytes of an IDX file, compressed if it ends in .gz, as a tensor of ``dims`` dimensions."""
    with read_errors(path):
        try:
            with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
                return _read_values(path, stream, dims)
        except (EOFError, zlib.error) as error:
            raise DataError(f"{path} is cut off or damaged ({error}): did its download break off?") from error
        except gzip.BadGzipFile as error:
            raise DataError(f"{path} is not gzip, or damaged ({error}): was a web page saved in its place?") from error


def _read_values(path: Path, stream: io.BufferedIOBase, dims: int) -> Tensor:
    start = stream.read(4 + 4 * dims)
    if start[:4] != _magic(dims)[: len(start)]:
        raise DataError(
            f"{path} starts with '{start[:4].hex()}', and an IDX file of bytes in {dims} dimensions with "
            f"'{_magic(dims).hex()}': is it another file under this name?"
        )
    if len(start) < 4 + 4 * dims:
        raise DataError(f"{path} ends within its header: did its download break off?")
    shape = struct.unpack(f">{dims}I", start[4:])
    size = math.prod(shape)
    if not 0 < size <= MAX_VALUES:
        raise DataError(f"{path} promises {_by(shape)} values, which MNIST never has: is it damaged?")
    values = bytearray(stream.read(size + 1))  # one more than there should be, so that more is noticed and not read
    if len(values) != size:
        count = "more" if len(values) > size else f"{len(values)}"
        raise DataError(f"{path} promises {_by(shape)} = {size} values and holds {count}: is it cut off or damaged?")
    return torch.frombuffer(values, dtype=torch.uint8).reshape(shape)


def _sha256(values: Tensor) -> str:
    """SHA-256 of the uncompressed IDX file of these values: its header follows from their shape."""
    content = hashlib.sha256(_magic(values.ndim) + struct.pack(f">{values.ndim}I", *values.shape))
    content.update(values.to(torch.uint8).numpy().data)
    return content.hexdigest()


def _magic(dims: int) -> bytes:
    return bytes([0, 0, 8, dims])


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _file(folder: Path, name: str) -> Path:
    """The compressed file, or else the uncompressed one."""
    compressed, plain = folder / f"{name}.gz", folder / name
    return plain if plain.exists() and not compressed.exists() else compressed
