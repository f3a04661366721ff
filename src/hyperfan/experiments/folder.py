"""A run is a folder: ``config.json``, ``env.json``, ``plan.json``, ``metrics.jsonl``, ``checkpoint/``, ``time.json``.

Only ``time.json`` differs between two runs of one configuration. Nothing is overwritten silently, and one process at a
time may write. A process killed at any instant leaves the last checkpoint intact: its ``state.json`` names the file
with the tensors, which is complete before it is named. It also ties the folder together: it has the checksums of the
tensors and of the metrics so far, the configuration, the number of ranks, and a checksum of all these.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.experiments.environment import COMMIT, commit, environment
from hyperfan.experiments.experiment import Configuration
from hyperfan.files import (
    Lock,
    atomic_write,
    checksum,
    explain_write_errors,
    finite_or_none,
    read_json,
    read_tensors,
    remove_partial,
    write_json,
    write_tensors,
)
from hyperfan.metrics import METRICS_FILE, Row, read_metrics

CONFIG_FILE, ENV_FILE, PLAN_FILE, TIMES_FILE = "config.json", "env.json", "plan.json", "time.json"
STATE, CHECKPOINT_FOLDER, LOCK_FILE = "state.json", "checkpoint", ".lock"
SAFETENSORS_PREFIX = ".tmp"
"""The beginning of the names of safetensors' temporary files."""


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Args:
        step: batches trained.
        metrics: bytes of ``metrics.jsonl`` written by then.
        done: whether the run is over.
        loss_sum, loss_count: training losses since the last line of metrics.
        ranks: processes that shared the last batch.
        metrics_sha256: checksum of these bytes of ``metrics.jsonl``.
        config: the content of ``config.json``.
    """

    step: int
    metrics: int
    done: bool
    loss_sum: float
    loss_count: int
    ranks: int
    metrics_sha256: str
    config: Mapping[str, Any]


@contextlib.contextmanager
def open_run(path: Path, config: Configuration, resume: bool) -> Iterator["RunFolder"]:
    """The folder of a run, locked while it is open. A run that is there must have the same configuration."""
    lock, explained = Lock(path / LOCK_FILE), explain_write_errors(str(path), "Choose another place with --run-dir")
    with contextlib.ExitStack() as held:
        with explained:
            check_place(path, resume)
            path.mkdir(parents=True, exist_ok=True)
            if not lock.acquire():
                raise InUseError(f"{path} is in use: another process is running it")
            held.callback(lock.release)
            _check_configuration(path / CONFIG_FILE, config)
            if not (path / ENV_FILE).exists():
                write_json(path / ENV_FILE, {**environment(config.experiment), COMMIT: commit()})
            remove_partial(path)
            metrics = (path / METRICS_FILE).open("ab")
        try:
            yield RunFolder(path, config, metrics)
        finally:
            with contextlib.suppress(OSError):  # a failed write was reported when it was tried
                metrics.close()


class InUseError(RunError):
    """Another process holds the folder of a run."""


class RunFolder:
    """The folder of one run, in which this process alone writes."""

    def __init__(self, path: Path, config: Configuration, metrics: IO[bytes]) -> None:
        self.path, self._config, self._metrics = path, config, metrics
        self._written = hashlib.sha256()
        """The checksum of the metrics."""

    def other_environment(self) -> str:
        """How this environment differs from the one the run was started in; empty if it does not."""
        then, now = _read_mapping(self.path / ENV_FILE), environment(self._config.experiment)
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
            line = (json.dumps(finite_or_none(row), allow_nan=False) + "\n").encode()
            self._metrics.write(line)
            self._metrics.flush()
            self._written.update(line)

    def save(
        self, step: int, done: bool, losses: tuple[float, int], tensors: dict[str, Tensor], ranks: int = 1
    ) -> None:
        """Replace the checkpoint by this one."""
        with self._writing("the checkpoint"):
            os.fsync(self._metrics.fileno())
            folder = self.path / CHECKPOINT_FOLDER
            folder.mkdir(exist_ok=True)
            # A run that diverges ends at a step that it may have saved before: these must not share a name, since the
            # state may name the earlier one still.
            file = folder / f"step-{step}{'-end' if done else ''}.safetensors"
            with atomic_write(file) as partial:
                write_tensors(partial, tensors)
            digest, config = self._written.hexdigest(), self._config.to_dict()
            state = State(step, self._metrics.tell(), done, *losses, ranks, digest, config)
            content = {**asdict(state), "tensors": file.name, "sha256": checksum(file)}
            write_json(folder / STATE, {**content, "check": _check(content)})
            _remove_others(folder, file)

    def restore(self) -> tuple[State, dict[str, Tensor]] | None:
        """Read the last checkpoint, and cut the metrics back to where they were then."""
        with self._writing(f"{METRICS_FILE} or the checkpoint"):
            found = load_checkpoint(self.path / CHECKPOINT_FOLDER)
            if found is None and any(row["step"] > 0 for row in read_metrics(self.path)):
                raise RunError(
                    f"{self.path} has metrics and no checkpoint to go on from: move it away, or start elsewhere with "
                    "--run-dir"
                )
            size = 0
            if found is not None:
                state, size = found[0], found[0].metrics
                _check_state(self.path, state, self._config)
                self._written = _check_metrics(self.path, state)
            self._metrics.truncate(size)
            self._metrics.seek(size)
        return found

    def end(self) -> Row:
        """The last line of metrics of a run that is over: its outcome."""
        return read_metrics(self.path)[-1]

    def _writing(self, name: str) -> Any:
        remedy = "What was saved before is intact: make room and go on with --resume"
        return explain_write_errors(f"{self.path}: {name}", remedy)


def load_checkpoint(folder: Path) -> tuple[State, dict[str, Tensor]] | None:
    """Read the checkpoint in the folder, if there is one."""
    remove_partial(folder)
    remove_partial(folder, SAFETENSORS_PREFIX)
    found = read_state(folder)
    if found is None:
        return None
    state, file, digest = found
    try:
        if checksum(file) != digest:
            raise RunError(f"{file} is damaged: its checksum is not the one in {STATE}")
        tensors = read_tensors(file)
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    _remove_others(folder, file)
    return state, tensors


def verify(path: Path, config: Configuration) -> None:
    """Raise if configuration and metrics in a run's folder are not those of its checkpoint, if it has one."""
    found = read_state(path / CHECKPOINT_FOLDER)
    if found is not None:
        _check_state(path, found[0], config)
        _check_metrics(path, found[0])


