"""Training of the continual-learning experiment: the nets and points of a grid, and its runs side by side."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyperfan.codes import Embedding
from hyperfan.data import regression_tasks
from hyperfan.data.regression import Task
from hyperfan.errors import RunError
from hyperfan.experiments.continual import TASKS, Continual
from hyperfan.experiments.continual.batch import Batch, Structure
from hyperfan.experiments.experiment import GridTraining
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import Tensors
from hyperfan.files import rounded
from hyperfan.hypernet import HyperNet
from hyperfan.init import method
from hyperfan.metrics import Kind, Row
from hyperfan.models import regression_net

TRUNK = (10, 10)


def build(config: Continual, init: str) -> HyperNet:
    """A net of this init, still without values: ``draw`` gives it those of a seed."""
    name, at, fidelity = init.partition("@")
    if at and fidelity != "exact":
        raise RunError(f"--inits {init}: write '{name}' for the paper's fidelity, or '{name}@exact'")
    method_ = method(name)
    # A method that sets embeddings sets one for each tensor; otherwise a task has one embedding.
    with torch.device("meta"):
        mainnet = regression_net().to(dtype(config))
    return HyperNet(
        mainnet,
        Embedding(config.embedding, trainable=True, per="net" if method_.embedding is None else "tensor", tasks=TASKS),
        generate="weights+biases",
        trunk=TRUNK,
        heads="separate",
        init=method_,
        share=1.0,
        fidelity="exact" if at else "paper",
    ).to_empty(device="cpu")


def draw(net: HyperNet, seed: int) -> HyperNet:
    """Write the init's values of a seed into a net."""
    net.reset_parameters(generator(seed, "init"), embeddings=generator(seed, "embeddings"))
    return net


def points(config: Continual, seed: int) -> Sequence[Task]:
    """The points of the three tasks."""
    drawn = regression_tasks(generator(seed, "points"), train=config.points)
    return [Task(t.name, *(v.to(dtype(config)) for v in (t.train_x, t.train_y, t.test_x, t.test_y))) for t in drawn]


