"""The photographs of a run: which there are, and batch after batch of them, decoded by workers."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hyperfan.data.crops import centre_crop, random_crop
from hyperfan.data.folder import CLASSES_FILE, ImageFolder, listed_classes, need_pillow, open_picture, pixels
from hyperfan.data.lookup import fetch_advice, find
from hyperfan.errors import DataError, HyperfanError
from hyperfan.experiments.seeds import generator

Files = list[tuple[str, int]]
"""Pictures by path, with the numbers of their classes."""
Batch = tuple[Tensor, Tensor, dict[str, str]]
"""Pictures, uint8, their classes, and by path the reasons why others did not decode."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of a run.

    Args:
        name: of the folder that holds them all.
        classes: those trained on.
        train, test: files of those classes.
        held_out: the classes not trained on.
        unknown: files of those classes, to test on.
        left_out: why classes are left out.
    """

    name: str
    classes: tuple[str, ...]
    train: Files
    test: Files
    held_out: tuple[str, ...]
    unknown: Files
    left_out: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the names of all pictures, wherever they lie, and of the numbers of their classes."""
        files = (*self.train, *self.test, *self.unknown)
        names = ["/".join((*Path(path).parts[-3:], str(label))) for path, label in files]
        return hashlib.sha256("\n".join(names).encode()).hexdigest()


def read_pictures(data_dir: Path | None, held_out: int, skip_bad: bool, first_classes: int | None = None) -> Pictures:
    """Read a folder laid out as ImageNet or Tiny ImageNet is.

    Args:
        data_dir: the folder with train/ and val/, or one with Tiny ImageNet in it, which is also the default.
        held_out: how many classes not to train on, the last; their pictures to test on are ``unknown``.
        skip_bad: leave out classes without pictures, and those to test on that are not trained on.
        first_classes: how many classes to use, the first; by default all.
    """
    if data_dir is not None and (data_dir / "train").is_dir():
        root = data_dir
    else:
        with fetch_advice("tiny-imagenet", data_dir):
            root = find("tiny-imagenet", data_dir)
    train, val = (ImageFolder(root, split, skip_empty=skip_bad) for split in ("train", "val"))
    left_out = [f"{split}/{name} has no pictures" for split, f in (("train", train), ("val", val)) for name in f.empty]
    stray = [name for name in val.classes if name not in train.classes]
    if stray and not skip_bad:
        raise DataError(
            f"{root / 'val'} has the class {stray[0]}, which {root / 'train'} lacks, so that nobody could learn it: "
            "remove it, or pass --skip-bad to leave such classes out"
        )
    left_out += [f"val/{name} is not in train" for name in stray]
    listed = ordered_classes(root, train.classes)[:first_classes]
    if len(listed) < (first_classes or 0):
        raise HyperfanError(f"--first-classes {first_classes}: {root / 'train'} has {len(listed)} classes")
    missing = [name for name in listed if name not in (*train.classes, *train.empty)]
    if missing and not skip_bad:
        raise DataError(
            f"{root / 'train'} lacks the class {missing[0]}, which {root / CLASSES_FILE} lists: pass --first-classes "
            "to use only the first of the list, or --skip-bad to leave such classes out"
        )
    left_out += [f"{name} is in {CLASSES_FILE} and not in train" for name in missing]
    used = tuple(name for name in listed if name in train.classes)
    kept = len(used) - held_out
    if kept < 2:
        raise HyperfanError(
            f"--held-out {held_out}: of {len(used)} classes in {root / 'train'} two must remain to train on"
        )
    labels = {name: label for label, name in enumerate(used)}
    tested = _labelled(val, labels)
    if not any(label < kept for _, label in tested):
        raise DataError(f"{root / 'val'} has none of the classes trained on, so that there is nothing to test on")
    return Pictures(
        root.resolve().name,
        used[:kept],
        [(path, label) for path, label in _labelled(train, labels) if label < kept],
        [(path, label) for path, label in tested if label < kept],
        used[kept:],
        [(path, label) for path, label in tested if label >= kept],
        tuple(left_out),
    )


def ordered_classes(root: Path, classes: Sequence[str]) -> tuple[str, ...]:
    """The classes that the set lists, in that order, if it has a list; then those that are only folders, by name."""
    listed = listed_classes(root) if (root / CLASSES_FILE).exists() else ()
    return tuple(dict.fromkeys((*listed, *classes)))


def _labelled(folder: ImageFolder, labels: Mapping[str, int]) -> Files:
    """The files of some classes with their labels, class after class."""
    names = ((path, folder.classes[label]) for path, label in folder.files)
    return sorted([(path, labels[name]) for path, name in names if name in labels], key=lambda file: file[1])


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
