"""Writing files so that a reader never meets half of one, whatever happens to the writer."""

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from hyperfan.errors import RunError

PARTIAL = ".partial-"


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; what was written there takes its place when all of it is on disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=PARTIAL)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        partial.chmod(0o644)
        os.replace(partial, path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON, all or nothing."""
    with whole(path) as partial:
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON, or say what is wrong with the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error


def remove_partial(folder: Path, prefix: str = PARTIAL) -> None:
    """Remove what a killed writer left behind."""
    for left in folder.glob(f"{prefix}*"):
        left.unlink(missing_ok=True)


@contextlib.contextmanager
def one_line_if_it_fails(what: str, remedy: str) -> Iterator[None]:
    """Turn a failed write into one clear line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        full = full or "No space left" in str(error) or "File too large" in str(error)
        reason = "the disk is full, or a limit on file sizes is reached" if full else str(error)
        raise RunError(f"{what} could not be written: {reason}. {remedy}") from error


class Lock:
    """Held by one process at a time; the system takes it away from one that dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Whether it is ours now."""
        file = self.path.open("ab")
        try:
            _lock(file)
        except BaseException as error:
            file.close()
            if isinstance(error, (BlockingIOError, PermissionError)):  # how Linux and Windows say that it is taken
                return False
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Let others have it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(file: IO[bytes]) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]  # only there on Windows
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_folder(folder: Path) -> None:
    """So that a new name survives a power cut; Windows has no such call."""
    if os.name != "nt":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
