"""Many runs, some of them side by side, each in a separate process."""

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from rich.console import Console

from hyperfan.errors import HyperfanError
from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.loop import run
from hyperfan.experiments.progress import Lines
from hyperfan.experiments.results.write import PAGE_FILE, write_summary
from hyperfan.metrics import Outcome

FAILED = "failed"
"""How the outcome begins of a run that an error kept from one; the error follows."""


@dataclass(frozen=True)
class Ended:
    """The outcome of one run of many, or the error that kept it from one."""

    path: Path
    outcome: str


def sweep(
    runs: Mapping[Path, Configuration],
    jobs: int | None = None,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    summarise: Callable[[Path], Any] = write_summary,
) -> list[Ended]:
    """Run all of them, until Ctrl-C. One that fails is reported and does not keep the others from running.

    Args:
        runs: the configuration of the run in each folder, in the order they are started.
        jobs: how many at once; by default as many as there are cores for.
        data_dir, resume: as for one run.
        summarise: called with the folder of every run that is over.
    """
    threads = max((config.threads for config in runs.values()), default=1)
    jobs = jobs or max(_cores() // threads, 1)
    # Spawned, because torch's threads do not survive a fork; and one run each, so that none inherits another's memory.
    context = multiprocessing.get_context("spawn")
    waiting = deque(runs.items())
    log = _log("")
    under_way: dict[Connection, tuple[Path, SpawnProcess]] = {}
    ended = []
    try:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                path, config = waiting.popleft()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_run_one, args=(sender, config, path, data_dir, resume, summarise))
                process.start()
                log(f"started {len(runs) - len(waiting)} of {len(runs)}: {config.title}")
                sender.close()  # the process has its own; when that closes, it is over
                under_way[receiver] = path, process
            for receiver in [r for r in connection.wait(list(under_way)) if isinstance(r, Connection)]:
                path, process = under_way.pop(receiver)
                ended.append(Ended(path, _outcome(receiver, process)))
    except KeyboardInterrupt:
        for receiver, (path, process) in under_way.items():  # each was interrupted too, and stops cleanly
            ended.append(Ended(path, _outcome(receiver, process)))
    return ended


def _outcome(receiver: Connection, process: SpawnProcess) -> str:
    """Wait for the outcome that a process sends, and for its end."""
    try:
        outcome: str = receiver.recv()
    except EOFError:
        process.join()
        return f"{FAILED}: its process died with exit code {process.exitcode}"
    finally:
        receiver.close()
    process.join()
    return outcome


def _run_one(
    sender: Connection,
    config: Configuration,
    path: Path,
    data_dir: Path | None,
    resume: bool,
    summarise: Callable[[Path], Any],
) -> None:
    log = _log(f"{config.title}: ")
    try:
        outcome = run(config, path, Lines(log), data_dir=data_dir, resume=resume)
        if outcome != Outcome.STOPPED and not (path / PAGE_FILE).exists():
            try:
                summarise(path)
            except HyperfanError as error:  # the run itself is complete
                log(f"no figures: {error}")
        sender.send(str(outcome))
    except HyperfanError as error:
        log(str(error))
        sender.send(f"{FAILED}: {error}")
    except KeyboardInterrupt:  # before training began
        sender.send(str(Outcome.STOPPED))


def _cores() -> int:
    """The number of cores that this process may use, as far as the system knows."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _log(prefix: str) -> Callable[[str], None]:
    console = Console(stderr=True, soft_wrap=True)
    return lambda text: console.print(f"{prefix}{text}", markup=False, highlight=False)
