"""Training of the continual-learning experiment: the nets and points of a grid, and its runs side by side."""

import functools
import math
from collections.abc import Sequence
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
from hyperfan.experiments.draws import draw_init
from hyperfan.experiments.optimisers import OPTIMISER_NAMES
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import values_and_embeddings_of
from hyperfan.experiments.stack_training import TaskTraining
from hyperfan.files import rounded
from hyperfan.hypernet import HyperNet
from hyperfan.init import method
from hyperfan.models import regression_net

TRUNK = (10, 10)


def build(config: Continual, init: str) -> HyperNet:
    """A net of this init, to which ``draw_init`` gives the values of a seed."""
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


@functools.lru_cache(maxsize=1)
def batches(config: Continual, task: int) -> Tensor:
    """The order of a task's points for every seed, (seed, iterations, batch)."""
    return torch.stack([order(config, seed, task) for seed in config.seed_range])


def dtype(config: Continual) -> torch.dtype:
    """The data type of all numbers."""
    return torch.float32 if config.precision == "float32" else torch.float64


def widths() -> list[int]:
    """The widths of the mainnet, from its inputs to its outputs."""
    layers = [layer for layer in regression_net() if isinstance(layer, nn.Linear)]
    return [layers[0].in_features, *(layer.out_features for layer in layers)]


class ContinualTraining(TaskTraining[RegressionStack, tuple[Tensor, Tensor]]):
    """All runs of a grid, a stack for each init."""

    def __init__(self, config: Continual, data_dir: Path | None = None) -> None:
        super().__init__(config, TASKS)
        self.config = config
        drawn = [points(config, seed) for seed in self.seeds]
        self.x = torch.stack([torch.stack([task.train_x for task in tasks]) for tasks in drawn], 1)
        self.y = torch.stack([torch.stack([task.train_y for task in tasks]) for tasks in drawn], 1)
        self.test_x = torch.stack([task.test_x for task in drawn[0]])
        self.test_y = torch.stack([task.test_y for task in drawn[0]])
        self.plan: dict[str, Any] = {}
        self.stacks = {}
        for init in config.inits:
            net = build(config, init)
            nets = [values_and_embeddings_of(draw_init(net, seed)) for seed in self.seeds]
            optimiser = OPTIMISER_NAMES[config.optimiser]
            self.stacks[f"{init}/"] = RegressionStack(nets, config.rates, widths(), torch.relu, optimiser, config.beta)
            self.plan[init] = net.plan.to_dict()

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The next points of every run."""
        task, iteration = self.place(step)
        chosen = batches(self.config, task)[:, iteration, :, None]
        x, y = (self._by_run(of[task].gather(1, chosen)) for of in (self.x, self.y))
        return x, y

    def train(self, stack: RegressionStack, batch: tuple[Tensor, Tensor], count: int) -> Tensor:
        """A step of the runs of an init."""
        x, y = batch
        return stack.step(functools.partial(stack.losses, x=x, y=y), count)

    @staticmethod
    def typical(losses: Tensor) -> float:
        """The median, since losses of a grid differ by orders of magnitude."""
        return losses.median().item() if len(losses) else math.nan

    def losses(self, task: int) -> Tensor:
        """On all training points of the task."""
        x, y = (self._by_run(of[task]) for of in (self.x, self.y))
        return torch.cat([stack.losses(stack.task_values(task), x, y) for stack in self.stacks.values()])

    def errors(self, learnt: int) -> dict[str, Any]:
        """After a task, the mean squared error on the clean points of every task, and the fits themselves."""
        if not learnt:
            return {}
        runs = len(self.config.rates) * self.config.seeds
        made = [
            torch.cat([stack.predict(task, x.expand(runs, -1, -1)) for stack in self.stacks.values()])
            for task, x in enumerate(self.test_x)
        ]
        fits = torch.stack(made, 1).squeeze(-1)
        errors = (fits - self.test_y.squeeze(-1)).square().mean(-1)
        return {"after": learnt - 1, "errors": errors.tolist(), "fits": rounded(fits.tolist(), 4)}

    def _by_run(self, by_seed: Tensor) -> Tensor:
        """What each seed has, for all runs of a stack."""
        return by_seed.repeat(len(self.config.rates), 1, 1)
