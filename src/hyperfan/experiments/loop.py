"""Trains one run in its folder, from where it stands to its end.

Checkpoints are taken at fixed steps only. Going on from one is then bit-identical to never having stopped, whatever
stopped the run: a kill, Ctrl-C or a full disk. What was trained since the last one is trained again.
"""

import dataclasses
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.experiments.checkpoint import State
from hyperfan.experiments.folder import CONFIG, Row, RunFolder
from hyperfan.experiments.progress import Progress, Standing

Outcome = Literal["finished", "diverged", "stopped"]


class Summary(NamedTuple):
    """What is shown of a run that is over: a page, and some words for a terminal."""

    page: Path
    says: str


class Training(Protocol):
    """An experiment under way."""

    plan: Any
    """What the init wrote, as JSON."""

    def step(self, step: int) -> float:
        """Train on one batch, of which ``step`` came before; returns its loss."""

    def tests(self, step: int) -> Iterator[Row]:
        """The lines of metrics that are due after so many batches, apart from those of the probe."""

    def probes(self, step: int) -> Iterator[Row]:
        """What the probe has to say after so many batches, if it is due."""

    def overflowed(self, step: int) -> str | None:
        """The first layer that is not finite on the batch after so many batches."""

    def state(self) -> dict[str, Tensor]:
        """All that changes in training."""

    def load(self, state: dict[str, Tensor]) -> None:
        """Go back to such a state."""

    def together(self, step: int) -> int:
        """Bring all processes that train together to where the first one is; returns its step."""


class Experiment(Protocol):
    """A frozen dataclass: the whole configuration of a run."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def title(self) -> str:
        """What to call it in a line of progress."""

    @property
    def total(self) -> int:
        """How many batches a run has."""

    @property
    def stage(self) -> tuple[str, int]:
        """What a run goes through several of, as epochs, and how many batches each has."""

    @property
    def log_every(self) -> int:
        """How many batches a line of training loss averages over."""

    @property
    def checkpoint_every(self) -> int:
        """How many batches lie between checkpoints."""

    @property
    def threads(self) -> int:
        """How many threads torch may use."""

    def start(self, data_dir: Path | None) -> Training:
        """Build everything from the seed."""

    def summarise(self, path: Path) -> Summary:
        """Draw the run in this folder."""


class Sink(Protocol):
    """Someone who wants every line of metrics as well."""

    def record(self, row: Row) -> None:
        """Take a line."""


def run(
    experiment: Experiment,
    path: Path,
    progress: Progress,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    sinks: tuple[Sink, ...] = (),
) -> Outcome:
    """Train to the end, or until Ctrl-C. Divergence is a result, not an error."""
    config = dataclasses.asdict(experiment)
    with _threads(experiment.threads):
        # Before a new folder is made, so that what cannot start leaves none behind.
        training = None if resume and (path / CONFIG).exists() else experiment.start(data_dir)
        with RunFolder(path, config, resume) as folder:
            found = folder.restore()
            if found is not None and found[0].done:
                ending = folder.ending()
                progress.note(f"{path} is over already: {_told(ending)}")
                if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                    experiment.start(data_dir).together(experiment.total)  # so that no other process waits
                return "diverged" if ending["outcome"] == "diverged" else "finished"
            runner = _Runner(experiment, training or experiment.start(data_dir), folder, progress, sinks)
            try:
                return runner.go(found)
            except KeyboardInterrupt:
                progress.note(f"stopped after batch {runner.step}; --resume goes on from batch {runner.saved}")
                return "stopped"
            finally:
                progress.close()


def follow(experiment: Experiment, data_dir: Path | None = None) -> Outcome:
    """Train beside a process that runs the experiment, on another part of each batch; it alone writes anything."""
    with _threads(experiment.threads):
        training = experiment.start(data_dir)
        for step in range(training.together(0), experiment.total):
            if not math.isfinite(training.step(step)):
                return "diverged"
        return "finished"


class _Runner:
    def __init__(
        self,
        experiment: Experiment,
        training: Training,
        folder: RunFolder,
        progress: Progress,
        sinks: tuple[Sink, ...],
    ) -> None:
        self.experiment, self.training, self.folder = experiment, training, folder
        self.progress, self.sinks = progress, sinks
        self.step = self.saved = 0
        self.loss_sum, self.loss_count = 0.0, 0
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._standing = Standing(experiment.title, experiment.total, experiment.stage)

    def go(self, found: tuple[State, dict[str, Tensor]] | None) -> Outcome:
        if found is None:
            self.folder.write_plan(self.training.plan)
            self._measure()
            self._save(done=False)
        else:
            state, tensors = found
            other = self.folder.other_environment()
            if other is not None:
                self.progress.note(f"not the environment it was started in, so bits may differ: {other}")
            self.seconds.update(self.folder.times())
            self.seconds.pop("batches", None)
            self.training.load(tensors)
            self.step = self.saved = state.step
            self.loss_sum, self.loss_count = state.loss_sum, state.loss_count
            self.progress.note(f"resumed {self.folder.path} at batch {self.step}")
        self.training.together(self.step)
        return self._train()

    def _train(self) -> Outcome:
        e = self.experiment
        while self.step < e.total:
            with self._timed("training"):
                loss = self.training.step(self.step)
            if not math.isfinite(loss):
                return self._end_diverged()
            self.step += 1
            self.loss_sum, self.loss_count = self.loss_sum + loss, self.loss_count + 1
            if self.step % e.log_every == 0 or self.step == e.total:
                self._record({"kind": "train", "step": self.step, "loss": self.loss_sum / self.loss_count})
                self.loss_sum, self.loss_count = 0.0, 0
            self._measure()
            if self.step == e.total:
                self._record({"kind": "end", "step": self.step, "outcome": "finished"})
            if self.step % e.checkpoint_every == 0 or self.step == e.total:
                self._save(done=self.step == e.total)
            self.progress.update(self._standing.at(self.step))
        return "finished"

    def _end_diverged(self) -> Outcome:
        where = self.training.overflowed(self.step)
        ending = {"kind": "end", "step": self.step, "outcome": "diverged", "layer": where}
        self._record(ending)
        self._save(done=True)
        self.progress.note(_told(ending))
        return "diverged"

    def _measure(self) -> None:
        for name, rows in (("testing", self.training.tests), ("probing", self.training.probes)):
            with self._timed(name):
                for row in rows(self.step):
                    self._record(row)

    def _save(self, done: bool) -> None:
        with self._timed("saving"):
            self.folder.save(self.step, done, (self.loss_sum, self.loss_count), self.training.state())
        self.folder.write_times({"batches": self.step, **self.seconds})
        self.saved = self.step

    def _record(self, row: Row) -> None:
        self.folder.record(row)
        self._standing.see(row)
        for sink in self.sinks:
            sink.record(row)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - start


def _told(ending: Row) -> str:
    """How a run ended, for its owner."""
    if ending["outcome"] != "diverged":
        return f"{ending['outcome']} after batch {ending['step']}"
    layer = "the loss itself" if ending["layer"] is None else f"layer '{ending['layer']}'"
    return f"diverged at batch {ending['step'] + 1}: the first to overflow was {layer}"


@contextmanager
def _threads(wanted: int) -> Iterator[None]:
    """Results depend on how many threads share a sum, so it is part of the configuration."""
    if wanted < 1:
        raise RunError(f"--threads {wanted}: at least one is needed")
    before = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
