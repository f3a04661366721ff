"""``hyperfan data``: how to get the data sets."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import tyro

from hyperfan.cli.output import status
from hyperfan.text import size


def fetch(
    name: tyro.conf.Positional[Literal["mnist", "cifar10", "imagenette", "tiny-imagenet", "lasa"]],
    data_dir: Path | None = None,
) -> None:
    """Download a data set, unless it is there.

    Checksums are verified, and a download that broke off is continued.
    MNIST is 12 MB, CIFAR-10 170 MB, Imagenette 99 MB, Tiny ImageNet 248 MB, LASA 11 MB.

    Example: hyperfan data fetch mnist

    Args:
        name: Which data set.
        data_dir: Into which folder. Without it, $HYPERFAN_DATA, or else the user's cache.
    """
    from hyperfan.data.fetch import fetch as get

    tenths: dict[str, int] = {}
    with status(f"fetching {name}") as show:

        def progress(file: str, done: int, total: int) -> None:
            if (tenth := 10 * done // total) != tenths.get(file):
                tenths[file] = tenth
                show(f"{file}: {size(done)} of {size(total)}")

        folder = get(name, data_dir, progress)
    print(f"{name} is in {folder}")


def commands(args: Sequence[str]) -> dict[str, Callable[..., None]]:
    """Get the data sets."""
    return {"fetch": fetch}
