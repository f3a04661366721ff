"""What a run starts from: its net, its points and the order of its batches, each from the run's seed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hyperfan.codes import Embedding
from hyperfan.data import regression_tasks
from hyperfan.data.regression import Task
from hyperfan.errors import RunError
from hyperfan.experiments.continual.config import TASKS, Continual
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet
from hyperfan.init import method
from hyperfan.models import regression_net

TRUNK = (10, 10)


def build(config: Continual, init: str) -> HyperNet:
    """A net of this init, still without values: ``draw`` gives it those of a seed."""
    name, at, fidelity = init.partition("@")
    if at and fidelity != "exact":
        raise RunError(f"--inits {init}: write '{name}' for the paper's fidelity, or '{name}@exact'")
    how = method(name)
    # A method that sets embeddings sets one for each tensor; otherwise a task has one embedding.
    with torch.device("meta"):
        mainnet = regression_net().to(dtype(config))
    return HyperNet(
        mainnet,
        Embedding(config.embedding, trainable=True, per="net" if how.embedding is None else "tensor", tasks=TASKS),
        generate="weights+biases",
        trunk=TRUNK,
        heads="separate",
        init=how,
        fidelity="exact" if at else "paper",
    ).to_empty(device="cpu")


def draw(net: HyperNet, seed: int) -> HyperNet:
    """Start it anew."""
    net.reset_parameters(generator(seed, "init"), embeddings=generator(seed, "embeddings"))
    return net


def points(config: Continual, seed: int) -> Sequence[Task]:
    """The three tasks."""
    drawn = regression_tasks(generator(seed, "points"), train=config.points)
    kind = dtype(config)
    return [Task(t.name, *(v.to(kind) for v in (t.train_x, t.train_y, t.test_x, t.test_y))) for t in drawn]


def order(config: Continual, seed: int, task: int) -> Tensor:
    """Which points are in each batch of a task, (iterations, batch): pass after pass, each in an order of its own."""
    draws = generator(seed, "order", task)
    passes = -(-config.iterations * config.batch // config.points)
    shuffled = torch.rand(passes, config.points, generator=draws).argsort(1)
    return shuffled.flatten()[: config.iterations * config.batch].view(config.iterations, config.batch)


def dtype(config: Continual) -> torch.dtype:
    """Of all numbers."""
    return {"float32": torch.float32, "float64": torch.float64}[config.precision]
