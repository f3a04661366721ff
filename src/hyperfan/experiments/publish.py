"""The folder that results are published in: a README, a summary as JSON, and figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperfan.errors import RunError
from hyperfan.experiments.files import whole, write_json
from hyperfan.experiments.folder import environment, finite

SUMMARY = "summary.json"


def check_place(out: Path, overwrite: bool) -> None:
    """Raise if results may not go there: other files are never replaced, and results only if asked."""
    if out.exists() and any(out.iterdir()):
        if not (out / SUMMARY).exists():
            raise RunError(f"{out} holds files and no {SUMMARY}, so they are no results: choose another with --out")
        if not overwrite:
            raise RunError(f"{out} holds results already: --overwrite replaces them")


def publish(out: Path, page: str, content: Mapping[str, Any]) -> None:
    """Write the README and the summary."""
    with whole(out / "README.md") as partial:
        partial.write_text(page, encoding="utf-8")
    write_json(out / SUMMARY, finite({"environment": environment(), **content}))
