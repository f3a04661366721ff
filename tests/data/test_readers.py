"""The files of MNIST and CIFAR-10: what is read from good ones, and what is said of bad ones."""

import gzip
import hashlib
import struct

import pytest
import torch

from hyperfan.data import cifar10, mnist, readers
from hyperfan.data.lookup import CIFAR10_FILES, MNIST_FILES
from hyperfan.errors import DataError


def idx(shape, values):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def record(label, red, green, blue):
    return bytes([label, *[red] * 1024, *[green] * 1024, *[blue] * 1024])


MNIST_CONTENT = [
    idx((2, 28, 28), [*range(28)] * 56), idx((2,), [0, 9]), idx((1, 28, 28), [7] * 784), idx((1,), [4])
]  # fmt: skip
CIFAR10_CONTENT = [record(i, 10 * i, 20, 30) for i in range(6)]


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Writes files in place of official ones, and lets them be known by their checksums."""

    def write(table, contents, ending=""):
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in zip(table, contents, strict=True)}
        monkeypatch.setattr(readers, "MNIST_FILES" if table is MNIST_FILES else "CIFAR10_FILES", sums)
        for name, content in zip(table, contents, strict=True):
            (tmp_path / (name + ending)).write_bytes(gzip.compress(content) if ending else content)
        return tmp_path

    return write


@pytest.mark.parametrize("ending", [".gz", ""])
def test_an_idx_file_is_a_header_and_its_values_row_by_row(put, ending):
    sets = mnist(put(MNIST_FILES, MNIST_CONTENT, ending))
    assert sets.train.images.shape == (2, 28, 28)
    assert sets.train.images.dtype == torch.uint8
    assert sets.train.images[1, 3].tolist() == list(range(28))
    assert sets.train.labels.tolist() == [0, 9]
    assert sets.train.labels.dtype == torch.int64
    assert (sets.test.images == 7).all()
    assert sets.test.labels.tolist() == [4]


def test_a_record_is_a_label_and_three_planes_row_by_row(put):
    rows = bytes(i // 32 for i in range(1024))
    sets = cifar10(put(CIFAR10_FILES, [*CIFAR10_CONTENT[:5], record(5, 1, 2, 3)[:2049] + rows]))
    assert sets.train.images.shape == (5, 3, 32, 32)
    assert sets.train.images.dtype == torch.uint8
    assert sets.train.labels.tolist() == [0, 1, 2, 3, 4]
    assert sets.train.labels.dtype == torch.int64
    assert sets.train.images[2, :, 5, 7].tolist() == [20, 20, 30]
    assert sets.test.images[0, 2, 31, 0] == 31


PACKED = gzip.compress(MNIST_CONTENT[0], mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(PACKED[:-9], "cannot be uncompressed", id="cut off"),
        pytest.param(PACKED[:-8] + b"12345678", "cannot be uncompressed (CRC check failed", id="wrong sum"),
        pytest.param(PACKED[:10] + b"\xff" * 20, "cannot be uncompressed", id="no stream"),
        pytest.param(b"<html>404</html>", "cannot be uncompressed (Not a gzipped file (b'<h'))", id="a web page"),
        pytest.param(b"", "is not the official file", id="empty"),
        pytest.param(
            gzip.compress(MNIST_CONTENT[0][:-1]),
            "is not the official file, its SHA-256 differs: was its download cut off",
            id="another file",
        ),
    ],
)
def test_a_bad_file_is_named_and_what_is_wrong_with_it(put, content, message):
    path = put(MNIST_FILES, MNIST_CONTENT, ".gz") / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        mnist(path.parent)
    assert str(caught.value).startswith(f"{path} ")
    assert message in str(caught.value)


def test_what_cannot_be_opened(put, denied):
    folder = put(CIFAR10_FILES, CIFAR10_CONTENT)
    with denied(folder / "data_batch_2.bin"), pytest.raises(DataError, match="cannot be read: Permission denied"):
        cifar10(folder)
    (folder / "data_batch_1.bin").unlink()
    with pytest.raises(
        DataError, match=r"1.bin cannot be read: No such file or directory\. To get the data: .* cifar10"
    ):
        cifar10(folder)
    (folder / "data_batch_1.bin").mkdir()
    with pytest.raises(DataError, match=r"1.bin cannot be read: Is a directory"):
        cifar10(folder)


def test_a_missing_file_is_named_and_how_to_get_it(put):
    folder = put(MNIST_FILES, MNIST_CONTENT, ".gz")
    missing = folder / "train-labels-idx1-ubyte.gz"
    missing.unlink()
    with pytest.raises(DataError) as caught:
        mnist(folder)
    assert str(caught.value) == (
        f"{missing} cannot be read: No such file or directory. "
        f"To get the data: hyperfan data fetch mnist --data-dir {folder}"
    )
