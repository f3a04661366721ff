"""The metrics of a run: what kinds of lines ``metrics.jsonl`` has, and how they are read."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from hyperfan.errors import RunError
from hyperfan.files import parse_json

METRICS_FILE = "metrics.jsonl"
Row = Mapping[str, Any]
"""A line of metrics: its kind, the step at which it was taken, and its values."""
Rows = Sequence[Row]
"""The metrics of a run, line by line."""
History = list[tuple[int, float | None, float | None]]
"""Steps, means and standard deviations."""


class Kind(StrEnum):
    """The kinds of lines."""

    TRAIN = "train"
    """Mean training loss since the last such line."""
    TEST = "test"
    """Loss and accuracy on the test set."""
    DIAGNOSIS = "diagnosis"
    """A diagnosis of the net before training."""
    MOMENTS = "moments"
    """Mean and standard deviation of a quantity in every layer."""
    HISTOGRAMS = "histograms"
    """A histogram of a quantity in every layer."""
    UNCERTAINTY = "uncertainty"
    """Calibration, and entropies of known and unknown classes."""
    LOSSES = "losses"
    """Training loss of every run of a grid."""
    ERRORS = "errors"
    """Test error of every run of a grid on every task."""
    RANKS = "ranks"
    """How many processes share the batches from here on; without such a line, one."""
    END = "end"
    """How the run ended; the last line."""


class Outcome(StrEnum):
    """How training ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    STOPPED = "stopped"
    """Ended by Ctrl-C: the run can be resumed, and its metrics have no last line."""
    TERMINATED = "terminated"
    """Ended by SIGTERM: the run can be resumed, and its metrics have no last line."""


UNDECIDED = (Outcome.STOPPED, Outcome.TERMINATED)
"""Outcomes of runs that are not over."""


def of_kind(rows: Rows, kind: Kind) -> Iterator[Row]:
    """The lines of one kind."""
    return (row for row in rows if row["kind"] == kind)


def series(rows: Rows, kind: Kind, key: str) -> list[tuple[int, float | None]]:
    """Steps and values of a key."""
    return [(row["step"], row[key]) for row in of_kind(rows, kind) if key in row]


def history(rows: Rows, quantity: str) -> dict[str, History]:
    """Steps, means and standard deviations of a quantity, by layer or tensor."""
    found: dict[str, History] = {}
    for row in of_kind(rows, Kind.MOMENTS):
        if row["of"] == quantity:
            for where, (mean, std) in row["layers"].items():
                found.setdefault(where, []).append((row["step"], mean, std))
    return found


def histograms(rows: Rows, quantity: str, *, last: bool) -> dict[str, Mapping[str, Any]]:
    """Histograms of a quantity by layer or tensor: those before training, or the last ones taken in it."""
    taken = [r for r in of_kind(rows, Kind.HISTOGRAMS) if r["of"] == quantity and (r["step"] > 0) == last]
    return dict(taken[-1]["layers"]) if taken else {}


def last_step(rows: Rows) -> int:
    """The last step that left a line."""
    return max((int(row["step"]) for row in rows), default=0)


def divergence(rows: Rows) -> Row | None:
    """The line that records where the run diverged, if it did."""
    return next((row for row in of_kind(rows, Kind.END) if row["outcome"] == Outcome.DIVERGED), None)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of the metrics in a run's folder; a last line that is being written is left out."""
    file = path / METRICS_FILE
    rows = []
    try:
        for line in file.read_bytes().split(b"\n")[:-1]:
            rows.append(parse_json(line))
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    except ValueError as error:
        raise RunError(f"{file} is damaged in line {len(rows) + 1}: {error}") from error
    return rows


def is_over(rows: Rows) -> bool:
    """Whether a run with these metrics has come to its end."""
    return bool(rows) and rows[-1].get("kind") == Kind.END


def describe_outcome(rows: Rows) -> str:
    """How a run ended, or else how far it has come.

    >>> describe_outcome([{"kind": "end", "step": 6000, "outcome": "finished"}])
    'finished after batch 6,000'
    >>> describe_outcome([{"kind": "train", "step": 10, "loss": 1.0}])
    'not finished: it has come to batch 10'
    """
    if (end := divergence(rows)) is not None:
        return describe_divergence(end)
    begun = "finished after" if is_over(rows) else "not finished: it has come to"
    return f"{begun} batch {last_step(rows):,}"


def when_diverged(end: Row) -> str:
    """When a run diverged, from its last line.

    >>> when_diverged({"step": 6000})
    'diverged at batch 6,001'
    """
    return f"diverged at batch {end['step'] + 1:,}"


def describe_divergence(end: Row) -> str:
    """When a run diverged and which layer overflowed first, from its last line.

    >>> describe_divergence({"step": 7, "layer": "4"})
    "diverged at batch 8; the first to overflow was layer '4'"
    """
    layer = end.get("layer")
    where = "the loss itself" if layer is None else f"layer '{layer}'"
    return f"{when_diverged(end)}; the first to overflow was {where}"
