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

    def start(self, job: str) -> Child:
        """Start a job."""
        return Child(job)

    def stop(self) -> None:
        """Nothing but processes, which are asked one by one."""


def _cores() -> int:
    """The number of cores that this process may use, as far as the system knows."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
