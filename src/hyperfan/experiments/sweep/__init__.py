"""Many runs, some of them side by side, each in a process of its own: on this machine, or on a Dask cluster.

A run whose process dies goes on from its checkpoint. One that another sweep on the same folder is making is looked at
again later, and is over when the other one ends it.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from hyperfan.errors import RunError
from hyperfan.experiments.exit_codes import FAILED, IN_USE, OUTCOMES
from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.folder import check_place
from hyperfan.experiments.results.write import PAGE_FILE, write_summary
from hyperfan.experiments.signals import GRACE_SECONDS, Terminated, on_sigterm
from hyperfan.experiments.sweep.child import Child, RunRequest, name_of
from hyperfan.experiments.sweep.cluster import LOST_WORKERS, Cluster, ClusterRun
from hyperfan.experiments.sweep.folders import finished_outcome, in_use, saved_step
from hyperfan.experiments.sweep.local import Local
from hyperfan.experiments.sweep.table import SweepTable
from hyperfan.metrics import Outcome

POLL_SECONDS, RETRY_SECONDS = 0.1, 5.0
"""Time between two looks at processes, and at runs that another sweep is making."""
STOP_SECONDS = 2 * GRACE_SECONDS
"""How long a sweep that was stopped waits for its runs."""
MAX_DEATHS = 3
"""Deaths of a run's process, with no checkpoint between them, after which the run has failed."""


def sweep(
    runs: Mapping[Path, Configuration],
    jobs: int | None = None,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    summarise: Callable[[Path], Any] = write_summary,
    on: str | None = None,
) -> dict[Path, str]:
    """Run the configuration of each folder, in their order, until Ctrl-C or SIGTERM, and return the outcomes.

    One that fails does not keep others from running.

    Args:
        runs: configurations by folder.
        jobs: how many at once on this machine, by default as many as there are cores for.
        data_dir: where the data is.
        resume: go on with runs that are there already; otherwise these fail.
        summarise: writes the summary of a run that is over; a function of a module.
        on: the address of a Dask scheduler, whose workers share the runs' folders; without one, this machine.
    """
    if not runs:
        return {}
    threads = max(config.threads for config in runs.values())
    place = Local(jobs, threads) if on is None else Cluster(on, [*runs])
    with place, SweepTable(Console(stderr=True), runs) as table, on_sigterm():
        running = _Sweep(
            runs, place, table, {p: RunRequest(c, p, data_dir, name_of(summarise)) for p, c in runs.items()}
        )
        try:
            running.go(resume)
        except KeyboardInterrupt as error:
            running.stop(Outcome.TERMINATED if isinstance(error, Terminated) else Outcome.STOPPED)
        return running.ended


class _Sweep:
    def __init__(
        self,
        runs: Mapping[Path, Configuration],
        place: Local | Cluster,
        table: SweepTable,
        jobs: Mapping[Path, RunRequest],
    ) -> None:
        self.runs, self.place, self.table, self.jobs = runs, place, table, jobs
        self.waiting = deque(runs)
        self.not_before: dict[Path, float] = {}
        """When to look again at runs that another sweep is making."""
        self.under_way: dict[Path, Child | ClusterRun] = {}
        self.deaths: Counter[tuple[Path, int]] = Counter()
        """How often a process died, by its run and the step of its checkpoint."""
        self.ended: dict[Path, str] = {}

    def go(self, resume: bool) -> None:
        """Start runs and take up those that have ended, until none is left."""
        if not resume:
            self._refuse_those_that_exist()
        while self.waiting or self.under_way:
            moved = self._start() + self._collect()
            places = {path: run.place for path, run in self.under_way.items()}
            self.table.show(places, self.ended, self.place.shortage)
            if not moved:
                time.sleep(POLL_SECONDS)

    def _refuse_those_that_exist(self) -> None:
        """What appears later is of a sweep beside this one, or was begun by a process that died."""
        for path in list(self.waiting):
            try:
                check_place(path, resume=False)
            except RunError as error:
                self._fail(path, str(error))
                self.waiting.remove(path)

    def _start(self) -> int:
        """Start what there is room for; returns how many runs were looked at."""
        looked = 0
        for _ in range(len(self.waiting)):
            if len(self.under_way) >= self.place.slots:
                break
            path = self.waiting.popleft()
            if time.monotonic() < self.not_before.get(path, 0):
                self.waiting.append(path)
                continue
            looked += 1
            try:
                outcome = finished_outcome(path, self.runs[path])
            except RunError as error:
                self._fail(path, str(error))
                continue
            if outcome is not None and (path / PAGE_FILE).exists():
                self._end(path, outcome, [])
            elif in_use(path):
                self._look_again(path)
            else:
                self.under_way[path] = self.place.start(self.jobs[path].to_json())
        return looked

    def _collect(self) -> int:
        """Take up what has ended; returns how many did."""
        over = self._over()
        for path, (code, lines) in over.items():
            if OUTCOMES.get(code) == IN_USE:
                self._look_again(path)
            elif code in OUTCOMES:
                self._end(path, OUTCOMES[code], lines)
            else:
                self._has_died(path, code, lines)
        return len(over)

    def _over(self) -> dict[Path, tuple[int, list[str]]]:
        """Runs that are no longer under way, with exit code and lines."""
        over = {path: found for path, run in self.under_way.items() if (found := run.poll()) is not None}
        self.under_way = {path: run for path, run in self.under_way.items() if path not in over}
        return over

    def _has_died(self, path: Path, code: int, lines: list[str]) -> None:
        try:
            saved = saved_step(path)
        except RunError as error:
            self._fail(path, str(error), lines)
            return
        if code == LOST_WORKERS:  # which is no fault of the run, whose process is not theirs
            self.table.note(f"{self.runs[path].title}: its workers died, and it goes on from batch {saved}")
            self.waiting.append(path)
            return
        self.deaths[path, saved] += 1
        if self.deaths[path, saved] < MAX_DEATHS:
            self.table.note(f"{self.runs[path].title}: its process died, and it goes on from batch {saved}")
            self.waiting.append(path)
        else:
            self._fail(path, f"its process died with exit code {code}", lines)

    def _look_again(self, path: Path) -> None:
        self.not_before[path] = time.monotonic() + RETRY_SECONDS
        self.waiting.append(path)

    def _fail(self, path: Path, reason: str, lines: Sequence[str] = ()) -> None:
        self._end(path, FAILED, [*lines, f"{self.runs[path].title}: {reason}"])

    def _end(self, path: Path, outcome: str, lines: list[str]) -> None:
        self.ended[path] = outcome
        for line in lines:
            self.table.note(line)
        if outcome != FAILED:
            self.table.note(f"{outcome}, {len(self.ended)} of {len(self.runs)}: {self.runs[path].title}")

    def stop(self, outcome: str) -> None:
        """Let all that is under way save and end; a second Ctrl-C ends it at once."""
        self.table.note(f"{outcome}: {len(self.under_way)} runs that are under way save what they can")
        try:
            self.place.stop()
            for run in self.under_way.values():
                run.terminate()
            until = time.monotonic() + STOP_SECONDS
            while self.under_way:
                for path, (code, lines) in self._over().items():
                    how = OUTCOMES.get(code, outcome)
                    self._end(path, outcome if how in (Outcome.TERMINATED, IN_USE) else how, lines)
                if time.monotonic() > until:
                    raise KeyboardInterrupt
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            for path, run in self.under_way.items():
                run.kill()
                self.ended[path] = outcome
