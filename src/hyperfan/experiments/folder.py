"""A run is a folder: ``config.json``, ``env.json``, ``plan.json``, ``metrics.jsonl``, ``checkpoint/``, ``time.json``.

Only ``time.json`` differs between two runs of one configuration. Nothing is overwritten silently, and one process at a
time may write.
"""

import contextlib
import hashlib
import json
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
from hyperfan.files import Lock, explain_write_errors, finite_or_none, read_json, remove_partial, write_json
from hyperfan.metrics import METRICS_FILE, Row, is_over, read_metrics

CONFIG_FILE, ENV_FILE, PLAN_FILE, TIMES_FILE = "config.json", "env.json", "plan.json", "time.json"
READERS = {"cli", "report", "results", "claims"}
"""Rooms, folders and modules that only read finished runs."""


class RunFolder:
    """The folder of one run, locked while it is open.

    Args:
        path: where it is, or will be.
        config: all of the configuration.
        resume: whether to go on with a run that is there.
        defaults: of fields that a configuration written by an earlier version may lack.
    """

    def __init__(
        self, path: Path, config: Mapping[str, Any], resume: bool, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.path = path
        self._lock = Lock(path / ".lock")
        with explain_write_errors(str(path), "Choose another place with --run-dir"):
            if path.exists() and not path.is_dir():
                raise RunError(f"{path} is a file; a run is a folder: choose another with --run-dir")
            if _holds_something(path):
                if not (path / CONFIG_FILE).exists():
                    raise RunError(
                        f"{path} holds files and no {CONFIG_FILE}, so it is no run: choose another by --run-dir"
                    )
                if not resume:
                    raise RunError(
                        f"{path} exists: --resume goes on with it, --run-dir starts elsewhere; nothing is overwritten"
                    )
            path.mkdir(parents=True, exist_ok=True)
            if not self._lock.acquire():
                raise RunError(f"{path} is in use: another process is running it")
            try:
                self._check(config, defaults or {})
                self._metrics = (path / METRICS_FILE).open("ab")
            except BaseException:
                self._lock.release()
                raise

    def _check(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(config))
        file, env = self.path / CONFIG_FILE, self.path / ENV_FILE
        if not file.exists():
            write_json(file, wanted)
        found = {**defaults, **_read_mapping(file)}
        if found != wanted:
            keys = [k for k in {**found, **wanted} if _value(found, k) != _value(wanted, k)]
            changes = ", ".join(f"{k} was {_value(found, k)} and is now {_value(wanted, k)}" for k in keys)
            raise RunError(f"{self.path} was started with another configuration: {changes}. Use the same, or --run-dir")
        if not env.exists():
            write_json(env, environment())
        remove_partial(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a failed write was reported when it was tried
            self._metrics.close()
        self._lock.release()

    def other_environment(self) -> str | None:
        """How this environment differs from the one the run was started in, if it does."""
        then, now = _read_mapping(self.path / ENV_FILE), environment()
        return ", ".join(f"{k} was {then.get(k)} and is now {now[k]}" for k in now if then.get(k) != now[k]) or None

    def write_plan(self, plan: Any) -> None:
        """Write what the init wrote into the net."""
        with self._writing(PLAN_FILE):
            write_json(self.path / PLAN_FILE, finite_or_none(plan))

    def write_times(self, times: Mapping[str, float]) -> None:
        """Write how long each part of the run took; no result depends on it."""
        with self._writing(TIMES_FILE):
            write_json(self.path / TIMES_FILE, times)

    def times(self) -> dict[str, float]:
        """The times that were written before."""
        file = self.path / TIMES_FILE
        return _read_mapping(file) if file.exists() else {}

    def record(self, row: Row) -> None:
        """Add a line to the metrics."""
        with self._writing(METRICS_FILE):
            self._metrics.write((json.dumps(finite_or_none(row), allow_nan=False) + "\n").encode())
            self._metrics.flush()

    def save(self, step: int, done: bool, losses: tuple[float, int], tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint."""
        with self._writing("the checkpoint"):
            os.fsync(self._metrics.fileno())
            state = State(step, self._metrics.tell(), done, *losses)
            checkpoint.save(self.path / "checkpoint", state, tensors)

    def restore(self) -> tuple[State, dict[str, Tensor]] | None:
        """Read the last checkpoint, and cut the metrics back to where they were then."""
        with self._writing(f"{METRICS_FILE} or the checkpoint"):
            found = checkpoint.load(self.path / "checkpoint")
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


def environment() -> dict[str, Any]:
    """Everything beside the configuration that results may depend on."""
    return {
        "hyperfan": hyperfan.__version__,
        "code": fingerprint(Path(hyperfan.__file__).parent),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "processor": _processor(),
    }


def _holds_something(path: Path) -> bool:
    """Whether a folder has files apart from the lock and what a killed writer left."""
    return path.is_dir() and any(not p.name.startswith(".") for p in path.iterdir())


def _read_mapping(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise RunError(f"{file} is damaged: it should hold names and values")
    return content


def _value(config: Mapping[str, Any], key: str) -> str:
    return repr(config[key]) if key in config else "absent"


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
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
