"""Look-up of data sets: in the folder given, and nowhere else; or in $HYPERFAN_DATA, or in the user's cache."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hyperfan.errors import DataError

FOLDER_VARIABLE = "HYPERFAN_DATA"


@dataclass(frozen=True)
class Layout:
    """The place of a data set: DIR/``folder``, or DIR itself; any of its ``entries`` shows that it is there."""

    folder: str
    entries: tuple[str, ...]


MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""SHA-256 of the official files, uncompressed, so that it does not matter who compressed them."""
CIFAR10_FILES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""SHA-256 of the official files."""

LASA_SHAPES = (
    "Angle BendedLine CShape DoubleBendedLine GShape JShape JShape_2 Khamesh LShape Leaf_1 Leaf_2 Line NShape PShape "
    "RShape Saeghe Sharpc Sine Snake Spoon Sshape Trapezoid WShape Worm Zshape heee"
).split()
"""The shapes of LASA, as its files name them; four more files hold several each."""

LAYOUTS = {
    "mnist": Layout("mnist", tuple(name + ending for name in MNIST_FILES for ending in (".gz", ""))),
    "cifar10": Layout("cifar-10-batches-bin", tuple(CIFAR10_FILES)),
    "imagenette": Layout("imagenette2-160", ("train", "val")),
    "tiny-imagenet": Layout("tiny-imagenet-200", ("train", "val")),
    "lasa": Layout("LASAHandwritingDataset/DataSet", tuple(f"{shape}.mat" for shape in LASA_SHAPES)),
}


def folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders where data sets are looked for; the first is the one for fetching."""
    chosen = data_dir, os.environ.get(FOLDER_VARIABLE) or None
    named = [Path(folder).expanduser() for folder in chosen if folder is not None]
    return [*named, cache_folder(sys.platform, os.environ)]


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder into which data sets are fetched."""
    return folders(data_dir)[0]


def cache_folder(platform: str, environ: Mapping[str, str]) -> Path:
    """The user's cache folder for hyperfan, by the conventions of the platform."""
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "hyperfan"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hyperfan"
    xdg = Path(environ.get("XDG_CACHE_HOME", ""))  # by its specification, only an absolute path counts
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "hyperfan"


def find(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder that directly holds the files of a data set."""
    layout = LAYOUTS[name]
    bases = [data_folder(data_dir)] if data_dir is not None else folders()
    places = [place for base in bases for place in (base / layout.folder, base)]
    for place in places:
        with read_errors(place):
            if any((place / entry).exists() for entry in layout.entries):
                return place
    raise DataError(f"no {name} in {', '.join(map(str, places))}: there is no {layout.entries[0]}")


@contextmanager
def fetch_advice(name: str, data_dir: str | os.PathLike[str] | None) -> Iterator[None]:
    """End every error about the data with the command that downloads them again."""
    try:
        yield
    except DataError as error:
        where = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir is not None else ""
        end = "" if str(error).endswith("?") else "."
        raise DataError(f"{error}{end} To get the data: hyperfan data fetch {name}{where}") from error


@contextmanager
def read_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the system's errors about a file or folder that cannot be read into a :class:`DataError`."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
