"""The training loop: one run in its folder, from its last checkpoint to its end.

Checkpoints are taken at fixed steps. Going on from one is then bit-identical to never having stopped, whatever stopped
the run: a kill, Ctrl-C or a full disk. What was trained since the last one is trained again. After SIGTERM one is taken
at once if that changes nothing, and otherwise at the next fixed step, if that is reached in time.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from hyperfan.errors import RunError, one_line
from hyperfan.experiments import group
from hyperfan.experiments.environment import environment
from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.folder import CONFIG_FILE, PLAN_FILE, TIMES_FILE, RunFolder, State, open_run
from hyperfan.experiments.progress import Progress
from hyperfan.experiments.ranks import Ranks
from hyperfan.experiments.signals import Terminated, Termination, on_sigterm
from hyperfan.experiments.training import Training
from hyperfan.metrics import Kind, Outcome, Row, describe_outcome

NOT_BEGUN = -1
"""The step of a run in which nothing has been measured or saved yet."""


def run(
    config: Configuration,
    path: Path,
    progress: Progress,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    sinks: Sequence[Callable[[Row], None]] = (),
) -> Outcome:
    """Train to the end, or until Ctrl-C or SIGTERM. Divergence is a result, not an error.

    Sinks are given each line of metrics.
    """
    with _process(config) as termination:
        # Before a new folder is made, so that what cannot start leaves none behind.
        training = None if resume and (path / CONFIG_FILE).exists() else _start(config, data_dir)
        with open_run(path, config, resume) as folder:
            found = folder.restore()
            if found is not None and found[0].done:
                end = folder.end()
                progress.note(f"{path} is over already: {describe_outcome([end])}")
                if _ranks(config).world > 1:
                    _start(config, data_dir).synchronise(config.total)  # so that no other process waits
                return Outcome(end["outcome"])
            runner = _Runner(config, training or _start(config, data_dir), folder, progress, termination, sinks)
            try:
                return runner.go(found)
            except KeyboardInterrupt as error:
                by = "SIGTERM" if isinstance(error, Terminated) else ""
                group.leave(by or "Ctrl-C")
                progress.note(
                    f"{by and by + ': '}stopped after batch {runner.step}; --resume goes on from batch {runner.saved}"
                )
                return Outcome.TERMINATED if by else Outcome.STOPPED
            finally:
                progress.close()


def follow(config: Configuration, data_dir: Path | None = None) -> Outcome:
    """Train on a part of each batch beside the process that runs and writes the same run."""
    with _process(config) as termination:
        training = _start(config, data_dir)
        schedule = _Schedule(config, training, termination)
        try:
            first = training.synchronise(0)
            if first == NOT_BEGUN:
                _take_part(training, 0, saves=True)
            for step in range(max(first, 0), config.total):
                if not math.isfinite(training.step(step)):
                    training.state()
                    return Outcome.DIVERGED
                _take_part(training, step + 1, saves=False)
                saves, ends = schedule.after(step + 1)
                if saves:
                    training.state()  # which may round what is trained, in all processes alike
                if ends:
                    return Outcome.TERMINATED
        except Terminated:
            group.leave("SIGTERM")  # with a reason, as the others would wait for this process
            return Outcome.TERMINATED
        return Outcome.FINISHED


def _take_part(training: Training, step: int, *, saves: bool) -> None:
    """Measure, and save, as the first process does, where that needs all of them."""
    if training.collective:
        for _ in training.tests(step):
            pass
        if saves:
            training.state()


def _start(config: Configuration, data_dir: Path | None) -> Training:
    """Start a run's training, in all of its processes; raises if they do not run the same."""
    training = config.start(data_dir)
    if _ranks(config).world > 1:
        found = environment(config.experiment)
        data = training.plan.get("data") if isinstance(training.plan, dict) else None
        group.agree({**config.to_dict(), "code": found["code"], "torch": found["torch"], "data": data})
    return training


def _ranks(config: Configuration) -> Ranks:
    return Ranks.join(config.device)


class _Schedule:
    """When checkpoints are taken, and when a run ends after SIGTERM; all of its processes agree on both."""

    def __init__(self, config: Configuration, training: Training, termination: Termination) -> None:
        self.config, self.training, self.termination = config, training, termination
        self.ranks = _ranks(config)
        termination.defer()

    def after(self, step: int) -> tuple[bool, bool]:
        """Whether to save after so many batches, and whether to end then, before the last."""
        fixed, last = step % self.config.checkpoint_every == 0, step == self.config.total
        requested = not last and self.ranks.mean(float(self.termination.requested)) > 0
        ends = requested and (fixed or self.training.state_is_exact)
        return fixed or last or ends, ends


