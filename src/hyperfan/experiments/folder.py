"""A run is a folder: ``config.json``, ``env.json``, ``plan.json``, ``metrics.jsonl``, ``checkpoint/``.

Beside them ``time.json``, which is all that differs between two runs of one configuration. Nothing is overwritten
silently, and one process at a time may write.
"""

import contextlib
import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

import hyperfan
from hyperfan.errors import RunError
from hyperfan.experiments import checkpoint
from hyperfan.experiments.checkpoint import State
from hyperfan.experiments.files import Lock, one_line_if_it_fails, read_json, remove_partial, write_json

CONFIG, ENV, METRICS, TIMES = "config.json", "env.json", "metrics.jsonl", "time.json"

Row = Mapping[str, Any]
"""A line of metrics: what kind it is, the step it was taken at, and its values."""


class RunFolder:
    """The folder of one run, locked while it is open.

    Args:
        path: where it is, or will be.
        config: the whole configuration.
        resume: whether to go on with what is there.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], resume: bool) -> None:
        self.path = path
        self._lock = Lock(path / ".lock")
        with one_line_if_it_fails(str(path), "Choose another place with --run-dir"):
            if path.exists() and not path.is_dir():
                raise RunError(f"{path} is a file; a run is a folder: choose another with --run-dir")
            if _holds_something(path):
                if not (path / CONFIG).exists():
                    raise RunError(f"{path} holds files and no {CONFIG}, so it is no run: choose another by --run-dir")
                if not resume:
                    raise RunError(
                        f"{path} exists: --resume goes on with it, --run-dir starts elsewhere; nothing is overwritten"
                    )
            path.mkdir(parents=True, exist_ok=True)
            if not self._lock.acquire():
                raise RunError(f"{path} is in use: another process is running it")
            try:
                self._check(config)
                self._metrics = (path / METRICS).open("ab")
            except BaseException:
                self._lock.release()
                raise

    def _check(self, config: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(config))
        file, env = self.path / CONFIG, self.path / ENV
        if not file.exists():
            write_json(file, wanted)
        found = _read_mapping(file)
        if found != wanted:
            keys = [k for k in {**found, **wanted} if _told(found, k) != _told(wanted, k)]
            told = ", ".join(f"{k} was {_told(found, k)} and is now {_told(wanted, k)}" for k in keys)
            raise RunError(f"{self.path} was started with another configuration: {told}. Use the same, or --run-dir")
        if not env.exists():
            write_json(env, environment())
        remove_partial(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # what could not be written was said when it was tried
            self._metrics.close()
        self._lock.release()

    def other_environment(self) -> str | None:
        """How this environment differs from the one the run was started in, if it does."""
        then, now = _read_mapping(self.path / ENV), environment()
        return ", ".join(f"{k} was {then.get(k)} and is now {now[k]}" for k in now if then.get(k) != now[k]) or None

    def write_plan(self, plan: Any) -> None:
        """What the init wrote."""
        with self._writing("plan.json"):
            write_json(self.path / "plan.json", finite(plan))

    def write_times(self, times: Mapping[str, float]) -> None:
        """How long it took; no result depends on it."""
        with self._writing(TIMES):
            write_json(self.path / TIMES, times)

    def times(self) -> dict[str, float]:
        """What was written before."""
        file = self.path / TIMES
        return _read_mapping(file) if file.exists() else {}

    def record(self, row: Row) -> None:
        """Add a line to the metrics."""
        with self._writing(METRICS):
            self._metrics.write((json.dumps(finite(row), allow_nan=False) + "\n").encode())
            self._metrics.flush()

    def save(self, step: int, done: bool, losses: tuple[float, int], tensors: dict[str, Tensor]) -> None:
        """Checkpoint."""
        with self._writing("the checkpoint"):
            os.fsync(self._metrics.fileno())
            state = State(step, self._metrics.tell(), done, *losses)
            checkpoint.save(self.path / "checkpoint", state, tensors)

    def restore(self) -> tuple[State, dict[str, Tensor]] | None:
        """The last checkpoint, with the metrics as they were at it."""
        with self._writing(f"{METRICS} or the checkpoint"):
            found = checkpoint.load(self.path / "checkpoint")
            if found is None and any(row["step"] > 0 for row in read_metrics(self.path)):
                raise RunError(
                    f"{self.path} has metrics and no checkpoint to go on from: move it away, or start elsewhere with "
                    "--run-dir"
                )
            size = 0 if found is None else found[0].metrics
            if self._metrics.seek(0, os.SEEK_END) < size:
                raise RunError(f"{self.path / METRICS} is shorter than at the last checkpoint: lines were lost")
            self._metrics.truncate(size)
            self._metrics.seek(size)
        return found

    def ending(self) -> Row:
        """The last line of metrics, which says how a run that is over ended."""
        rows = read_metrics(self.path)
        if not rows or rows[-1].get("kind") != "end":
            raise RunError(f"{self.path / METRICS} does not say how the run ended, though it is over: lines were lost")
        return rows[-1]

    def _writing(self, name: str) -> Any:
        remedy = "What was saved before is whole: make room and go on with --resume"
        return one_line_if_it_fails(f"{self.path}: {name}", remedy)


def environment() -> dict[str, Any]:
    """What the results may depend on beside the configuration."""
    return {
        "hyperfan": hyperfan.__version__,
        "code": _code(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "processor": _processor(),
    }


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of a run's metrics; a last line that is being written is left out."""
    file = path / METRICS
    rows = []
    try:
        for line in file.read_bytes().split(b"\n")[:-1]:
            rows.append(json.loads(line))
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    except ValueError as error:
        raise RunError(f"{file} is damaged in line {len(rows) + 1}: {error}") from error
    return rows


def finite(value: Any) -> Any:
    """The same with ``None`` for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value


def _holds_something(path: Path) -> bool:
    """Apart from the lock and what a killed writer left."""
    return path.is_dir() and any(not p.name.startswith(".") for p in path.iterdir())


def _read_mapping(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise RunError(f"{file} is damaged: it should hold names and values")
    return content


def _told(config: Mapping[str, Any], key: str) -> str:
    return repr(config[key]) if key in config else "absent"


def _code() -> str:
    """A checksum of all of the package that a run can depend on, so that runs of different code are told apart."""
    root = Path(hyperfan.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        if not name.startswith(("cli/", "report/")):
            digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
