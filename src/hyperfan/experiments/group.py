"""The processes that train one run: they meet, agree on what they run, and end when one of them is gone.

A process whose connection breaks is noticed by torch. One that is stopped, or whose machine is, is not: so each tells
by a heartbeat in the processes' store that it lives, whatever its training does at the time.
"""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hyperfan.distributed.ranks import first_difference, gather_objects
from hyperfan.errors import HyperfanError, RunError, first_line
from hyperfan.experiments.launch import Launch

MEETING = timedelta(minutes=5)
"""How long processes wait for the others to start."""
COLLECTIVE = timedelta(hours=12)
"""How long they wait for each other in training: while the first one tests, the others are heard of."""
BEAT_SECONDS, SILENCE_SECONDS = 1.0, 15.0
"""Between two heartbeats, and how long there may be none."""
GONE = "gone"
LEFT = b"left"
MAX_REASON = 200
"""Characters of an error that the other processes are told."""
REMEDY = "--resume goes on from the last checkpoint, with any number of ranks"


class Group:
    """This process among those of a run, with its heartbeat."""

    def __init__(self, launch: Launch, backend: str) -> None:
        self.launch = launch
        self._over, self._reporting, self._store_answered = threading.Event(), threading.Lock(), 0.0
        self._met = False
        self._threads = [threading.Thread(target=function, daemon=True) for function in (self._listen, self._watch)]
        names = {"RANK": launch.rank, "WORLD_SIZE": launch.world, "MASTER_ADDR": launch.address}
        for name, value in {**names, "MASTER_PORT": launch.port}.items():
            os.environ.setdefault(name, str(value))  # which srun does not set, and torch reads
        try:
            # The heartbeat has a connection of its own, since a store takes one request at a time.
            self._store, store = (self._connect() for _ in range(2))
            self._beat()
            self._store_answered = time.monotonic()
            for thread in self._threads:
                thread.start()
            self._await_all()
            dist.init_process_group(backend, store=store, rank=launch.rank, world_size=launch.world, timeout=COLLECTIVE)
        except (RuntimeError, ValueError) as error:
            self._reporting.acquire()  # or another thread has it, and is ending this process
            self._over.set()
            raise RunError(
                f"the {launch.world} processes of this run did not meet at {launch.address}:{launch.port}: "
                f"{first_line(error)[:MAX_REASON]}"
            ) from error
        except BaseException:
            self._over.set()
            raise

    def _connect(self) -> Any:
        """The store of the run, once all processes have come to it."""
        from torch.distributed.rendezvous import rendezvous  # which is not there where torch was built without it

        def meet() -> Any:
            store, _, _ = next(rendezvous("env://", self.launch.rank, self.launch.world, timeout=MEETING))
            return store

        return _in_a_thread(meet).result()

    def _await_all(self) -> None:
        """Wait until all have come; one that came and fell silent is noticed meanwhile."""
        until = time.monotonic() + MEETING.total_seconds()
        while missing := [rank for rank in range(self.launch.world) if not last_beat(self._store, rank)]:
            if time.monotonic() > until:
                raise ValueError(f"rank {missing[0]} has not come within {MEETING.total_seconds():.0f} s")
            time.sleep(BEAT_SECONDS / 10)
        self._met = True

    def _beat(self, value: str | bytes | None = None) -> None:
        self._store.set(f"beat/{self.launch.rank}", value or str(time.time()))

    def _listen(self) -> None:
        """Beat, and end this process when another is silent: the first one hears all, the others hear the first."""
        others = range(1, self.launch.world) if self.launch.rank == 0 else [0]
        heard: dict[int, tuple[bytes, float]] = {}
        for now, was_stopped in self._beats():
            if was_stopped:
                heard.clear()
            try:
                self._beat()
                if self._store.check([GONE]):
                    self._end(self._store.get(GONE).decode())
                for rank in others:
                    value = last_beat(self._store, rank)
                    if not value and not self._met:
                        continue
                    if rank not in heard or heard[rank][0] != value or value == LEFT:
                        heard[rank] = value, now
                    elif now - heard[rank][1] > SILENCE_SECONDS:
                        self._end(_silent(rank))
            except RuntimeError:
                self._end("rank 0 is gone")
            self._store_answered = time.monotonic()

    def _watch(self) -> None:
        """End this process when the store does not answer at all, as when the process that holds it is stopped."""
        for now, was_stopped in self._beats():
            if was_stopped:
                self._store_answered = now
            elif now - self._store_answered > SILENCE_SECONDS:
                self._end(_silent(0), report=False)

    def _beats(self) -> Iterator[tuple[float, bool]]:
        """The time of each beat, until the group is left, and whether this process was stopped before it."""
        before = time.monotonic()
        while not self._over.wait(BEAT_SECONDS):
            now = time.monotonic()
            yield now, now - before > BEAT_SECONDS + SILENCE_SECONDS / 2
            before = time.monotonic()

    def _end(self, reason: str, *, report: bool = True) -> None:
        """End this process at once, since its training may wait for what never comes; its folder survives that."""
        if self._over.is_set() or not self._reporting.acquire(blocking=False):
            return
        if report:
            self._report(reason)
        sys.stderr.write(f"hyperfan: {reason}: {REMEDY}\n")
        sys.stderr.flush()
        if report:
            with contextlib.suppress(RuntimeError):
                self._await_others()
        os._exit(2)

    def _report(self, reason: str) -> None:
        """Tell the others why they will end, unless another process has told them before."""
        with contextlib.suppress(RuntimeError):
            self._store.compare_set(GONE, "", reason)

    def why_lost(self) -> str:
        """Why torch lost a connection: which process is gone, if that becomes known."""
        self._reporting.acquire()
        found = ["the connection to another rank was lost"]

        def look() -> None:
            for _ in range(4):
                if self._store.check([GONE]):
                    found.append(self._store.get(GONE).decode())
                    break
                time.sleep(BEAT_SECONDS / 2)

        _within(SILENCE_SECONDS, look)
        return found[-1]

    def leave(self, reason: str | None = None) -> None:
        """Leave the group at the end of training, or for a reason, which ends the others."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * BEAT_SECONDS)

        def report() -> None:
            if reason is not None:
                self._report(f"rank {self.launch.rank} has ended: {reason}")
            self._beat(LEFT)
            self._await_others()

        _within(SILENCE_SECONDS, report)
        if dist.is_initialized():
            dist.destroy_process_group()

    def _await_others(self) -> None:
        """Let the others leave before the first one, whose store may end with it."""
        until = time.monotonic() + 2 * BEAT_SECONDS
        others = range(1, self.launch.world) if self.launch.rank == 0 else ()
        while time.monotonic() < until and any(last_beat(self._store, rank) != LEFT for rank in others):
            time.sleep(BEAT_SECONDS / 10)


def last_beat(store: Any, rank: int) -> bytes:
    """What a process said last, empty before its first beat, for which a store would wait."""
    name = f"beat/{rank}"
    return bytes(store.get(name)) if store.check([name]) else b""


def _in_a_thread(call: Callable[[], Any]) -> "Future[Any]":
    """Call what waits outside of Python, where no signal would be handled: SIGTERM and Ctrl-C end ``.result()``."""
    returned: Future[Any] = Future()

    def work() -> None:
        try:
            returned.set_result(call())
        except BaseException as error:
            returned.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return returned


def _within(seconds: float, call: Callable[[], None]) -> None:
    """Talk to the store, but not for long: the process that holds it may be stopped, or gone."""
    with contextlib.suppress(RuntimeError, TimeoutError):
        _in_a_thread(call).result(seconds)


_joined: list[Group] = []
"""The group of this process, if it is in one; torch has one too."""


def join(launch: Launch, backend: str) -> None:
    """Join the group of processes, once."""
    if launch.world > 1 and not _joined:
        _joined.append(Group(launch, backend))


def leave(reason: str | None = None) -> None:
    """Leave the group of processes, if this process is in one."""
    while _joined:
        _joined.pop().leave(reason)


@contextlib.contextmanager
def membership() -> Iterator[None]:
    """Tell the others that this process has left, whatever happens inside."""
    try:
        yield
    except HyperfanError as error:
        leave(str(error))
        raise
    except RuntimeError as error:
        if not _joined or not _is_lost_connection(error):
            leave(f"{type(error).__name__} {first_line(error)[:MAX_REASON]}")
            raise
        reason = _joined[0].why_lost()
        leave(reason)
        raise RunError(f"{reason}: {REMEDY}") from error
    except BaseException as error:
        leave(type(error).__name__)
        raise
    leave()


def agree(values: Mapping[str, Any]) -> None:
    """Raise, in all processes of the group, if one of them has other values than the first one."""
    rank, differences = first_difference(gather_objects(dict(values)))
    if differences:
        leave()  # without a reason, as all raise the same
        seen = ", ".join(f"{key} is {a!r} in rank 0 and {b!r} here" for key, (a, b) in differences.items())
        raise RunError(f"rank {rank} has another run: {seen}. Start all ranks with the same options, data and code")


def _silent(rank: int) -> str:
    return f"rank {rank} has not been heard of for {SILENCE_SECONDS:.0f} s"


def _is_lost_connection(error: RuntimeError) -> bool:
    """Whether a collective failed, as it does when another process is gone; gloo has no error of its own."""
    if isinstance(error, dist.DistError):
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    raised_by = str(frame.f_globals.get("__name__"))
    return raised_by.startswith("torch.distributed") and ("gloo" in str(error) or "Connection" in str(error))
