"""Metrics for TensorBoard, beside those in the run folder."""

from pathlib import Path
from typing import Any

from hyperfan.errors import RunError
from hyperfan.files import explain_write_errors
from hyperfan.metrics import Kind, Row


class Board:
    """Writes every number of the metrics as a scalar. A resumed run replaces what came after its checkpoint."""

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
            self._write(row)
            if row["kind"] == Kind.END:
                self._writer.close()
            else:
                self._writer.flush()

    def _write(self, row: Row) -> None:
        if self._writer is None:
            self._writer = self._writer_type(str(self._folder), purge_step=row["step"])
        step = row["step"]
        if row["kind"] == Kind.TRAIN:
            self._writer.add_scalar("train/loss", row["loss"], step)
        elif row["kind"] == Kind.TEST:
            self._writer.add_scalar("test/loss", row["loss"], step)
            self._writer.add_scalar("test/accuracy", row["accuracy"], step)
        elif row["kind"] == Kind.MOMENTS:
            for where, (mean, std) in row["layers"].items():
                self._writer.add_scalar(f"{row['of']} mean/{where}", mean, step)
                self._writer.add_scalar(f"{row['of']} std/{where}", std, step)
