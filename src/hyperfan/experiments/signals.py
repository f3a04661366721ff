"""SIGTERM, by which schedulers end a program: a run saves a checkpoint, if it can in time, and ends with one line."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 20.0
"""Time from SIGTERM to the end; torchrun, SLURM and Kubernetes kill after 30 s unless told otherwise."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came, and what was to be saved is saved, or there is no time for it."""


class Termination:
    """Whether SIGTERM came. Until a loop defers it, :class:`Terminated` is raised at once."""

    def __init__(self) -> None:
        self.requested = False
        self._deferred = False

    def defer(self) -> None:
        """From now on, only note that SIGTERM came, which a loop looks at between batches."""
        self._deferred = True

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ask the loop to end, for which it has some time."""
        if not self._deferred:
            raise Terminated
        if not self.requested and sys.platform != "win32":
            signal.signal(signal.SIGALRM, _raise)
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        self.requested = True


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def on_sigterm() -> Iterator[Termination]:
    """Handle SIGTERM here; where there are no signals, outside the main thread, it never comes."""
    found = Termination()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = signal.signal(signal.SIGTERM, found.on_signal)
    try:
        yield found
    finally:
        if found.requested and sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, before)
