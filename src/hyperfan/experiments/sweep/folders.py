"""What a sweep needs to know of the folder of a run, without making or changing it."""

from pathlib import Path

from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.folder import CHECKPOINT_FOLDER, LOCK_FILE, read_state, verify
from hyperfan.files import Lock
from hyperfan.metrics import read_metrics


def finished_outcome(path: Path, config: Configuration) -> str | None:
    """How the run in a folder ended, if it is over; raises if it is that of another configuration, or was changed."""
    found = read_state(path / CHECKPOINT_FOLDER)
    if found is None or not found[0].done:
        return None
    verify(path, config)
    return str(read_metrics(path)[-1]["outcome"])


def saved_step(path: Path) -> int:
    """The batch that a run would go on from."""
    found = read_state(path / CHECKPOINT_FOLDER)
    return 0 if found is None else found[0].step


def in_use(path: Path) -> bool:
    """Whether another process is running the run in a folder."""
    if not (path / LOCK_FILE).exists():
        return False
    lock = Lock(path / LOCK_FILE)
    free = lock.acquire()
    lock.release()
    return not free
