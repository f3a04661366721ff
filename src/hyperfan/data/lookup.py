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


_IDX = [f"{part}-idx{dims}-ubyte" for part, dims in
        (("train-images", 3), ("train-labels", 1), ("t10k-images", 3), ("t10k-labels", 1))]  # fmt: skip

LAYOUTS = {
    "mnist": Layout("mnist", tuple(name + ending for name in _IDX for ending in (".gz", ""))),
    "cifar10": Layout("cifar-10-batches-bin", (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")),
    "imagenette": Layout("imagenette2-160", ("train", "val")),
}


def folders(data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The folders where data sets are looked for, by the setting that names each; the first is the one for fetching."""
    chosen = {"--data-dir": data_dir, f"${FOLDER_VARIABLE}": os.environ.get(FOLDER_VARIABLE) or None}
    named = {by: Path(folder).expanduser() for by, folder in chosen.items() if folder is not None}
    return named | {"the user's cache": cache_folder(sys.platform, os.environ)}


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder into which data sets are fetched."""
    return next(iter(folders(data_dir).values()))


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
    bases = [data_folder(data_dir)] if data_dir is not None else list(folders().values())
    places = [place for base in bases for place in (base / layout.folder, base)]
    for place in places:
        with read_errors(place):
            if any((place / entry).exists() for entry in layout.entries):
                return place
    raise DataError(f"no {name} in {', '.join(map(str, places))}: there is no {layout.entries[0]}")


def contents(name: str, place: Path) -> list[Path]:
    """The files of a data set in the folder that ``find`` found."""
    with read_errors(place):
        entries = [place / entry for entry in LAYOUTS[name].entries]
        inside = (p for entry in entries for p in (entry.rglob("*") if entry.is_dir() else [entry]))
        return [path for path in inside if path.is_file()]


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
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, and should be a file") from None
    except NotADirectoryError:
        raise DataError(f"{path} is a file, and should be a folder") from None
    except PermissionError:
        raise DataError(f"{path} may not be read: permission denied") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
