"""``ImageFolder``: pictures in folders, one for each class, as in ImageNet and Imagenette."""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from hyperfan.data.lookup import fetch_advice, find, read_errors
from hyperfan.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png")

IMAGENETTE = ("n01440764", "n02102040", "n02979186", "n03000684", "n03028079",
              "n03394916", "n03417042", "n03425413", "n03445777", "n03888257")  # fmt: skip
"""The ten classes of Imagenette, as WordNet numbers."""


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """The pictures <root>/<split>/<class>/*.jpg (or .jpeg, .png, in any case), and the number of their class.

    A picture is (3, height, width), uint8, RGB. Classes and files are in the order of their names; hidden ones are
    passed over, and links are followed. Pictures are decoded when asked for, which needs Pillow.

    Args:
        root, split: where they are.
        skip_empty: leave out classes without pictures, which are then in ``empty``, instead of raising.
    """

    def __init__(self, root: str | os.PathLike[str], split: str, skip_empty: bool = False) -> None:
        folder = Path(root) / split
        names = _names(folder, folders=True)
        files = {name: _names(folder / name, folders=False, may_be_empty=skip_empty) for name in names}
        self.classes = tuple(name for name in names if files[name])
        self.empty = tuple(name for name in names if not files[name])
        self.files = [(os.path.join(folder, name, file), label) for label, name in enumerate(self.classes)
                      for file in files[name]]  # fmt: skip

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index]
        return pixels(open_picture(path)), label


def imagenette(data_dir: str | os.PathLike[str] | None = None) -> tuple[ImageFolder, ImageFolder]:
    """Read Imagenette: photographs of ten ImageNet classes, the shorter side 160 pixels, to train and validate on."""
    with fetch_advice("imagenette", data_dir):
        root = find("imagenette", data_dir)
        train, val = ImageFolder(root, "train"), ImageFolder(root, "val")
        for split, read in (("train", train), ("val", val)):
            if read.classes != IMAGENETTE:
                raise DataError(
                    f"{root / split} holds {len(read.classes)} classes, from {read.classes[0]} to {read.classes[-1]}, "
                    "that are not the ten of Imagenette: for another set, ImageFolder(root, split)"
                )
        return train, val


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

    with read_errors(path), open(path, "rb") as stream:
        try:
            return Image.open(stream).convert("RGB")
        except Exception as error:  # of a damaged file, Pillow's decoders raise nearly anything
            raise DataError(
                f"{path} cannot be read as a picture ({type(error).__name__}: {error}): put a good copy in its place, "
                "or delete it"
            ) from error


def pixels(picture: "Image") -> Tensor:
    """The pixels of a picture as a tensor, (3, height, width), uint8."""
    flat = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return flat.reshape(picture.height, picture.width, 3).permute(2, 0, 1).contiguous()
