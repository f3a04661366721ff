"""What is shown of a run while it trains: a line in a terminal, lines elsewhere, and scalars for TensorBoard."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from hyperfan.errors import RunError
from hyperfan.files import explain_write_errors
from hyperfan.metrics import Kind, Row
from hyperfan.text import duration

REFRESH_SECONDS, LINE_SECONDS = 0.1, 30.0
"""Time between two updates, in a terminal and elsewhere."""


class Progress:
    """Shows how far a run has come, its latest loss and accuracy, its speed, and the time left."""

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
            parts += [f"{steps / seconds:.3g} batches/s", f"{duration((total - step) * seconds / steps)} left"]
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


class Notes(Progress):
    """Shows the notes of a run alone, where a table tells how far it has come."""

    def record(self, row: Row) -> None:
        """Nothing is shown of it."""

    def update(self, step: int, total: int, stage: tuple[str, int]) -> None:
        """Nothing is shown of it."""


class Board:
    """Writes loss, accuracy and moments as scalars. A resumed run replaces what came after its checkpoint."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise RunError("--tensorboard needs TensorBoard: pip install 'hyperfan[tensorboard]'") from error
        self._writer_type, self._folder = SummaryWriter, folder
        self._writer: Any = None

    def record(self, row: Row) -> None:
        """Write a line and flush it, so that a kill loses nothing that a checkpoint counts on."""
        with explain_write_errors(str(self._folder), "Go on without --tensorboard"):
            self._writer = self._writer or self._writer_type(str(self._folder), purge_step=row["step"])
            for name, value in _scalars(row).items():
                self._writer.add_scalar(name, value, row["step"])
            self._writer.flush()
            if row["kind"] == Kind.END:
                self._writer.close()


def _scalars(row: Row) -> dict[str, float]:
    if row["kind"] in (Kind.TRAIN, Kind.TEST):
        return {f"{row['kind']}/{name}": row[name] for name in ("loss", "accuracy") if name in row}
    if row["kind"] != Kind.MOMENTS:
        return {}
    named = zip(("mean", "std"), zip(*row["layers"].values(), strict=True), strict=True)
    return {f"{row['of']} {name}/{where}": v for name, vs in named for where, v in zip(row["layers"], vs, strict=True)}