def has_checkpoint(path: Path) -> bool:
    """Whether there is a checkpoint in a run's folder."""
    return (path / CHECKPOINT_FOLDER / STATE).exists()


def read_state(folder: Path) -> tuple[State, Path, str] | None:
    """The state in the folder of a checkpoint, if there is one, with the file of its tensors and their checksum."""
    if not (folder / STATE).exists():
        return None
    content: dict[str, Any] = read_json(folder / STATE)
    try:
        if content.pop("check") != _check(content):
            raise RunError(f"{folder / STATE} is damaged: it does not match its checksum")
        file, digest = folder / Path(content.pop("tensors")).name, content.pop("sha256")
        return State(**content), file, digest
    except (AttributeError, KeyError, TypeError) as error:
        raise RunError(f"{folder / STATE} is not the state of a checkpoint: {error}") from error


def _check_state(path: Path, state: State, config: Configuration) -> None:
    """Raise if a checkpoint was saved under another configuration."""
    if changes := _changes(state.config, config):
        raise RunError(
            f"the checkpoint in {path} is that of another run: {changes}. Put back its own, or start with --run-dir"
        )


def _check_metrics(path: Path, state: State) -> "hashlib._Hash":
    """The checksum of the metrics up to a checkpoint; raises if they are not as they were then."""
    file, content = path / METRICS_FILE, b""
    try:
        with file.open("rb") as stream:
            content = stream.read(state.metrics)
    except FileNotFoundError:
        pass  # all lines were lost
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    if len(content) < state.metrics:
        raise RunError(f"{file} is shorter than at the last checkpoint: lines were lost")
    digest = hashlib.sha256(content)
    if digest.hexdigest() != state.metrics_sha256:
        raise RunError(
            f"{file} was changed: it does not match the checksum in {STATE}. Put back what the run "
            "wrote, or start anew with --run-dir"
        )
    return digest


def _remove_others(folder: Path, file: Path) -> None:
    """Remove the tensors of earlier checkpoints, as a process leaves that is killed after writing this one."""
    for other in folder.glob("step-*.safetensors"):
        if other != file:
            other.unlink()


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_place(path: Path, resume: bool) -> None:
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
    """Write the configuration, or raise if another is there."""
    if not file.exists():
        write_json(file, config.to_dict())
    if changes := _changes(_read_mapping(file), config):
        raise RunError(f"{file.parent} was started with another configuration: {changes}. Use the same, or --run-dir")


def _changes(stored: Mapping[str, Any], config: Configuration) -> str:
    """Which values differ, for people; empty if none does. What was stored before a field existed had its default."""
    then, now = {**type(config)().to_dict(), **stored}, config.to_dict()
    texts = [{key: repr(value) for key, value in values.items()} for values in (then, now)]
    old, new = ({key: text.get(key, "absent") for key in {**then, **now}} for text in texts)
    return ", ".join(f"{key} was {old[key]} and is now {new[key]}" for key in old if old[key] != new[key])


def _read_mapping(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise RunError(f"{file} is damaged: it should hold names and values")
    return content
