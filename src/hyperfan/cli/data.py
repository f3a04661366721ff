"""``hyperfan data``: where the data sets are, and how to get them."""

import json as _json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

if TYPE_CHECKING:
    from hyperfan.data.download import Progress


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

    with _progress() as progress:
        folder = get(name, data_dir, progress)
    print(f"{name} is in {folder}")


def where(data_dir: Path | None = None, json: bool = False) -> None:
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
        print(_json.dumps(found, indent=2))
        return
    for row in found:
        print(f"{row['folder']} ({row['by']}): {'data are looked for here' if row['used'] else 'not looked at'}")
        print(table(["set", "MB", "files", "found in"], [_cells(**one) for one in row["sets"]]), end="\n\n")


def commands(args: Sequence[str]) -> dict[str, Callable[..., None]]:
    """The commands of ``hyperfan data``, whatever the arguments."""
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


def _cells(name: str, place: str | None, files: int, size: int) -> list[str]:
    return [name, f"{size / 1e6:.1f}", str(files), place] if place else [name, "–", "–", "not there"]


@contextmanager
def _progress() -> Iterator["Progress"]:
    """Shows downloads: bars on a terminal; in a file or a pipe, a line for each tenth."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    log = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    bars: dict[str, TaskID] = {}
    tenths: dict[str, int] = {}
    with Progress(*columns, console=log, disable=not log.is_terminal) as live:

        def show(name: str, done: int, total: int) -> None:
            if log.is_terminal:
                if name not in bars:
                    bars[name] = live.add_task(name, total=total)
                live.update(bars[name], completed=done)
            elif (tenth := 10 * done // total) != tenths.get(name):
                tenths[name] = tenth
                log.print(f"{name}: {done / 1e6:.1f} of {total / 1e6:.1f} MB", soft_wrap=True, highlight=False)

        yield show
