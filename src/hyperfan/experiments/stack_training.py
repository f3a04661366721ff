"""Training of hypernets in stacks, which all take the same steps: what every such experiment shares."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from hyperfan.experiments.experiment import SeedsConfiguration
from hyperfan.experiments.stack import Stack
from hyperfan.experiments.state import join_states, part_of
from hyperfan.experiments.training import GridTraining
from hyperfan.metrics import Kind, Row

S = TypeVar("S", bound=Stack)
B = TypeVar("B")
"""A batch of all runs."""


class StackTraining(GridTraining, Generic[S, B]):
    """All runs of a grid, trained side by side. What diverges has a loss of NaN from then on.

    Args:
        config: of the grid.
        tasks: how many come one after another, with equal parts of the steps.

    Attributes:
        stacks: in the order in which metrics list runs, by what their tensors' names begin with in a checkpoint.
        seeds: of the runs.
        iterations: steps on each task.
    """

    stacks: dict[str, S]

    def __init__(self, config: SeedsConfiguration, tasks: int) -> None:
        self.seeds, self.log_every = config.seed_range, config.log_every
        self.tasks, self.iterations = tasks, config.total // tasks

    def place(self, step: int) -> tuple[int, int]:
        """The task that is learnt after so many steps, and how many of them were on it."""
        return divmod(step, self.iterations)

    @abstractmethod
    def batch(self, step: int) -> B:
        """What all runs are trained on after so many steps."""

    @abstractmethod
    def train(self, stack: S, batch: B, count: int) -> Tensor:
        """Take a step of a stack on a batch, the ``count``-th on its task; returns the losses before it, (run)."""

    def step(self, step: int) -> float:
        """One step of every run; returns what stands for all of their losses."""
        (task, iteration), batch, found = self.place(step), self.batch(step), []
        for stack in self.stacks.values():
            if iteration == 0:
                stack.begin(task)
            found.append(self.train(stack, batch, iteration + 1))
        return self.summarise(torch.cat(found))

    def state(self) -> dict[str, Tensor]:
        """The state of all stacks."""
        return join_states({prefix: stack.state() for prefix, stack in self.stacks.items()})

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for prefix, stack in self.stacks.items():
            stack.load(part_of(state, prefix))


class TaskTraining(StackTraining[S, B]):
    """Runs that are tested on the task that they learn, and after each task on all of them."""

    @abstractmethod
    def losses(self, task: int) -> Tensor:
        """The loss of every run in a task."""

    @abstractmethod
    def errors(self, learnt: int) -> dict[str, Any]:
        """How every run does in all tasks when so many are learnt: a line of metrics, or nothing if none is due."""

    def tests(self, step: int) -> Iterator[Row]:
        """The loss of the task that is learnt; where one ends, also of the next, and how all tasks are known."""
        if step % self.log_every:
            return
        task, iteration = self.place(step)
        if iteration == 0 and step:
            yield self._losses_row(step, task - 1, self.iterations)
        if iteration == 0 and (found := self.errors(task)):
            yield {"kind": Kind.ERRORS, "step": step, **found}
        if task < self.tasks:
            yield self._losses_row(step, task, iteration)

    def _losses_row(self, step: int, task: int, iteration: int) -> Row:
        losses = self.losses(task).tolist()
        return {"kind": Kind.LOSSES, "step": step, "task": task, "iteration": iteration, "losses": losses}
