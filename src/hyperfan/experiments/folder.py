"""A run is a folder: ``config.json``, ``env.json``, ``plan.json``, ``metrics.jsonl``, ``checkpoint/``, ``time.json``.

Only ``time.json`` differs between two runs of one configuration. Nothing is overwritten silently, and one process at a
time may write. A process killed at any instant leaves the last checkpoint intact: its ``state.json`` names the file
with the tensors, which is complete before it is named.
"""

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import hyperfan
from hyperfan.errors import RunError
from hyperfan.experiments.experiment import Configuration
from hyperfan.files import (
    Lock,
    atomic_write,
    explain_write_errors,
    finite_or_none,
    read_json,
    remove_partial,
    write_json,
)
from hyperfan.metrics import METRICS_FILE, Row, is_over, read_metrics

CONFIG_FILE, ENV_FILE, PLAN_FILE, TIMES_FILE = "config.json", "env.json", "plan.json", "time.json"
STATE = "state.json"
SAFETENSORS_PREFIX = ".tmp"
"""Of the temporary files of safetensors."""
READERS = {"cli", "report", "results", "claims"}
"""Rooms, folders and modules that only read finished runs."""


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Args:
        step: batches trained.
        metrics: bytes of ``metrics.jsonl`` written by then.
        done: whether the run is over.
        loss_sum, loss_count: training losses since the last line of metrics.
    """

    step: int
    metrics: int
    done: bool
    loss_sum: float
    loss_count: int


@contextlib.contextmanager
def open_run(path: Path, config: Configuration, resume: bool) -> Iterator["RunFolder"]:
    """The folder of a run, locked while it is open. A run that is there must have the same configuration."""
    lock, explained = Lock(path / ".lock"), explain_write_errors(str(path), "Choose another place with --run-dir")
    with contextlib.ExitStack() as held:
        with explained:
            _check_place(path, resume)
            path.mkdir(parents=True, exist_ok=True)
            if not lock.acquire():
                raise RunError(f"{path} is in use: another process is running it")
            held.callback(lock.release)
            _check_configuration(path / CONFIG_FILE, config)
            if not (path / ENV_FILE).exists():
                write_json(path / ENV_FILE, environment())
            remove_partial(path)
            metrics = (path / METRICS_FILE).open("ab")
        try:
            yield RunFolder(path, metrics)
        finally:
            with contextlib.suppress(OSError):  # a failed write was reported when it was tried
                metrics.close()


class RunFolder:
    """The folder of one run, in which this process alone writes."""

    def __init__(self, path: Path, metrics: IO[bytes]) -> None:
        self.path, self._metrics = path, metrics

    def other_environment(self) -> str:
        """How this environment differs from the one the run was started in; empty if it does not."""
        then, now = _read_mapping(self.path / ENV_FILE), environment()
        return ", ".join(f"{k} was {then.get(k)} and is now {now[k]}" for k in now if then.get(k) != now[k])

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        with self._writing(name):
            write_json(self.path / name, finite_or_none(content))

    def times(self) -> dict[str, float]:
        """How long each part of the run took so far; no result depends on it."""
        file = self.path / TIMES_FILE
        return _read_mapping(file) if file.exists() else {}

    def record(self, row: Row) -> None:
        """Add a line to the metrics."""
        with self._writing(METRICS_FILE):
            self._metrics.write((json.dumps(finite_or_none(row), allow_nan=False) + "\n").encode())
            self._metrics.flush()

    def save(self, step: int, done: bool, losses: tuple[float, int], tensors: dict[str, Tensor]) -> None:
        """Replace the checkpoint by this one."""
        with self._writing("the checkpoint"):
            os.fsync(self._metrics.fileno())
            folder = self.path / "checkpoint"
            folder.mkdir(exist_ok=True)
            file = folder / f"step-{step}.safetensors"
            with atomic_write(file) as partial:
                try:
                    save_file({name: t.detach().contiguous().cpu() for name, t in tensors.items()}, partial)
                except SafetensorError as error:
                    raise OSError(str(error)) from error
            state = State(step, self._metrics.tell(), done, *losses)
            content = {**asdict(state), "tensors": file.name, "sha256": _digest(file)}
            write_json(folder / STATE, {**content, "check": _check(content)})
            _remove_others(folder, file)

    def restore(self) -> tuple[State, dict[str, Tensor]] | None:
        """Read the last checkpoint, and cut the metrics back to where they were then."""
        with self._writing(f"{METRICS_FILE} or the checkpoint"):
            found = load_checkpoint(self.path / "checkpoint")
            if found is None and any(row["step"] > 0 for row in read_metrics(self.path)):
                raise RunError(
                    f"{self.path} has metrics and no checkpoint to go on from: move it away, or start elsewhere with "
                    "--run-dir"
                )
            size = 0 if found is None else found[0].metrics
            if self._metrics.seek(0, os.SEEK_END) < size:
                raise RunError(f"{self.path / METRICS_FILE} is shorter than at the last checkpoint: lines were lost")
            self._metrics.truncate(size)
            self._metrics.seek(size)
        return found

    def end(self) -> Row:
        """The last line of metrics of a run that is over: its outcome."""
        rows = read_metrics(self.path)
        if not is_over(rows):
            raise RunError(
                f"{self.path / METRICS_FILE} does not say how the run ended, though it is over: lines were lost"
            )
        return rows[-1]

    def _writing(self, name: str) -> Any:
        remedy = "What was saved before is intact: make room and go on with --resume"
        return explain_write_errors(f"{self.path}: {name}", remedy)


def load_checkpoint(folder: Path) -> tuple[State, dict[str, Tensor]] | None:
    """Read the checkpoint in the folder, if there is one."""
    remove_partial(folder)
    remove_partial(folder, SAFETENSORS_PREFIX)
    if not (folder / STATE).exists():
        return None
    content: dict[str, Any] = read_json(folder / STATE)
    try:
        if content.pop("check") != _check(content):
            raise RunError(f"{folder / STATE} is damaged: it does not match its checksum")
        file, digest = folder / Path(content.pop("tensors")).name, content.pop("sha256")
        state = State(**content)
    except (AttributeError, KeyError, TypeError) as error:
        raise RunError(f"{folder / STATE} is not the state of a checkpoint: {error}") from error
    try:
        if _digest(file) != digest:
            raise RunError(f"{file} is damaged: its checksum is not the one in {STATE}")
        tensors = {name: t.clone() for name, t in load_file(file).items()}  # copied, since the file is memory-mapped
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    _remove_others(folder, file)
    return state, tensors


def _remove_others(folder: Path, file: Path) -> None:
    """Remove the tensors of earlier checkpoints, as a process leaves that is killed after writing this one."""
    for other in folder.glob("step-*.safetensors"):
        if other != file:
            other.unlink()


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_place(path: Path, resume: bool) -> None:
    """Raise if a run may not be written there."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; a run is a folder: choose another with --run-dir")
    # Apart from the lock and what a killed writer left.
    if path.exists() and any(not p.name.startswith(".") for p in path.iterdir()):
        if not (path / CONFIG_FILE).exists():
            raise RunError(f"{path} holds files and no {CONFIG_FILE}, so it is no run: choose another by --run-dir")
        if not resume:
            raise RunError(
                f"{path} exists: --resume goes on with it, --run-dir starts elsewhere; nothing is overwritten"
            )


