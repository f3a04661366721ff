"""Runs of a sweep on the workers of a Dask cluster, which share the folder of the runs with the sweep.

A worker starts a run's process as the sweep itself would. Dask gives what a lost worker was doing to another one, which
goes on from the checkpoint. A file in the folder is the sweep's heartbeat; when it no longer changes, workers end.
"""

import contextlib
import importlib
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hyperfan
from hyperfan.errors import RunError, first_line
from hyperfan.experiments.environment import fingerprint
from hyperfan.experiments.exit_codes import EXIT_CODES, FAILED
from hyperfan.experiments.sweep.child import Child
from hyperfan.experiments.sweep.table import QUEUE
from hyperfan.files import explain_write_errors
from hyperfan.metrics import Outcome

CONNECT_SECONDS = 10
BEAT_SECONDS, SILENCE_SECONDS = 5.0, 60.0
"""Time between two heartbeats of the sweep, and how long workers go on without one."""
LOST_WORKERS = -1
"""The exit code of a run whose workers died, of which no process has one."""


class Cluster:
    """The workers of the scheduler at an address. All runs are given to Dask at once, which has a queue."""

    slots = sys.maxsize

    def __init__(self, address: str, folders: Sequence[Path]) -> None:
        try:
            self._dask = importlib.import_module("distributed")
        except ImportError as error:
            raise RunError(f"--on {address} needs Dask: pip install 'hyperfan[cluster]'") from error
        self.address = address
        self._root = Path(os.path.commonpath([os.path.abspath(folder.parent) for folder in folders]))
        self._heartbeat = self._root / f".sweep-{uuid.uuid4().hex}"
        self._code = fingerprint()
        self._over = threading.Event()

    def __enter__(self) -> "Cluster":
        try:
            self._client = self._dask.Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise RunError(
                f"--on {self.address}: no Dask scheduler answers there ({first_line(error)}); "
                "'dask scheduler' starts one and prints its address"
            ) from error
        try:
            with explain_write_errors(str(self._root), "Choose a folder that all workers share, with --run-dir"):
                self._root.mkdir(parents=True, exist_ok=True)
                self._heartbeat.write_text("0")
            self._check_workers()
        except BaseException:
            self.__exit__()
            raise
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self._client.close()

    def _check_workers(self) -> None:
        """Raise if there are none, or one that has other code or another folder; later ones are looked at too."""
        found = self._client.run(why_unusable, str(self._heartbeat), self._code, on_error="return")
        if not found:
            raise RunError(f"--on {self.address}: it has no workers; 'dask worker {self.address}' starts one")
        for worker, problem in found.items():
            if isinstance(problem, BaseException):
                problem = f"it cannot import hyperfan of this version ({problem})"
            if problem:
                raise RunError(f"the worker {worker} cannot be used: {problem}")

    def _beat(self) -> None:
        for count in range(sys.maxsize):
            if self._over.wait(BEAT_SECONDS):
                return
            with contextlib.suppress(OSError), self._heartbeat.open("r+") as stream:  # which makes none that is gone
                stream.write(str(count))

    def shortage(self) -> str:
        """What runs wait for, where no worker is left; empty if there is one."""
        workers = self._client.scheduler_info()["workers"]
        return "" if workers else f"no worker is left, 'dask worker {self.address}' starts one"

    def start(self, job: str) -> "ClusterRun":
        """Give a job to the cluster."""
        return ClusterRun(self._client.submit(work, job, str(self._heartbeat), self._code, pure=False))

    def stop(self) -> None:
        """End the heartbeat, without which workers end the runs that are under way."""
        self._over.set()
        with contextlib.suppress(OSError):
            self._heartbeat.unlink(missing_ok=True)


class ClusterRun:
    """A job that was given to the cluster."""

    place = QUEUE

    def __init__(self, future: Any) -> None:
        self._future = future

    def poll(self) -> tuple[int, list[str]] | None:
        """Exit code and lines of its process, if that has ended."""
        status = self._future.status
        if status == "pending":
            return None
        if status == "finished":
            code, lines = self._future.result()
            return int(code), list(lines)
        if status == "error":
            error = self._future.exception()
            if type(error).__name__ == "KilledWorker":
                return LOST_WORKERS, []
            return EXIT_CODES[FAILED], [f"{type(error).__name__}: {error}"]
        return (EXIT_CODES[Outcome.TERMINATED] if status == "cancelled" else LOST_WORKERS), []

    def terminate(self) -> None:
        """Take it back if it waits for a worker; one that is under way ends without the sweep's heartbeat."""
        if not any(self._future.key in keys for keys in self._future.client.processing().values()):
            self.kill()

    def kill(self) -> None:
        """Do not wait for it any longer."""
        self._future.cancel()


# ── on a worker ────────────────────────────────────────────────────────────────────────────────────────────────────


def why_unusable(heartbeat: str, code: str) -> str:
    """What keeps a worker from making the runs of a sweep of this code; empty if nothing does."""
    folder, here = os.path.dirname(heartbeat), fingerprint()
    if here != code:
        return f"it has hyperfan {hyperfan.__version__} of code {here}, and the sweep code {code}: install the same"
    if not os.path.exists(heartbeat):
        return f"it does not see the files in {folder}, which must be shared: name a shared folder with --run-dir"
    if not os.access(folder, os.W_OK):
        return f"it may not write to {folder}: name another folder with --run-dir"
    return ""


def work(job: str, heartbeat: str, code: str) -> tuple[int, list[str]]:
    """Make a run; returns the exit code of its process, and the lines of its standard error."""
    if os.path.exists(os.path.dirname(heartbeat)) and not os.path.exists(heartbeat):  # the sweep is over
        return EXIT_CODES[Outcome.TERMINATED], []
    if problem := why_unusable(heartbeat, code):
        return EXIT_CODES[FAILED], [f"the worker on {socket.gethostname()} cannot be used: {problem}"]
    child, ends, sweep = Child(job), False, Heartbeat(heartbeat)
    while (ended := child.poll()) is None:
        time.sleep(0.2)
        if not ends and not sweep.is_alive():
            child.terminate()
            ends = True
    return ended


class Heartbeat:
    """The heartbeat of a sweep, as a worker sees it: a file that the sweep changes."""

    def __init__(self, file: str) -> None:
        self.file, self.seen, self.since = Path(file), "", time.monotonic()

    def is_alive(self) -> bool:
        """Whether the file is there, and was changed not long ago by this machine's clock."""
        try:
            now = self.file.read_text()
        except FileNotFoundError:
            return False
        except OSError:  # of a network that is down for a moment
            now = self.seen
        if now != self.seen:
            self.seen, self.since = now, time.monotonic()
        return time.monotonic() - self.since < SILENCE_SECONDS
