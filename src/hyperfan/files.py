"""Atomic writes, JSON, tensors and locks: a reader never meets half a file, whatever happens to the writer."""

import contextlib
import errno
import hashlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hyperfan.errors import HyperfanError, RunError

if TYPE_CHECKING:
    from torch import Tensor

PARTIAL_PREFIX = ".partial-"
INTEGER_DIGITS = 300
"""Digits of the longest integer in a JSON file; longer ones have no float64."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to, which replaces ``path`` when all of it is on disk."""
    with temporary_file(path.parent) as partial:
        yield partial
        replace_file(partial, path)


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """A new file in a folder, which is removed in the end if it was not moved."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=PARTIAL_PREFIX)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def replace_file(partial: Path, path: Path) -> None:
    """Move a file to another path in its folder, when all of it is on disk."""
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    partial.chmod(0o644)
    os.replace(partial, path)
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically; NaN and infinity are errors (see :func:`finite_or_none`)."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, or raise with the reason why it cannot be read."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; numbers beyond those of float64, as 10^400, and nesting beyond Python's limit are a ValueError."""
    try:
        return json.loads(text, parse_int=_int_within_float64, parse_float=_finite_float)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _int_within_float64(digits: str) -> int:
    if len(digits) > INTEGER_DIGITS:
        raise ValueError(f"the number {digits[:8]}…, of {len(digits)} digits, is too large")
    return int(digits)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Write tensors in the format of safetensors, not atomically; what keeps it from that is an OSError."""
    from safetensors import SafetensorError  # when something is saved, not when hyperfan is imported
    from safetensors.torch import save_file

    try:
        save_file({name: t.detach().contiguous().cpu() for name, t in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Read tensors into memory; what keeps it from that, as a damaged file, is an OSError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return {name: t.clone() for name, t in load_file(path).items()}  # since the file is memory-mapped
    except SafetensorError as error:
        raise OSError(str(error)) from error


def checksum(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def finite_or_none(value: Any) -> Any:
    """Replace numbers that JSON does not have, NaN and infinity, by ``None``, inside lists and mappings too.

    >>> finite_or_none({"loss": [1.5, float("nan")]})
    {'loss': [1.5, None]}
    """
    return _map_floats(value, lambda x: x if math.isfinite(x) else None)


def rounded(value: Any, digits: int) -> Any:
    """Round every float to so many significant digits, inside lists and mappings too.

    >>> rounded({"loss": [0.123456789, None, 7]}, 5)
    {'loss': [0.12346, None, 7]}
    """
    return _map_floats(value, lambda x: float(f"{x:.{digits}g}"))


def _map_floats(value: Any, function: Callable[[float], float | None]) -> Any:
    if isinstance(value, float):
        return function(value)
    if isinstance(value, Mapping):
        return {k: _map_floats(v, function) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_floats(v, function) for v in value]
    return value


def remove_partial(folder: Path, prefix: str = PARTIAL_PREFIX) -> None:
    """Remove temporary files that a killed writer left behind."""
    for left in folder.glob(f"{prefix}*"):
        left.unlink(missing_ok=True)


@contextlib.contextmanager
def explain_write_errors(target: str, remedy: str, kind: type[HyperfanError] = RunError) -> Iterator[None]:
    """Turn a failed write into an error of this kind, of one line that ends with the remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        full = full or "No space left" in str(error) or "File too large" in str(error)
        reason = "the disk is full, or a limit on file sizes is reached" if full else str(error)
        raise kind(f"{target} could not be written: {reason}. {remedy}") from error


class Lock:
    """A lock file that one process at a time holds; the system takes it away from one that dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Try to take the lock; returns whether this process holds it now."""
        file = self.path.open("ab")
        try:
            _lock(file)
        except BaseException as error:
            file.close()
            if isinstance(error, (BlockingIOError, PermissionError)):  # taken, on Linux and on Windows
                return False
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(file: IO[bytes]) -> None:
    if sys.platform == "win32":  # in words that type checkers know, as the module is only there on Windows
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_folder(folder: Path) -> None:
    """Flush a folder, so that a new name survives a power cut; Windows has no such call."""
    if os.name != "nt":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
