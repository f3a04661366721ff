"""CIFAR-10's files: what is read from good ones, and what is said of bad ones."""

import hashlib
import re

import pytest
import torch

from hyperfan.data import cifar10
from hyperfan.data.cifar import RECORD_BYTES, read_batch
from hyperfan.errors import DataError


def record(label, red, green, blue):
    return bytes([label, *[red] * 1024, *[green] * 1024, *[blue] * 1024])


def test_a_record_is_a_label_and_three_planes_row_by_row(tmp_path):
    path = tmp_path / "b.bin"
    rows = bytes(i // 32 for i in range(1024))
    path.write_bytes(record(3, 10, 20, 30) + record(9, 1, 2, 3)[:2049] + rows)
    read = read_batch(path, 2)
    assert read.images.shape == (2, 3, 32, 32)
    assert read.images.dtype == torch.uint8
    assert read.labels.tolist() == [3, 9]
    assert read.labels.dtype == torch.int64
    assert read.images[0, :, 5, 7].tolist() == [10, 20, 30]
    assert read.images[1, 2, 31, 0] == 31


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            record(1, 0, 0, 0) + record(2, 0, 0, 0)[:-1],
            f"holds {2 * RECORD_BYTES - 1} bytes, and should hold {2 * RECORD_BYTES}",
        ),
        (record(1, 0, 0, 0) * 3, f"holds {3 * RECORD_BYTES} bytes, and should hold {2 * RECORD_BYTES}"),
        (b"", f"holds 0 bytes, and should hold {2 * RECORD_BYTES}"),
        (record(1, 0, 0, 0) + record(10, 0, 0, 0), "holds the label 10"),
        (record(1, 0, 0, 0) + record(2, 0, 0, 0), "not its content"),
    ],
)
def test_a_bad_file_is_named_and_what_is_wrong_with_it(tmp_path, content, message):
    path = tmp_path / "b.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(f"{path} ")) as caught:
        read_batch(path, 2, hashlib.sha256(b"another").hexdigest())
    assert message in str(caught.value)


def test_the_right_checksum_passes(tmp_path):
    path = tmp_path / "b.bin"
    path.write_bytes(record(1, 0, 0, 0))
    assert len(read_batch(path, 1, hashlib.sha256(record(1, 0, 0, 0)).hexdigest())) == 1


def test_what_cannot_be_opened(tmp_path, denied):
    (tmp_path / "b.bin").mkdir()
    with pytest.raises(DataError, match=r"b\.bin is a folder, and should be a file"):
        read_batch(tmp_path / "b.bin", 1)
    path = tmp_path / "secret.bin"
    path.write_bytes(record(1, 0, 0, 0))
    with denied(path), pytest.raises(DataError, match="permission denied"):
        read_batch(path, 1)


def test_a_missing_batch_is_named_and_how_to_get_it(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(b"")
    with pytest.raises(DataError, match=r"data_batch_1\.bin is missing\. To get the data: hyperfan data fetch cifar10"):
        cifar10(tmp_path)
