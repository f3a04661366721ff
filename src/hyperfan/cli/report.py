"""``hyperfan report``: one page of runs side by side."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from hyperfan.errors import RunError

if TYPE_CHECKING:
    from hyperfan.report import RunData

MAX_RUNS = 12
"""Runs on a page."""


def report(
    runs: tyro.conf.Positional[tuple[Path, ...]], out: Path = Path("report.html"), overwrite: bool = False
) -> None:
    """One self-contained HTML page of a run, or of several side by side: what came out, curves, settings.

    Runs that are not over are shown as far as they have come.

    Example: hyperfan report runs/mnist/hyperfan-in_seed-0 runs/mnist/xavier-fan-in_seed-0

    Args:
        runs: Folders of runs, or folders that hold them.
        out: Where the page goes.
        overwrite: Replace a page that is there.
    """
    from hyperfan.experiments.results.runs import read_data
    from hyperfan.files import explain_write_errors, write_text
    from hyperfan.report import run_page

    if out.is_dir():
        raise RunError(f"{out} is a folder: name a file with --out, such as {out / 'report.html'}")
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists: --overwrite replaces it, --out writes elsewhere")
    folders = _folders(runs)
    try:
        page = run_page(_distinct_names(folders, [read_data(folder) for folder in folders]))
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        named = ", ".join(map(str, folders))
        raise RunError(f"{named}: not the metrics of a run, {type(error).__name__} {error}") from error
    with explain_write_errors(str(out), "Choose another place with --out"):
        write_text(out, page)
    print(out)


def _folders(paths: Sequence[Path]) -> list[Path]:
    """The folders of runs that the paths are or hold, each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is no folder; a run is one: 'hyperfan run' says where it puts it")
        inside = sorted(file.parent for file in path.glob("*/config.json"))
        if not (path / "config.json").exists() and not inside:
            raise RunError(f"{path} holds no config.json, so it is no run")
        for folder in [path] if (path / "config.json").exists() else inside:
            found.setdefault(folder.resolve(), folder)
    if not found:
        raise RunError("name at least one run: hyperfan report runs/mnist/hyperfan-in_seed-0")
    if len(found) > MAX_RUNS:
        raise RunError(f"{len(found)} runs are too many for a page: name up to {MAX_RUNS} of them")
    return list(found.values())


def _distinct_names(folders: Sequence[Path], runs: Sequence["RunData"]) -> list["RunData"]:
    """The runs, those of one configuration named after their folders."""
    names = [run.name for run in runs]
    return [
        replace(run, name=str(folder)) if names.count(run.name) > 1 else run
        for folder, run in zip(folders, runs, strict=True)
    ]
