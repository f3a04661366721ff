"""Many runs, some of them side by side, each in a separate process."""

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from rich.console import Console

from hyperfan.errors import HyperfanError
from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.loop import run
from hyperfan.experiments.progress import Progress
from hyperfan.experiments.results.write import PAGE_FILE, write_summary
from hyperfan.metrics import Outcome

FAILED = "failed"
"""The outcome of a run that an error kept from one; what the error was is in the log."""
OUTCOMES = {0: Outcome.FINISHED, 64: Outcome.DIVERGED, 70: FAILED, 130: Outcome.STOPPED}
"""What the exit code of a run's process says; any other says that the process died."""
EXIT_CODES = {outcome: code for code, outcome in OUTCOMES.items()}


def sweep(
    runs: Mapping[Path, Configuration],
    jobs: int | None = None,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    summarise: Callable[[Path], Any] = write_summary,
) -> dict[Path, str]:
    """Run the configuration of each folder, in their order, until Ctrl-C, and return the outcomes.

    One that fails does not keep others from running. By default there are as many jobs at once as there are cores for.
    """
    threads = max((config.threads for config in runs.values()), default=1)
    jobs = jobs or max(_cores() // threads, 1)
    # Spawned, because torch's threads do not survive a fork; and one run each, so that none inherits another's memory.
    context = multiprocessing.get_context("spawn")
    waiting, log = deque(runs.items()), _progress("")
    under_way: dict[int, tuple[Path, SpawnProcess]] = {}
    ended: dict[Path, str] = {}

    def end(path: Path, process: SpawnProcess) -> None:
        process.join()
        ended[path] = OUTCOMES.get(process.exitcode or 0, FAILED)
        if process.exitcode not in OUTCOMES:
            log.note(f"{runs[path].title}: its process died with exit code {process.exitcode}")

    try:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                path, config = waiting.popleft()
                process = context.Process(target=_run_one, args=(config, path, data_dir, resume, summarise))
                process.start()
                under_way[process.sentinel] = path, process
                log.note(f"started {len(runs) - len(waiting)} of {len(runs)}: {config.title}")
            over = connection.wait(list(under_way))
            for sentinel in [s for s in under_way if s in over]:
                end(*under_way.pop(sentinel))
    except KeyboardInterrupt:  # which each process got too, and stops cleanly
        for path, process in under_way.values():
            end(path, process)
    return ended


def _run_one(
    config: Configuration, path: Path, data_dir: Path | None, resume: bool, summarise: Callable[[Path], Any]
) -> None:
    progress = _progress(f"{config.title}: ")
    try:
        outcome = run(config, path, progress, data_dir=data_dir, resume=resume)
        if outcome != Outcome.STOPPED and not (path / PAGE_FILE).exists():
            try:
                summarise(path)
            except HyperfanError as error:  # the run itself is complete
                progress.note(f"no figures: {error}")
    except HyperfanError as error:
        progress.note(str(error))
        sys.exit(EXIT_CODES[FAILED])
    except KeyboardInterrupt:  # before training began
        outcome = Outcome.STOPPED
    sys.exit(EXIT_CODES[outcome])


def _cores() -> int:
    """The number of cores that this process may use, as far as the system knows."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _progress(prefix: str) -> Progress:
    """Lines, since those of several runs come one after another."""
    return Progress(Console(stderr=True, force_terminal=False), prefix)
