"""The training loop: one run in its folder, from its last checkpoint to its end.

Checkpoints are taken at fixed steps only. Going on from one is then bit-identical to never having stopped, whatever
stopped the run: a kill, Ctrl-C or a full disk. What was trained since the last one is trained again.
"""

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from hyperfan.experiments.experiment import Configuration, Training
from hyperfan.experiments.folder import CONFIG_FILE, PLAN_FILE, TIMES_FILE, RunFolder, State, open_run
from hyperfan.experiments.progress import Progress
from hyperfan.metrics import Kind, Outcome, Row, describe_divergence


def run(
    config: Configuration,
    path: Path,
    progress: Progress,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    sinks: Sequence[Callable[[Row], None]] = (),
) -> Outcome:
    """Train to the end, or until Ctrl-C. Divergence is a result, not an error. Sinks are given each line of metrics."""
    with _threads(config.threads):
        # Before a new folder is made, so that what cannot start leaves none behind.
        training = None if resume and (path / CONFIG_FILE).exists() else config.start(data_dir)
        with open_run(path, config, resume) as folder:
            found = folder.restore()
            if found is not None and found[0].done:
                end = folder.end()
                progress.note(f"{path} is over already: {_describe_end(end)}")
                if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                    config.start(data_dir).synchronise(config.total)  # so that no other process waits
                return Outcome(end["outcome"])
            runner = _Runner(config, training or config.start(data_dir), folder, progress)
            runner.sinks += sinks
            try:
                return runner.go(found)
            except KeyboardInterrupt:
                progress.note(f"stopped after batch {runner.step}; --resume goes on from batch {runner.saved}")
                return Outcome.STOPPED
            finally:
                progress.close()


def follow(config: Configuration, data_dir: Path | None = None) -> Outcome:
    """Train on a part of each batch beside the process that runs and writes the same run."""
    with _threads(config.threads):
        training = config.start(data_dir)
        for step in range(training.synchronise(0), config.total):
            if not math.isfinite(training.step(step)):
                return Outcome.DIVERGED
        return Outcome.FINISHED


class _Runner:
    def __init__(self, config: Configuration, training: Training, folder: RunFolder, progress: Progress) -> None:
        self.config, self.training, self.folder, self.progress = config, training, folder, progress
        self.sinks: list[Callable[[Row], None]] = [folder.record, progress.record]
        self.step = self.saved = 0
        self.loss_sum, self.loss_count = 0.0, 0
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def go(self, found: tuple[State, dict[str, Tensor]] | None) -> Outcome:
        if found is None:
            self.folder.write(PLAN_FILE, self.training.plan)
            self._measure()
            self._save(done=False)
        else:
            state, tensors = found
            if other := self.folder.other_environment():
                self.progress.note(f"not the environment it was started in, so bits may differ: {other}")
            self.seconds.update(self.folder.times())
            self.training.load(tensors)
            self.step = self.saved = state.step
            self.loss_sum, self.loss_count = state.loss_sum, state.loss_count
            self.progress.note(f"resumed {self.folder.path} at batch {self.step}")
        self.training.synchronise(self.step)
        return self._train()

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
            if self.step % c.checkpoint_every == 0 or self.step == c.total:
                self._save(done=self.step == c.total)
            self.progress.update(self.step, c.total, c.stage)
        return Outcome.FINISHED

    def _end_diverged(self) -> Outcome:
        layer = self.training.first_overflow(self.step)
        end = {"kind": Kind.END, "step": self.step, "outcome": Outcome.DIVERGED, "layer": layer}
        self._record(end)
        self._save(done=True)
        self.progress.note(_describe_end(end))
        return Outcome.DIVERGED

    def _measure(self) -> None:
        for name, rows in (("testing", self.training.tests), ("probing", self.training.probes)):
            with self._timed(name):
                for row in rows(self.step):
                    self._record(row)

    def _save(self, done: bool) -> None:
        with self._timed("saving"):
            self.folder.save(self.step, done, (self.loss_sum, self.loss_count), self.training.state())
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


def _describe_end(end: Row) -> str:
    return describe_divergence(end) if end["outcome"] == Outcome.DIVERGED else f"finished after batch {end['step']}"


@contextmanager
def _threads(wanted: int) -> Iterator[None]:
    """Set torch's number of threads, which is part of the configuration: results depend on how many share a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
