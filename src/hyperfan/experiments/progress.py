"""The progress of a run: a line that changes in a terminal, a line now and then elsewhere."""

import time

from rich.console import Console

from hyperfan.metrics import Kind, Row

REFRESH_SECONDS, LINE_SECONDS = 0.1, 30.0
"""Between two updates, in a terminal and elsewhere."""


class Progress:
    """Shows how far a run has come, its latest loss and accuracy, its speed, and the time left.

    Args:
        console: where.
        prefix: begins every line.
    """

    def __init__(self, console: Console, prefix: str = "") -> None:
        self.console, self.prefix = console, prefix
        self._live = console.status("") if console.is_terminal else None
        self._every = REFRESH_SECONDS if self._live else LINE_SECONDS
        self._values: dict[str, str] = {}
        self._first: tuple[int, float] | None = None
        self._shown = time.monotonic()

    def record(self, row: Row) -> None:
        """Take the values that are shown from a line of metrics."""
        if row["kind"] == Kind.TRAIN:
            self._values["loss"] = f"{row['loss']:.4g}"
        elif row["kind"] == Kind.TEST:
            self._values["test"] = f"{row['accuracy']:.2%}"

    def update(self, step: int, total: int, stage: tuple[str, int]) -> None:
        """After every batch; a line is due now and then, and at the end."""
        now = time.monotonic()
        self._first = self._first or (step, now)
        if now - self._shown < self._every and step < total:
            return
        self._shown = now
        name, batches = stage
        stages = -(-total // batches)
        parts = [f"{name} {min(step // batches + 1, stages)}/{stages}"]
        parts += [f"{label} {value}" for label, value in sorted(self._values.items())]
        steps, seconds = step - self._first[0], now - self._first[1]
        if steps and seconds and step < total:
            parts += [f"{steps / seconds:.3g} batches/s", f"{_duration((total - step) * seconds / steps)} left"]
        if self._live and step < total:
            self._live.start()
            self._live.update(self.prefix + "  ".join(parts))
        else:
            self.note("  ".join(parts))

    def note(self, text: str) -> None:
        """Show a line of text that stays."""
        self.console.print(self.prefix + text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """The run is over."""
        if self._live:
            self._live.stop()


def _duration(seconds: float) -> str:
    """A duration in the largest unit that gives at least two digits.

    >>> _duration(40), _duration(400), _duration(40000)
    ('40 s', '7 min', '11 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
