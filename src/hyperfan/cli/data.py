"""``hyperfan data``: where the data sets are, and how to get them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import tyro

from hyperfan.cli.output import Json, print_json, status


def fetch(name: tyro.conf.Positional[Literal["mnist", "cifar10", "imagenette"]], data_dir: Path | None = None) -> None:
    """Download a data set, unless it is there.

    Checksums are verified, and a download that broke off is continued.
    MNIST is 12 MB, CIFAR-10 170 MB, Imagenette 99 MB.

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
                show(f"{file}: {done / 1e6:.1f} of {total / 1e6:.1f} MB")

        folder = get(name, data_dir, progress)
    print(f"{name} is in {folder}")


def where(data_dir: Path | None = None, json: Json = False) -> None:
    """In which folder data sets are looked for, and what is in it and in the others.

    Only the first is used, so that no data set is silently taken from somewhere else.

    Example: hyperfan data where

    Args:
        data_dir: The folder given as --data-dir to other commands.
        json: Print JSON instead of tables.
    """
    from hyperfan.data.lookup import LAYOUTS, folders
    from hyperfan.text import table

    found: list[dict[str, Any]] = [
        {"folder": str(folder), "by": by, "used": i == 0, "sets": [_find(name, folder) for name in LAYOUTS]}
        for i, (by, folder) in enumerate(folders(data_dir).items())
    ]
    if json:
        print_json(found)
        return
    for row in found:
        cells = [
            [s["name"], f"{s['size'] / 1e6:.1f}", str(s["files"]), s["place"]]
            if s["place"]
            else [s["name"], "–", "–", "not there"]
            for s in row["sets"]
        ]
        print(f"{row['folder']} ({row['by']}): {'data are looked for here' if row['used'] else 'not looked at'}")
        print(table(["set", "MB", "files", "found in"], cells), end="\n\n")


def commands(args: Sequence[str]) -> dict[str, Callable[..., None]]:
    """Where the data sets are, and how to get them."""
    return {"fetch": fetch, "where": where}


def _find(name: str, folder: Path) -> dict[str, Any]:
    from hyperfan.data.lookup import contents, find
    from hyperfan.errors import DataError

    try:
        place = find(name, folder)
        files = contents(name, place)
    except DataError:
        return {"name": name, "place": None, "files": 0, "size": 0}
    return {"name": name, "place": str(place), "files": len(files), "size": sum(f.stat().st_size for f in files)}
