"""Many runs, some of them side by side, each in a process of its own."""

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

from rich.console import Console

from hyperfan.errors import HyperfanError
from hyperfan.experiments.loop import Experiment, run
from hyperfan.experiments.progress import Lines


@dataclass(frozen=True)
class Ended:
    """How one run of many ended: an outcome, or the error that kept it from one."""

    path: Path
    outcome: str


def sweep(
    runs: Mapping[Path, Experiment], jobs: int | None = None, *, data_dir: Path | None = None, resume: bool = False
) -> list[Ended]:
    """Run all of them, until Ctrl-C. One that fails is reported and does not keep the others from running.

    Args:
        runs: which experiment goes to which folder, in the order they are started.
        jobs: how many at once; by default as many as there are cores for.
        data_dir, resume: as for one run.
    """
    threads = max((e.threads for e in runs.values()), default=1)
    jobs = jobs or max(_cores() // threads, 1)
    # Spawned, because torch's threads do not survive a fork; and one run each, so that none inherits another's memory.
    context = multiprocessing.get_context("spawn")
    waiting = deque(runs.items())
    say = _sayer("")
    under_way: dict[Connection, tuple[Path, SpawnProcess]] = {}
    ended = []
    try:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                path, experiment = waiting.popleft()
                told, tell = context.Pipe(duplex=False)
                process = context.Process(target=_one, args=(tell, experiment, path, data_dir, resume))
                process.start()
                say(f"started {len(runs) - len(waiting)} of {len(runs)}: {experiment.title}")
                tell.close()  # the process has its own; when that closes, it is over
                under_way[told] = path, process
            ready = connection.wait(list(under_way))
            for told in [told for told in under_way if told in ready]:
                path, process = under_way.pop(told)
                ended.append(Ended(path, _hear(told, process)))
    except KeyboardInterrupt:
        for told, (path, process) in under_way.items():  # each was interrupted too, and stops cleanly
            ended.append(Ended(path, _hear(told, process)))
    return ended


def _hear(told: Connection, process: SpawnProcess) -> str:
    try:
        outcome: str = told.recv()
    except EOFError:
        process.join()
        return f"failed: its process died with exit code {process.exitcode}"
    finally:
        told.close()
    process.join()
    return outcome


def _one(tell: Connection, experiment: Experiment, path: Path, data_dir: Path | None, resume: bool) -> None:
    say = _sayer(f"{experiment.title}: ")
    try:
        outcome = run(experiment, path, Lines(say), data_dir=data_dir, resume=resume)
        if outcome != "stopped" and not (path / "report.html").exists():
            try:
                experiment.summarise(path)
            except HyperfanError as error:  # the run itself is complete
                say(f"no figures: {error}")
        tell.send(outcome)
    except HyperfanError as error:
        say(str(error))
        tell.send(f"failed: {error}")
    except KeyboardInterrupt:  # before training began
        tell.send("stopped")


def _cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _sayer(prefix: str) -> Callable[[str], None]:
    console = Console(stderr=True, soft_wrap=True)
    return lambda text: console.print(f"{prefix}{text}", markup=False, highlight=False)
