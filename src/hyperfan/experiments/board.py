"""Metrics for TensorBoard, beside those in the run folder."""

from pathlib import Path
from typing import Any

from hyperfan.errors import RunError
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
        """Take a line."""
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
        elif row["kind"] == "end":
            self._writer.close()
