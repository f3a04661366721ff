"""Training of the continual-learning experiment: the nets and points of a grid, and its runs side by side."""

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes import Embedding
from hyperfan.data import regression_tasks
from hyperfan.data.regression import Task
from hyperfan.errors import RunError
from hyperfan.experiments.continual import TASKS, Continual
from hyperfan.experiments.continual.stack import RegressionStack
from hyperfan.experiments.experiment import GridTraining
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import Optimiser, values_and_embeddings_of
from hyperfan.experiments.state import join_states, part_of
from hyperfan.files import rounded
from hyperfan.hypernet import HyperNet
from hyperfan.init import method
from hyperfan.metrics import Kind, Row
from hyperfan.models import regression_net

TRUNK = (10, 10)
OPTIMISERS: dict[str, Optimiser] = {"sgd": "SGD", "adam": "Adam"}


def build(config: Continual, init: str) -> HyperNet:
    """A net of this init, to which ``draw`` gives the values of a seed."""
    name, at, fidelity = init.partition("@")
    if at and fidelity != "exact":
        raise RunError(f"--inits {init}: write '{name}' for the paper's fidelity, or '{name}@exact'")
    method_ = method(name)
    # A method that sets embeddings sets one for each tensor; otherwise a task has one embedding.
    return HyperNet(
        regression_net().to(dtype(config)),
        Embedding(config.embedding, trainable=True, per="net" if method_.embedding is None else "tensor", tasks=TASKS),
        generate="weights+biases",
        trunk=TRUNK,
        heads="separate",
        init=method_,
        share=1.0,
        fidelity="exact" if at else "paper",
    )


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


def widths() -> list[int]:
    """The widths of the mainnet, from its inputs to its outputs."""
    layers = [layer for layer in regression_net() if isinstance(layer, nn.Linear)]
    return [layers[0].in_features, *(layer.out_features for layer in layers)]


class ContinualTraining(GridTraining):
    """All runs of a grid, trained side by side, a stack for each init. What diverges has NaN from then on."""

    def __init__(self, config: Continual, data_dir: Path | None = None) -> None:
        self.config = config
        self.seeds = config.seed_range
        drawn = [points(config, seed) for seed in self.seeds]
        self.x = torch.stack([torch.stack([task.train_x for task in tasks]) for tasks in drawn], 1)
        self.y = torch.stack([torch.stack([task.train_y for task in tasks]) for tasks in drawn], 1)
        self.test_x = torch.stack([task.test_x for task in drawn[0]])
        self.test_y = torch.stack([task.test_y for task in drawn[0]])
        self.plan: dict[str, Any] = {}
        self.stacks: dict[str, RegressionStack] = {}
        """By init, in whose order the grid counts runs, and then by rate and seed as a stack does."""
        for init in config.inits:
            net = build(config, init)
            nets = [values_and_embeddings_of(draw(net, seed)) for seed in self.seeds]
            self.stacks[init] = RegressionStack(nets, config.rates, widths(), OPTIMISERS[config.optimiser], config.beta)
            self.plan[init] = net.plan.to_dict()
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def step(self, step: int) -> float:
        """One iteration of every run; returns the median of their losses."""
        task, iteration = divmod(step, self.config.iterations)
        chosen = self._batches(task)[:, iteration, :, None]  # by seed
        x, y = (self._by_run(of[task].gather(1, chosen)) for of in (self.x, self.y))
        found = []
        for stack in self.stacks.values():
            if iteration == 0:
                stack.begin(task)
            found.append(stack.step(functools.partial(stack.losses, x=x, y=y), iteration + 1))
        losses = torch.cat(found)
        self.latest = losses[losses.isfinite()]
        return self.typical(self.latest)

    @staticmethod
    def typical(losses: Tensor) -> float:
        """The median, since losses of a grid differ by orders of magnitude."""
        return losses.median().item() if len(losses) else math.nan

    def tests(self, step: int) -> Iterator[Row]:
        """The training loss of every run; after a task, also how it does on all tasks."""
        if step % self.config.log_every:
            return
        task, iteration = divmod(step, self.config.iterations)
        if iteration == 0 and step:
            yield self._losses(step, task - 1, self.config.iterations)
            yield self._errors(step, task - 1)
        if task < TASKS:
            yield self._losses(step, task, iteration)

    def _losses(self, step: int, task: int, iteration: int) -> Row:
        x, y = (self._by_run(of[task]) for of in (self.x, self.y))
        losses = torch.cat([stack.losses(stack.task_values(task), x, y) for stack in self.stacks.values()])
        return {"kind": Kind.LOSSES, "step": step, "task": task, "iteration": iteration, "losses": losses.tolist()}

    def _errors(self, step: int, after: int) -> Row:
        """Mean squared error on the clean points of every task, and the fits themselves, to four digits."""
        runs = len(self.config.rates) * self.config.seeds
        made = [
            torch.cat([stack.predict(task, x.expand(runs, -1, -1)) for stack in self.stacks.values()])
            for task, x in enumerate(self.test_x)
        ]
        fits = torch.stack(made, 1).squeeze(-1)
        errors = (fits - self.test_y.squeeze(-1)).square().mean(-1)
        kept = rounded(fits.tolist(), 4)
        return {"kind": Kind.ERRORS, "step": step, "after": after, "errors": errors.tolist(), "fits": kept}

    def _by_run(self, by_seed: Tensor) -> Tensor:
        """What each seed has, for all runs of a stack."""
        return by_seed.repeat(len(self.config.rates), 1, 1)

    def _batches(self, task: int) -> Tensor:
        if self._order[0] != task:
            self._order = task, torch.stack([order(self.config, seed, task) for seed in self.seeds])
        return self._order[1]

    def state(self) -> dict[str, Tensor]:
        """The state of all stacks."""
        return join_states({f"{init}/": stack.state() for init, stack in self.stacks.items()})

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for init, stack in self.stacks.items():
            stack.load(part_of(state, f"{init}/"))
