"""``ImageFolder``: pictures in folders, as ImageNet, Imagenette and Tiny ImageNet lay them out."""

import importlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.data.lookup import fetch_advice, find, read_errors
from hyperfan.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png")
PICTURES_FOLDER = "images"
"""Where Tiny ImageNet has the pictures of a class, and those of all classes to test on."""
CLASSES_FILE = "wnids.txt"
"""Where Tiny ImageNet lists its classes, one in a line."""

IMAGENETTE = ("n01440764", "n02102040", "n02979186", "n03000684", "n03028079",
              "n03394916", "n03417042", "n03425413", "n03445777", "n03888257")  # fmt: skip
"""The ten classes of Imagenette, as WordNet numbers."""


class ImageFolder:
    """The files of the pictures of a split (.jpg, .jpeg or .png, in any case), and the numbers of their classes.

    They are in ``<root>/<split>/<class>/``, as ImageNet has them; or in ``<root>/<split>/<class>/images/``, as Tiny
    ImageNet has those to train on; or all in ``<root>/<split>/images/``, as it has those to test on, where
    ``<root>/<split>/<split>_annotations.txt`` has a line for each: its name, a tab, its class, and more after a tab.

    Classes and files are in the order of their names; hidden ones are passed over, and links are followed.

    Args:
        root, split: where they are.
        skip_empty: leave out classes without pictures, which are then in ``empty``, instead of raising.
    """

    def __init__(self, root: str | os.PathLike[str], split: str, skip_empty: bool = False) -> None:
        folder = Path(root) / split
        annotations = folder / f"{split}_annotations.txt"
        if os.path.exists(annotations):
            found = _annotated_pictures(folder / PICTURES_FOLDER, annotations)
        else:
            names = _names(folder, folders=True)
            if names == [PICTURES_FOLDER]:
                raise DataError(
                    f"{folder / PICTURES_FOLDER} holds pictures of all classes, and there is no {annotations} that "
                    "tells their classes: was all of the set unpacked?"
                )
            found = {name: _pictures(folder / name, may_be_empty=skip_empty) for name in names}
        self.classes = tuple(name for name, paths in found.items() if paths)
        self.empty = tuple(name for name, paths in found.items() if not paths)
        self.files = [(path, label) for label, name in enumerate(self.classes) for path in found[name]]


def imagenette(data_dir: str | os.PathLike[str] | None = None) -> tuple[ImageFolder, ImageFolder]:
    """Read Imagenette: photographs of ten ImageNet classes, the shorter side 160 pixels, to train and validate on."""
    with fetch_advice("imagenette", data_dir):
        root = find("imagenette", data_dir)
        return _splits(root, IMAGENETTE, "the ten of Imagenette")


def tiny_imagenet(data_dir: str | os.PathLike[str] | None = None) -> tuple[ImageFolder, ImageFolder]:
    """Read Tiny ImageNet: photographs of 64×64 pixels in 200 classes, 500 of each to train and 50 to validate on."""
    with fetch_advice("tiny-imagenet", data_dir):
        root = find("tiny-imagenet", data_dir)
        return _splits(root, listed_classes(root), f"the {len(listed_classes(root))} of {root / CLASSES_FILE}")


def listed_classes(root: Path) -> tuple[str, ...]:
    """The classes that a data set lists in a file, in the order of its lines."""
    with read_errors(root / CLASSES_FILE):
        lines = (root / CLASSES_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _splits(root: Path, classes: Sequence[str], described: str) -> tuple[ImageFolder, ImageFolder]:
    """Pictures to train and to validate on, both of exactly these classes."""
    train, val = ImageFolder(root, "train"), ImageFolder(root, "val")
    for split, read in (("train", train), ("val", val)):
        if set(read.classes) != set(classes):
            raise DataError(
                f"{root / split} holds {len(read.classes)} classes, from {read.classes[0]} to {read.classes[-1]}, "
                f"that are not {described}: for another set, ImageFolder(root, split)"
            )
    return train, val


def _pictures(folder: Path, *, may_be_empty: bool) -> list[str]:
    """The paths of the pictures of a class, which are in its folder or in one below it."""
    below = folder / PICTURES_FOLDER
    has_below = os.path.isdir(below)
    names = _names(folder, folders=False, may_be_empty=may_be_empty or has_below)
    if not names and has_below:
        folder, names = below, _names(below, folders=False, may_be_empty=may_be_empty)
    return [os.path.join(folder, name) for name in names]


def _annotated_pictures(folder: Path, annotations: Path) -> dict[str, list[str]]:
    """The paths of the pictures in a folder by class, as the lines of a file tell them."""
    with read_errors(annotations):
        lines = annotations.read_text(encoding="utf-8", errors="replace").splitlines()
    classes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, its_class, *_ = [*line.split("\t"), ""]
        if not its_class:
            raise DataError(f"{annotations}, line {number}: '{line[:80]}' is not a picture, a tab and its class")
        classes[name] = its_class
    names = _names(folder, folders=False)
    if unknown := [name for name in names if name not in classes]:
        raise DataError(f"{folder / unknown[0]} has no class: {annotations} has no line for it")
    if missing := sorted(classes.keys() - set(names)):
        raise DataError(f"{folder} lacks {missing[0]}, of which {annotations} tells the class")
    found: dict[str, list[str]] = {name: [] for name in sorted(set(classes.values()))}
    for name in names:
        found[classes[name]].append(os.path.join(folder, name))
    return found


def _names(folder: Path, *, folders: bool, may_be_empty: bool = False) -> list[str]:
    with read_errors(folder), os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
        names = sorted(e.name for e in shown if (e.is_dir() if folders else e.name.lower().endswith(SUFFIXES)))
    if not names and not may_be_empty:
        missing = "folders of classes" if folders else f"pictures ({', '.join(SUFFIXES)})"
        raise DataError(
            f"{folder} holds no {missing}: was all of the set unpacked, as <root>/<split>/<class>/<picture>?"
        )
    return names


def need_pillow() -> None:
    """Raise if Pillow is not installed."""
    try:
        importlib.import_module("PIL")
    except ImportError as error:
        raise DataError(f"pictures need Pillow ({error}): pip install 'hyperfan[data]'") from error


def open_picture(path: str) -> "Image":
    """Open and decode a picture with Pillow, in RGB."""
    need_pillow()
    from PIL import Image

    with read_errors(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for somebody who writes to it
            raise DataError(f"{path} is no file, but a folder, a pipe or a device: delete it, or put a picture there")
    with read_errors(path), open(path, "rb") as stream:
        try:
            return Image.open(stream).convert("RGB")
        except Exception as error:  # of a damaged file, Pillow's decoders raise nearly anything
            raise DataError(
                f"{path} cannot be read as a picture ({type(error).__name__}: {error}): put a good copy in its place, "
                "or delete it"
            ) from error


def pixels(picture: "Image") -> Tensor:
    """The pixels of a picture in RGB as a tensor, (3, height, width), uint8."""
    flat = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return flat.reshape(picture.height, picture.width, 3).permute(2, 0, 1).contiguous()
