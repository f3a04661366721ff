"""Runs of a sweep as processes on this machine."""

import os
import sys

from hyperfan.experiments.sweep.child import Child


class Local:
    """Runs as processes of this machine, by default as many at once as there are cores for."""

    def __init__(self, jobs: int | None, threads: int) -> None:
        self.slots = jobs or max(_cores() // threads, 1)

    def __enter__(self) -> "Local":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def shortage(self) -> str:
        """Nothing that runs wait for: this machine is there."""
        return ""

    def start(self, job: str) -> "LocalRun":
        """Start a job."""
        return LocalRun(Child(job))

    def stop(self) -> None:
        """Nothing but processes, which are asked one by one."""


class LocalRun:
    """A job that was started."""

    place = "here"

    def __init__(self, child: Child) -> None:
        self._child = child

    def poll(self) -> tuple[int, list[str]] | None:
        """Exit code and lines of its process, if that has ended."""
        code = self._child.poll()
        return None if code is None else (code, self._child.close())

    def terminate(self) -> None:
        """Let it save and end."""
        self._child.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()


def _cores() -> int:
    """The number of cores that this process may use, as far as the system knows."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
