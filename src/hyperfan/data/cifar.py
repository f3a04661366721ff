"""CIFAR-10, in the binary version of its publisher, https://www.cs.toronto.edu/~kriz/cifar.html.

A record is a byte for the label and then 32×32 bytes each of red, green and blue.
"""

import hashlib
import os
from pathlib import Path

import torch

from hyperfan.data.labelled import Labelled, Splits
from hyperfan.data.lookup import fetch_advice, find, read_errors
from hyperfan.errors import DataError

RECORD_BYTES = 1 + 3 * 32 * 32

CHECKSUMS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""SHA-256 of the official files."""


def cifar10(data_dir: str | os.PathLike[str] | None = None) -> Splits:
    """Read CIFAR-10: 50,000 and 10,000 pictures of (3, 32, 32) in 10 classes."""
    with fetch_advice("cifar10", data_dir):
        folder = find("cifar10", data_dir)
        *train, test = (read_batch(folder / name, 10_000, sha256) for name, sha256 in CHECKSUMS.items())
        images, labels = torch.cat([batch.images for batch in train]), torch.cat([batch.labels for batch in train])
        return Splits(Labelled(images, labels), test)


def read_batch(path: Path, count: int, sha256: str | None = None) -> Labelled:
    """Read a file of ``count`` records, and verify its checksum if one is given."""
    with read_errors(path), open(path, "rb") as stream:
        content = bytearray(stream.read(count * RECORD_BYTES + 1))
        size = os.fstat(stream.fileno()).st_size
    if len(content) != count * RECORD_BYTES:
        raise DataError(
            f"{path} holds {size} bytes, and should hold {count * RECORD_BYTES}: did its download break off?"
        )
    records = torch.frombuffer(content, dtype=torch.uint8).reshape(count, RECORD_BYTES)
    labels = records[:, 0].long()
    if labels.max() > 9:
        raise DataError(f"{path} holds the label {labels.max()}, and should hold 0 to 9: is it CIFAR-100, or damaged?")
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{path} has the form of CIFAR-10 but not its content (SHA-256): was it changed?")
    return Labelled(records[:, 1:].reshape(count, 3, 32, 32), labels)