def _check_configuration(file: Path, config: Configuration) -> None:
    """Write the configuration, or raise if another is there; one from before a field existed had its default."""
    wanted = config.to_dict()
    if not file.exists():
        write_json(file, wanted)
    found = {**type(config)().to_dict(), **_read_mapping(file)}
    if found != wanted:
        texts = [{key: repr(value) for key, value in values.items()} for values in (found, wanted)]
        old, new = ({key: text.get(key, "absent") for key in {**found, **wanted}} for text in texts)
        changes = ", ".join(f"{key} was {old[key]} and is now {new[key]}" for key in old if old[key] != new[key])
        raise RunError(f"{file.parent} was started with another configuration: {changes}. Use the same, or --run-dir")


def _read_mapping(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise RunError(f"{file} is damaged: it should hold names and values")
    return content


def environment() -> Mapping[str, Any]:
    """Everything beside the configuration that results may depend on."""
    return {
        "hyperfan": hyperfan.__version__,
        "code": fingerprint(Path(hyperfan.__file__).parent),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "processor": _processor(),
    }


def fingerprint(root: Path) -> str:
    """A checksum of all code under the package's root that can change the numbers of a run.

    That is every module but those that only read finished runs (:data:`READERS`); no module that trains may import one
    of them, which a contract on imports checks.
    """
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        if not READERS & {*name.parent.parts, name.stem}:
            digest.update(name.as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
