"""How far the runs of a sweep have come: one table in a terminal, a line now and then elsewhere."""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.progress import LINE_SECONDS
from hyperfan.files import parse_json
from hyperfan.metrics import METRICS_FILE, Kind
from hyperfan.text import duration

REFRESH_SECONDS = 1.0
TAIL_BYTES = 200_000
"""Bytes at the end of the metrics in which the last step is looked for."""
MAX_ROWS = 30
QUEUE = "cluster"
"""The place of runs that were given to a cluster, where those that have measured nothing may wait for a worker."""


def standing(path: Path) -> tuple[int, float | None]:
    """The last step in a run's metrics, and the last training loss, as far as they are in its last lines."""
    with contextlib.suppress(OSError), (path / METRICS_FILE).open("rb") as stream:
        stream.seek(max(stream.seek(0, 2) - TAIL_BYTES, 0))
        step, loss = 0, None
        for line in reversed(stream.read().split(b"\n")[:-1]):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = parse_json(line)
                step = max(step, int(row["step"]))
                if row["kind"] == Kind.TRAIN:
                    loss = row["loss"]
                    break
        return step, loss
    return 0, None


class SweepTable:
    """Shows the runs that are under way, by what their folders say, how many are over, and the time to go."""

    def __init__(self, console: Console, runs: Mapping[Path, Configuration]) -> None:
        self.console, self.runs = console, runs
        self._steps = {path: standing(path)[0] for path in runs}
        self._first, self._start = sum(self._steps.values()), time.monotonic()
        self._total = sum(config.total for config in runs.values())
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._shown = self._start

    def __enter__(self) -> "SweepTable":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_error: Any) -> None:
        if self._live:
            self._live.stop()

    def note(self, text: str) -> None:
        """Show a line of text that stays."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, under_way: Mapping[Path, str], ended: Mapping[Path, str], shortage: Callable[[], str]) -> None:
        """Where the runs stand that are under way, each at a place, and what they lack, if it is time to show it."""
        now = time.monotonic()
        if now - self._shown < (REFRESH_SECONDS if self._live else LINE_SECONDS):
            return
        self._shown = now
        for path in ended:
            self._steps[path] = self.runs[path].total  # also of one that diverged: nothing is left of it
        rows = []
        for path, place in under_way.items():
            step, loss = standing(path)
            self._steps[path] = max(step, self._steps[path])
            config = self.runs[path]
            if place == QUEUE and not step and loss is None:
                continue
            rows.append([config.title, place, f"{step:,} of {config.total:,}", "" if loss is None else f"{loss:.4g}"])
        left = f"; {missing}" if under_way and (missing := shortage()) else self._left(now)
        self._draw(f"{len(ended)} of {len(self.runs)} runs over, {len(rows)} under way{left}", rows)

    def _left(self, now: float) -> str:
        """The time to go, at the speed of all runs since the sweep began; empty until there is one."""
        done = sum(self._steps.values())
        if done == self._first:
            return ""
        seconds = (now - self._start) / (done - self._first) * (self._total - done)
        return f", about {duration(seconds)} left"

    def _draw(self, summary: str, rows: list[list[str]]) -> None:
        if self._live is None:
            self.note("; ".join([summary, *(f"{title}: batch {step}" for title, _, step, _ in rows)]))
            return
        table = Table(box=None)
        for name in ("run", "where", "batch", "loss"):
            table.add_column(name, justify="right" if name in ("batch", "loss") else "left", no_wrap=True)
        for row in rows[:MAX_ROWS]:
            table.add_row(*row)
        self._live.update(Group(Text(summary), table), refresh=True)
