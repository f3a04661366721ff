"""Metrics for TensorBoard, beside those in the run folder."""

from pathlib import Path
from typing import Any

from hyperfan.errors import RunError
from hyperfan.experiments.files import one_line_if_it_fails
from hyperfan.experiments.folder import Row


class Board:
    """Writes every number of the metrics as a scalar. A resumed run replaces what came after its checkpoint."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise RunError("--tensorboard needs TensorBoard: pip install 'hyperfan[tensorboard]'") from error
        self._make, self._folder = SummaryWriter, folder
        self._writer: Any = None

    def record(self, row: Row) -> None:
        """Take a line. It is on its way to the disk at once: a kill loses nothing that a checkpoint counts on."""
        with one_line_if_it_fails(str(self._folder), "Go on without --tensorboard"):
            self._write(row)
            if row["kind"] == "end":
                self._writer.close()
            else:
                self._writer.flush()

    def _write(self, row: Row) -> None:
        if self._writer is None:
            self._writer = self._make(str(self._folder), purge_step=row["step"])
        step = row["step"]
        if row["kind"] == "train":
            self._writer.add_scalar("train/loss", row["loss"], step)
        elif row["kind"] == "test":
            self._writer.add_scalar("test/loss", row["loss"], step)
            self._writer.add_scalar("test/accuracy", row["accuracy"], step)
        elif row["kind"] == "moments":
            for where, (mean, std) in row["layers"].items():
                self._writer.add_scalar(f"{row['of']} mean/{where}", mean, step)
                self._writer.add_scalar(f"{row['of']} std/{where}", std, step)
