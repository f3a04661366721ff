"""``hyperfan report``: one page of runs side by side."""

import importlib
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from hyperfan.errors import RunError
from hyperfan.experiments.cifar10.config import Cifar10
from hyperfan.experiments.continual.config import Continual
from hyperfan.experiments.imagenet.config import Imagenet
from hyperfan.experiments.mnist.config import Mnist

if TYPE_CHECKING:
    from hyperfan.report import RunData

EXPERIMENTS: dict[str, Any] = {"mnist": Mnist, "continual": Continual, "cifar10": Cifar10, "imagenet": Imagenet}
MOST = 12
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
    from hyperfan.experiments.files import one_line_if_it_fails, whole
    from hyperfan.report import run_page

    if out.is_dir():
        raise RunError(f"{out} is a folder: name a file with --out, such as {out / 'report.html'}")
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists: --overwrite replaces it, --out writes elsewhere")
    folders = _folders(runs)
    try:
        page = run_page(_named_apart(folders, [_read(folder) for folder in folders]))
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        told = ", ".join(map(str, folders))
        raise RunError(f"{told}: not the metrics of a run, {type(error).__name__} {error}") from error
    with one_line_if_it_fails(str(out), "Choose another place with --out"), whole(out) as partial:
        partial.write_text(page, encoding="utf-8")
    print(out)


def _folders(asked: Sequence[Path]) -> list[Path]:
    """The runs meant, each once."""
    found: dict[Path, Path] = {}
    for path in asked:
        if not path.is_dir():
            raise RunError(f"{path} is no folder; a run is one: 'hyperfan run' says where it puts it")
        inside = sorted(file.parent for file in path.glob("*/config.json"))
        if not (path / "config.json").exists() and not inside:
            raise RunError(f"{path} holds no config.json, so it is no run")
        for one in [path] if (path / "config.json").exists() else inside:
            found.setdefault(one.resolve(), one)
    if not found:
        raise RunError("name at least one run: hyperfan report runs/mnist/hyperfan-in_seed-0")
    if len(found) > MOST:
        raise RunError(f"{len(found)} runs are too many for a page: name up to {MOST} of them")
    return list(found.values())


def _read(path: Path) -> "RunData":
    """The run in a folder, in the words of its experiment if it is over."""
    from hyperfan.experiments.files import read_json
    from hyperfan.experiments.folder import read_metrics
    from hyperfan.report import RunData

    if not (path / "metrics.jsonl").exists():
        raise RunError(f"{path} has no metrics.jsonl yet: it has only just begun")
    rows, config = read_metrics(path), read_json(path / "config.json")
    if not isinstance(config, dict) or not all(isinstance(row, dict) and "kind" in row for row in rows):
        raise RunError(f"{path} is damaged: config.json should hold names and values, metrics.jsonl lines of them")
    times = read_json(path / "time.json") if (path / "time.json").exists() else {}
    environment = read_json(path / "env.json") if (path / "env.json").exists() else {}
    made = RunData(path.name, rows, config, environment, times)
    for experiment, kind in EXPERIMENTS.items():
        if set(config) == {f.name for f in fields(kind)}:
            made = replace(made, stage=kind(**config).stage)
            if rows and rows[-1]["kind"] == "end":
                made = importlib.import_module(f"hyperfan.experiments.{experiment}.summary").run_data(path)
    return replace(made, times=times)


def _named_apart(folders: Sequence[Path], runs: Sequence["RunData"]) -> list["RunData"]:
    """Runs of one configuration go by their folders."""
    names = [run.name for run in runs]
    return [
        replace(run, name=str(folder)) if names.count(run.name) > 1 else run
        for folder, run in zip(folders, runs, strict=True)
    ]
