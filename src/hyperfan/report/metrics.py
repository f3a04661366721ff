"""Reading the metrics of a run, line by line as they were written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
"""The metrics of a run, line by line."""
History = list[tuple[int, float | None, float | None]]
"""Steps, means and standard deviations."""


def of_kind(rows: Rows, kind: str) -> Iterator[Mapping[str, Any]]:
    """The lines of one kind."""
    return (r for r in rows if r["kind"] == kind)


def series(rows: Rows, kind: str, key: str) -> list[tuple[int, float | None]]:
    """Steps and values."""
    return [(r["step"], r[key]) for r in of_kind(rows, kind) if key in r]


def history(rows: Rows, quantity: str) -> dict[str, History]:
    """Steps, means and standard deviations of each layer or tensor."""
    found: dict[str, History] = {}
    for row in of_kind(rows, "moments"):
        if row["of"] == quantity:
            for where, (mean, std) in row["layers"].items():
                found.setdefault(where, []).append((row["step"], mean, std))
    return found


def histograms(rows: Rows, quantity: str, *, last: bool) -> dict[str, Mapping[str, Any]]:
    """Histograms of each layer or tensor: those before training, or the last ones taken in it."""
    taken = [r for r in of_kind(rows, "histograms") if r["of"] == quantity and (r["step"] > 0) == last]
    return dict(taken[-1]["layers"]) if taken else {}


def last_step(rows: Rows) -> int:
    """The last step that left a line."""
    return max((int(r["step"]) for r in rows), default=0)


def divergence(rows: Rows) -> Mapping[str, Any] | None:
    """The line that records where the run diverged, if it did."""
    return next((r for r in of_kind(rows, "end") if r["outcome"] == "diverged"), None)
