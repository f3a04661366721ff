"""Many runs, some of them side by side, each in a process of its own."""

import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
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
    """Run all of them. One that fails is reported and does not keep the others from running.

    Args:
        runs: which experiment goes to which folder, in the order they are started.
        jobs: how many at once; by default as many as there are cores for.
        data_dir, resume: as for one run.
    """
    threads = max((e.threads for e in runs.values()), default=1)
    jobs = jobs or max((os.cpu_count() or 1) // threads, 1)
    ended = []
    # Spawned, because torch's threads do not survive a fork; and one run each, so that none inherits another's memory.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        waiting = {pool.submit(_one, e, path, data_dir, resume): path for path, e in runs.items()}
        try:
            for future in as_completed(waiting):
                ended.append(Ended(waiting[future], future.result()))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)  # those under way were interrupted too, and stop cleanly
            raise
    return ended


def _one(experiment: Experiment, path: Path, data_dir: Path | None, resume: bool) -> str:
    console = Console(stderr=True, soft_wrap=True)
    say = Lines(lambda text: console.print(f"{experiment.title}: {text}", markup=False, highlight=False))
    try:
        return run(experiment, path, say, data_dir=data_dir, resume=resume)
    except HyperfanError as error:
        console.print(f"{experiment.title}: {error}", markup=False, highlight=False)
        return f"failed: {error}"