class _Runner:
    def __init__(
        self,
        config: Configuration,
        training: Training,
        folder: RunFolder,
        progress: Progress,
        termination: Termination,
        sinks: Sequence[Callable[[Row], None]],
    ) -> None:
        self.config, self.training, self.folder, self.progress = config, training, folder, progress
        self.schedule = _Schedule(config, training, termination)
        self.sinks = [folder.record, progress.record, *sinks]
        self.step = self.saved = 0
        self.loss_sum, self.loss_count = 0.0, 0
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def go(self, found: tuple[State, dict[str, Tensor]] | None) -> Outcome:
        if found is not None:
            self._restore(*found)
        self.training.synchronise(NOT_BEGUN if found is None else self.step)
        if found is None:
            self.folder.write(PLAN_FILE, self.training.plan)
            if self.schedule.ranks.world > 1:
                self._record({"kind": Kind.RANKS, "step": 0, "ranks": self.schedule.ranks.world})
            self._measure()
            self._save(done=False)
        return self._train()

    def _restore(self, state: State, tensors: dict[str, Tensor]) -> None:
        if other := self.folder.other_environment():
            self.progress.note(f"not the environment it was started in, so bits may differ: {other}")
        self.seconds.update(self.folder.times())
        try:
            self.training.load(tensors)
        except (KeyError, RuntimeError) as error:  # tensors of other names or shapes
            raise RunError(
                f"the checkpoint in {self.folder.path} is of other code, with other tensors: {one_line(error)}. Go on "
                "with the version that began it, or start anew with --run-dir"
            ) from error
        self.step = self.saved = state.step
        self.loss_sum, self.loss_count = state.loss_sum, state.loss_count
        self.progress.note(f"resumed {self.folder.path} at batch {self.step}")
        world = self.schedule.ranks.world
        if world != state.ranks:
            self.progress.note(
                f"{state.ranks} ranks trained it so far, and from here {world}: sums round differently, and batch "
                "norm sees parts of another size, so results equal those of neither; metrics.jsonl records it"
            )
            self._record({"kind": Kind.RANKS, "step": self.step, "ranks": world})

    def _train(self) -> Outcome:
        c = self.config
        while self.step < c.total:
            with self._timed("training"):
                loss = self.training.step(self.step)
            if not math.isfinite(loss):
                return self._end_diverged()
            self.step += 1
            self.loss_sum, self.loss_count = self.loss_sum + loss, self.loss_count + 1
            if self.step % c.log_every == 0 or self.step == c.total:
                self._record({"kind": Kind.TRAIN, "step": self.step, "loss": self.loss_sum / self.loss_count})
                self.loss_sum, self.loss_count = 0.0, 0
            self._measure()
            if self.step == c.total:
                self._record({"kind": Kind.END, "step": self.step, "outcome": Outcome.FINISHED})
            saves, ends = self.schedule.after(self.step)
            if saves:
                self._save(done=self.step == c.total)
            self.progress.update(self.step, c.total, c.stage)
            if ends:
                group.leave()  # without a reason, as all end here
                raise Terminated
        return Outcome.FINISHED

    def _end_diverged(self) -> Outcome:
        layer = self.training.first_overflow(self.step)
        end = {"kind": Kind.END, "step": self.step, "outcome": Outcome.DIVERGED, "layer": layer}
        self._record(end)
        self._save(done=True)
        self.progress.note(describe_outcome([end]))
        return Outcome.DIVERGED

    def _measure(self) -> None:
        for name, rows in (("testing", self.training.tests), ("probing", self.training.probes)):
            with self._timed(name):
                for row in rows(self.step):
                    self._record(row)

    def _save(self, done: bool) -> None:
        with self._timed("saving"):
            losses, ranks = (self.loss_sum, self.loss_count), self.schedule.ranks.world
            self.folder.save(self.step, done, losses, self.training.state(), ranks)
        self.folder.write(TIMES_FILE, {**self.seconds, "batches": self.step})
        self.saved = self.step

    def _record(self, row: Row) -> None:
        for sink in self.sinks:
            sink(row)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - start


@contextmanager
def _process(config: Configuration) -> Iterator[Termination]:
    """What holds while a process trains: torch's threads, SIGTERM, and membership among the processes of the run."""
    with _threads(config.threads), on_sigterm() as found, group.membership():
        yield found


@contextmanager
def _threads(wanted: int) -> Iterator[None]:
    """Set torch's number of threads, which is part of the configuration: results depend on how many share a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
