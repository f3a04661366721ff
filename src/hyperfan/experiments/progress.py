"""What is seen of a run while it runs: a bar in a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINE_EVERY = 30.0
"""Seconds between lines where there is no terminal."""


@dataclass
class Standing:
    """How a run stands."""

    title: str
    total: int
    stage: tuple[str, int]
    step: int = 0
    loss: float | None = None
    accuracy: float | None = None

    def see(self, row: Mapping[str, Any]) -> None:
        """Take what is shown from a line of metrics."""
        if row["kind"] == "train":
            self.loss = row["loss"]
        elif row["kind"] == "test":
            self.accuracy = row["accuracy"]

    def at(self, step: int) -> "Standing":
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
    """Someone to tell."""

    def update(self, standing: Standing) -> None:
        """After every batch."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def close(self) -> None:
        """The run is over."""


class Bars:
    """A bar with epoch, loss, throughput and time left, for a terminal."""

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[says]}  {task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: TaskID | None = None
        self._first: tuple[int, float] | None = None
        self._shown = 0.0

    def update(self, standing: Standing) -> None:
        """After every batch; shown ten times a second."""
        now = time.monotonic()
        if self._first is None:
            self._first = standing.step, now
            self.note(standing.title)
            self._bar.start()
            self._task = self._bar.add_task(
                standing.title, total=standing.total, completed=standing.step, says="", rate=""
            )
        if self._task is None or (now - self._shown < 0.1 and standing.step < standing.total):
            return
        self._shown = now
        rate = _rate(self._first, standing.step, now)
        self._bar.update(
            self._task, completed=standing.step, says=str(standing), rate=f"{rate:.0f} batches/s" if rate else ""
        )

    def note(self, text: str) -> None:
        """Something worth a line."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """The run is over."""
        self._bar.stop()


class Lines:
    """A line every half minute, for a log file.

    Args:
        say: what to do with a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._first: tuple[int, float] | None = None
        self._shown = time.monotonic()

    def update(self, standing: Standing) -> None:
        """After every batch; a line is due every half minute and at the end."""
        now = time.monotonic()
        if self._first is None:
            self._first = standing.step, now
        if now - self._shown < LINE_EVERY and standing.step < standing.total:
            return
        self._shown = now
        rate = _rate(self._first, standing.step, now)
        left = (standing.total - standing.step) / rate if rate else 0.0
        speed = f"  {rate:.3g} batches/s  {_duration(left)} left" if rate and left else ""
        self.note(f"{standing}{speed}")

    def note(self, text: str) -> None:
        """Something worth a line."""
        self._say(text)

    def close(self) -> None:
        """The run is over."""


def _duration(seconds: float) -> str:
    """In the unit that suits it.

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
