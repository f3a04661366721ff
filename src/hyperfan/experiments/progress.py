"""The progress of a run: a bar in a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from hyperfan.metrics import Kind, Row

LINE_EVERY = 30.0
"""Seconds between lines where there is no terminal."""


@dataclass
class Status:
    """How far a run has come, and its latest loss and accuracy."""

    title: str
    total: int
    stage: tuple[str, int]
    step: int = 0
    loss: float | None = None
    accuracy: float | None = None

    def record(self, row: Row) -> None:
        """Take the values that are shown from a line of metrics."""
        if row["kind"] == Kind.TRAIN:
            self.loss = row["loss"]
        elif row["kind"] == Kind.TEST:
            self.accuracy = row["accuracy"]

    def at(self, step: int) -> "Status":
        """The same at this step."""
        self.step = step
        return self

    def __str__(self) -> str:
        name, batches = self.stage
        stages = -(-self.total // batches)
        parts = [f"{name} {min(self.step // batches + 1, stages)}/{stages}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.accuracy is not None:
            parts.append(f"test {self.accuracy:.2%}")
        return "  ".join(parts)


class Progress(Protocol):
    """Shows the progress of a run."""

    def update(self, status: Status) -> None:
        """After every batch."""

    def note(self, text: str) -> None:
        """Show a line of text."""

    def close(self) -> None:
        """The run is over."""


class Bars:
    """A bar with epoch, loss, throughput and time left, for a terminal."""

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[status]}  {task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: TaskID | None = None
        self._first: tuple[int, float] | None = None
        self._shown = 0.0

    def update(self, status: Status) -> None:
        """After every batch; shown ten times a second."""
        now = time.monotonic()
        if self._first is None:
            self._first = status.step, now
            self.note(status.title)
            self._bar.start()
            self._task = self._bar.add_task(status.title, total=status.total, completed=status.step, status="", rate="")
        if self._task is None or (now - self._shown < 0.1 and status.step < status.total):
            return
        self._shown = now
        rate = _rate(self._first, status.step, now)
        self._bar.update(
            self._task, completed=status.step, status=str(status), rate=f"{rate:.0f} batches/s" if rate else ""
        )

    def note(self, text: str) -> None:
        """Show a line of text."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """The run is over."""
        self._bar.stop()


class Lines:
    """A line every half minute, for a log file.

    Args:
        write: called with each line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._first: tuple[int, float] | None = None
        self._shown = time.monotonic()

    def update(self, status: Status) -> None:
        """After every batch; a line is due every half minute and at the end."""
        now = time.monotonic()
        if self._first is None:
            self._first = status.step, now
        if now - self._shown < LINE_EVERY and status.step < status.total:
            return
        self._shown = now
        rate = _rate(self._first, status.step, now)
        left = (status.total - status.step) / rate if rate else 0.0
        speed = f"  {rate:.3g} batches/s  {_duration(left)} left" if rate and left else ""
        self.note(f"{status}{speed}")

    def note(self, text: str) -> None:
        """Show a line of text."""
        self._write(text)

    def close(self) -> None:
        """The run is over."""


def _duration(seconds: float) -> str:
    """A duration in the largest unit that gives at least two digits.

    >>> _duration(40), _duration(400), _duration(40000)
    ('40 s', '7 min', '11 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def _rate(first: tuple[int, float], step: int, now: float) -> float:
    """Batches a second since the first update."""
    return (step - first[0]) / (now - first[1]) if now > first[1] else 0.0


def progress_on(console: Console) -> Progress:
    """A bar if this is a terminal, else lines."""
    if console.is_terminal:
        return Bars(console)
    return Lines(lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True))
