"""The photographs of a run: which there are, and batch after batch of them, decoded by workers."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hyperfan.data.crops import centre_crop, random_crop
from hyperfan.data.folder import ImageFolder, need_pillow, open_picture, pixels
from hyperfan.data.lookup import fetch_advice, find
from hyperfan.errors import DataError, HyperfanError
from hyperfan.experiments.seeds import generator

Files = list[tuple[str, int]]
"""Pictures by path, with the numbers of their classes."""
Batch = tuple[Tensor, Tensor, dict[str, str]]
"""Pictures, uint8, their classes, and by path the reasons why others did not decode."""


@dataclass(frozen=True)
class Pictures:
    """The classes trained on, the files to train on, to test on and of unknown classes, and why others are left out."""

    classes: tuple[str, ...]
    train: Files
    test: Files
    unknown: Files
    left_out: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the names of all pictures, wherever they lie."""
        names = ["/".join(Path(path).parts[-3:]) for path, _ in (*self.train, *self.test, *self.unknown)]
        return hashlib.sha256("\n".join(names).encode()).hexdigest()


def read_pictures(data_dir: Path | None, held_out: int, skip_bad: bool) -> Pictures:
    """Read a folder laid out as ImageNet is: <root>/train/<class>/ and <root>/val/<class>/.

    Args:
        data_dir: the root, or a folder with Imagenette in it, which is also the default.
        held_out: how many classes not to train on, the last by name; their pictures to test on are ``unknown``.
        skip_bad: leave out classes without pictures, and those to test on that are not trained on.
    """
    if data_dir is not None and (data_dir / "train").is_dir():
        root = data_dir
    else:
        with fetch_advice("imagenette", data_dir):
            root = find("imagenette", data_dir)
    train, val = (ImageFolder(root, split, skip_empty=skip_bad) for split in ("train", "val"))
    left_out = [f"{split}/{name} has no pictures" for split, f in (("train", train), ("val", val)) for name in f.empty]
    stray = [name for name in val.classes if name not in train.classes]
    if stray and not skip_bad:
        raise DataError(
            f"{root / 'val'} has the class {stray[0]}, which {root / 'train'} lacks, so that nobody could learn it: "
            "remove it, or pass --skip-bad to leave such classes out"
        )
    left_out += [f"val/{name} is not in train" for name in stray]
    kept = len(train.classes) - held_out
    if kept < 2:
        raise HyperfanError(
            f"--held-out {held_out}: of {len(train.classes)} classes in {root / 'train'} two must remain to train on"
        )
    known = {name: i for i, name in enumerate(train.classes)}
    if not set(val.classes) & set(train.classes[:kept]):
        raise DataError(f"{root / 'val'} has none of the classes trained on, so that there is nothing to test on")
    named = [(path, known[val.classes[label]]) for path, label in val.files if val.classes[label] in known]
    return Pictures(
        train.classes[:kept],
        [(path, label) for path, label in train.files if label < kept],
        [(path, label) for path, label in named if label < kept],
        [(path, label) for path, label in named if label >= kept],
        tuple(left_out),
    )


def evenly_spaced(files: Files, count: int | None) -> Files:
    """At most so many of the files, evenly spaced, so that every class has its share."""
    if count is None or count >= len(files):
        return files
    return [files[i * len(files) // count] for i in range(count)]


class Crops(Dataset[Any]):
    """Pictures cut to size: at random, which follows from seed, epoch and picture; or without a seed the middle."""

    def __init__(self, files: Files, size: int, seed: int | None) -> None:
        need_pillow()
        self.files, self.size, self.seed = files, size, seed

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int] | dict[str, str]:
        """Pixels and class, or why there are none by path; raised by a worker, that would arrive as a traceback."""
        epoch, index = key
        path, label = self.files[index]
        try:
            picture = open_picture(path)
        except DataError as error:
            return {path: str(error)}
        if self.seed is None:
            return pixels(centre_crop(picture, self.size)), label
        return pixels(random_crop(picture, self.size, generator(self.seed, "crop", epoch, index))), label


def collate(found: Sequence[tuple[Tensor, int] | dict[str, str]]) -> Batch:
    """A batch of those that decoded, which may be none."""
    bad = {path: reason for f in found if isinstance(f, dict) for path, reason in f.items()}
    good = [f for f in found if not isinstance(f, dict)]
    pictures = torch.stack([x for x, _ in good]) if good else torch.empty(0, dtype=torch.uint8)
    return pictures, torch.tensor([y for _, y in good], dtype=torch.long), bad


def loader(crops: Crops, batches: Iterable[list[tuple[int, int]]], workers: int) -> DataLoader[Batch]:
    """Batches of crops, each named by its epoch and the number of its file, decoded by workers."""
    # With its own generator: without one it would draw from torch's, from which noise is drawn too.
    return DataLoader(
        crops, batch_sampler=batches, num_workers=workers, collate_fn=collate, generator=torch.Generator()
    )
