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
