"""MNIST's files: what is read from good ones, and what is said of bad ones."""

import gzip
import struct
import tracemalloc

import pytest
import torch

from hyperfan.data import mnist
from hyperfan.data.idx import read_idx, read_pair
from hyperfan.errors import DataError

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(shape, values, magic=None):
    return (magic or bytes([0, 0, 8, len(shape)])) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def packed(content):
    """The same bytes whenever it is called, for they name a test."""
    return gzip.compress(content, mtime=0)


def put(folder, name, content):
    path = folder / name
    path.write_bytes(packed(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("ending", [".gz", ""])
def test_an_idx_file_is_its_values_row_by_row(tmp_path, ending):
    path = put(tmp_path, "x" + ending, idx((2, 2, 3), range(12)))
    read = read_idx(path, 3)
    assert read.dtype == torch.uint8
    assert read.tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_a_dimension_takes_four_bytes_the_most_significant_first(tmp_path):
    assert len(read_idx(put(tmp_path, "x.gz", idx((259,), [1] * 259)), 1)) == 259


def test_a_pair(tmp_path):
    read = read_pair(put(tmp_path, "i.gz", idx((3, 1, 1), [7, 8, 9])), put(tmp_path, "l.gz", idx((3,), [0, 9, 4])))
    assert read.images.flatten().tolist() == [7, 8, 9]
    assert read.labels.tolist() == [0, 9, 4]
    assert read.labels.dtype == torch.int64
    assert len(read) == 3


GOOD = idx((2, 1, 3), range(6))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed(GOOD)[:-9], "is cut off or damaged"),
        (packed(bytes(1000))[:5], "is cut off or damaged"),
        (packed(GOOD)[:-8] + b"12345678", "is not gzip, or damaged (CRC check failed"),
        (packed(GOOD)[:10] + b"\xff" * 20, "is cut off or damaged"),
        (b"<html>404</html>", "is not gzip, or damaged (Not a gzipped file (b'<h'))"),
        (packed(GOOD) + b"and more", "is not gzip, or damaged"),
        (b"", "ends within its header"),
        (packed(GOOD[:9]), "ends within its header"),
        (packed(idx((2, 1, 3), range(6), b"\0\0\x08\1")), "starts with '00000801'"),
        (packed(idx((2, 1, 3), range(6), b"\0\0\x0d\3")), "starts with '00000d03'"),
        (packed(idx((2, 1, 3), range(5))), "promises 2x1x3 = 6 values and holds 5"),
        (packed(idx((2, 1, 3), range(7))), "promises 2x1x3 = 6 values and holds more"),
        (packed(idx((0, 28, 28), [])), "promises 0x28x28 values"),
        (packed(idx((2**32 - 1, 28, 28), [])), "promises 4294967295x28x28 values"),
    ],
)
def test_a_bad_file_is_named_and_what_is_wrong_with_it(tmp_path, content, message):
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_idx(path, 3)
    assert str(caught.value).startswith(f"{path} ")
    assert message in str(caught.value)


def test_no_more_is_unpacked_than_was_promised(tmp_path):
    path = put(tmp_path, "x.gz", idx((2, 1, 3), bytes(50_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="holds more"):
            read_idx(path, 3)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_label_over_nine(tmp_path):
    labels = put(tmp_path, "l", idx((2,), [1, 10]))
    with pytest.raises(DataError, match=f"{labels} holds the label 10"):
        read_pair(put(tmp_path, "i", idx((2, 1, 1), [1, 2])), labels)


def test_more_pictures_than_labels(tmp_path):
    images, labels = put(tmp_path, "i", idx((3, 1, 1), [1, 2, 3])), put(tmp_path, "l", idx((2,), [1, 2]))
    with pytest.raises(DataError, match=f"{images} holds 3 pictures, {labels} 2 labels"):
        read_pair(images, labels)


def test_what_cannot_be_opened(tmp_path, denied):
    (tmp_path / "folder.gz").mkdir()
    with pytest.raises(DataError, match=r"folder\.gz is a folder, and should be a file"):
        read_idx(tmp_path / "folder.gz", 3)
    with pytest.raises(DataError, match=r"none\.gz is missing"):
        read_idx(tmp_path / "none.gz", 3)
    path = put(tmp_path, "secret.gz", GOOD)
    with denied(path), pytest.raises(DataError, match=r"secret\.gz may not be read: permission denied"):
        read_idx(path, 3)


def test_another_set_in_the_form_of_mnist(tmp_path):
    put(tmp_path, IMAGES, idx((60_000, 28, 28), bytes(60_000 * 28 * 28)))
    put(tmp_path, LABELS, idx((60_000,), bytes(60_000)))
    with pytest.raises(
        DataError, match=rf"{IMAGES} has the form of MNIST but not its content .* fetch mnist --data-dir"
    ):
        mnist(tmp_path)


def test_a_small_set_is_not_mnist(tmp_path):
    put(tmp_path, IMAGES + ".gz", idx((2, 28, 28), bytes(2 * 28 * 28)))
    put(tmp_path, LABELS + ".gz", idx((2,), [1, 2]))
    with pytest.raises(DataError, match="holds 2x28x28 values; MNIST has 60000x28x28"):
        mnist(tmp_path)


def test_a_missing_file_is_named_and_how_to_get_it(tmp_path):
    put(tmp_path, IMAGES + ".gz", idx((1, 28, 28), bytes(28 * 28)))
    with pytest.raises(DataError) as caught:
        mnist(tmp_path)
    missing = tmp_path / (LABELS + ".gz")
    assert str(caught.value) == (
        f"{missing} is missing. To get the data: hyperfan data fetch mnist --data-dir {tmp_path}"
    )