def order(config: Continual, seed: int, task: int) -> Tensor:
    """Which points are in each batch of a task, (iterations, batch): pass after pass, each in a new order."""
    draws = generator(seed, "order", task)
    passes = -(-config.iterations * config.batch // config.points)
    shuffled = torch.rand(passes, config.points, generator=draws).argsort(1)
    return shuffled.flatten()[: config.iterations * config.batch].view(config.iterations, config.batch)


def dtype(config: Continual) -> torch.dtype:
    """The data type of all numbers."""
    return torch.float32 if config.precision == "float32" else torch.float64


class ContinualTraining(GridTraining):
    """All runs of a grid, trained side by side. One whose loss is not finite leaves the batch."""

    def __init__(self, config: Continual, data_dir: Path | None = None) -> None:
        self.config = config
        self.seeds = config.seed_range
        drawn = [points(config, seed) for seed in self.seeds]
        self.x = torch.stack([torch.stack([task.train_x for task in tasks]) for tasks in drawn], 1)
        self.y = torch.stack([torch.stack([task.train_y for task in tasks]) for tasks in drawn], 1)
        self.test_x = torch.stack([task.test_x for task in drawn[0]])
        self.test_y = torch.stack([task.test_y for task in drawn[0]])
        self.plan: dict[str, Any] = {}
        self.batches: list[Batch] = []
        self.members: list[Tensor] = []
        """The runs of each batch by their numbers in the grid."""
        self._fill()
        self.diverged = torch.full((len(config.runs),), -1)
        """After how many iterations each run's loss was no longer finite; −1 if it is."""
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def _fill(self) -> None:
        """One batch for each structure: nets differ where a method needs an embedding for each tensor."""
        c, runs = self.config, self.config.runs
        kinds: dict[str, tuple[Structure, list[Tensors], list[int]]] = {}
        for init in c.inits:
            net = build(c, init)
            structure = Structure(net)
            _, values, numbers = kinds.setdefault(net.embeddings.config.per, (structure, [], []))
            for seed in self.seeds:
                draw(net, seed)
                chosen = [number for number, run in enumerate(runs) if (run.init, run.seed) == (init, seed)]
                values += [structure.values()] * len(chosen)
                numbers += chosen
            self.plan[init] = net.plan.to_dict()
        for structure, values, numbers in kinds.values():
            rates = torch.tensor([runs[i].lr for i in numbers], dtype=dtype(c))
            self.batches.append(Batch(structure, values, rates, c.optimiser, c.beta))
            self.members.append(torch.tensor(numbers))

    def step(self, step: int) -> float:
        """One iteration of every run; returns the median of their losses."""
        task, iteration = divmod(step, self.config.iterations)
        if iteration == 0:
            for batch, _ in self._under_way():
                batch.begin(task)
        chosen = self._batches(task)[:, iteration]  # by seed
        all_losses = []
        for batch, members in self._under_way():
            seeds = self._seeds(members)
            x, y = (of[task][seeds[:, None], chosen[seeds]] for of in (self.x, self.y))
            losses = batch.step(x, y, iteration + 1)
            gone = members[~losses.isfinite()]
            self.diverged[gone[self.diverged[gone] < 0]] = step
            all_losses.append(losses[losses.isfinite()])
        self.latest = torch.cat(all_losses) if all_losses else torch.empty(0)
        return self.typical(self.latest)

    @staticmethod
    def typical(losses: Tensor) -> float:
        """The median, since losses of a grid differ by orders of magnitude."""
        return losses.median().item() if len(losses) else math.nan

    def _under_way(self) -> list[tuple[Batch, Tensor]]:
        """The batches that have runs left, with their runs."""
        return [(b, members) for b, members in zip(self.batches, self.members, strict=True) if len(b)]

    def tests(self, step: int) -> Iterator[Row]:
        """The training loss of every run that did not diverge; after a task, also how it does on all tasks."""
        if step % self.config.log_every:
            return
        self._drop()
        task, iteration = divmod(step, self.config.iterations)
        if iteration == 0 and step:
            yield self._losses(step, task - 1, self.config.iterations)
            yield self._errors(step, task - 1)
        if task < TASKS:
            yield self._losses(step, task, iteration)

    def _drop(self) -> None:
        """Take runs that diverged out of their batches."""
        for i, batch in enumerate(self.batches):
            alive = self.diverged[self.members[i]] < 0
            if not alive.all():
                batch.keep(alive)
                self.members[i] = self.members[i][alive]

    def _losses(self, step: int, task: int, iteration: int) -> Row:
        found = self._nan()
        for batch, members in self._under_way():
            seeds = self._seeds(members)
            batch.task = task
            found[members] = batch.losses(self.x[task][seeds], self.y[task][seeds])
        return {"kind": Kind.LOSSES, "step": step, "task": task, "iteration": iteration, "losses": found.tolist()}

    def _errors(self, step: int, after: int) -> Row:
        """Mean squared error on the clean points of every task, and the fits themselves, to four digits."""
        fits = self._nan(TASKS, self.test_x.shape[1])
        for batch, members in self._under_way():
            for task in range(TASKS):
                fits[members, task] = batch.predictions(task, self.test_x[task])
        errors = (fits - self.test_y.squeeze(-1)).square().mean(-1)
        kept = rounded(fits.tolist(), 4)
        return {"kind": Kind.ERRORS, "step": step, "after": after, "errors": errors.tolist(), "fits": kept}

    def _nan(self, *shape: int) -> Tensor:
        return torch.full((len(self.diverged), *shape), float("nan"), dtype=self.x.dtype)

    def _seeds(self, members: Tensor) -> Tensor:
        """The number of each run's seed; the grid counts seeds fastest."""
        return members % self.config.seeds

    def _batches(self, task: int) -> Tensor:
        if self._order[0] != task:
            self._order = task, torch.stack([order(self.config, seed, task) for seed in self.seeds])
        return self._order[1]

    def state(self) -> dict[str, Tensor]:
        """All batches, and which runs are in them."""
        tensors = {"diverged": self.diverged}
        for i, (batch, members) in enumerate(zip(self.batches, self.members, strict=True)):
            tensors |= {f"{i}.{name}": t for name, t in {**batch.state(), "members": members}.items()}
            tensors[f"{i}.task"] = torch.tensor(batch.task)
        return tensors

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.diverged = state["diverged"]
        for i, batch in enumerate(self.batches):
            tensors = {name.removeprefix(f"{i}."): t for name, t in state.items() if name.startswith(f"{i}.")}
            self.members[i] = tensors.pop("members")
            batch.load(tensors, int(tensors.pop("task")))
