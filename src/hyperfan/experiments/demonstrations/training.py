"""Training of the demonstrations experiment: nets and demonstrations of each seed, trained side by side."""

import functools
import itertools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes import Embedding
from hyperfan.data.curves import SHAPES, demonstrations
from hyperfan.data.lasa import lasa
from hyperfan.data.lookup import LASA_SHAPES
from hyperfan.experiments.demonstrations import DEMONSTRATIONS, WINDOW, Biases, Demonstrations
from hyperfan.experiments.demonstrations.stack import PathStack, errors
from hyperfan.experiments.draws import draw_as_torch, draw_init, head_layers, trunk_layers
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import values_and_embeddings_of
from hyperfan.experiments.stack_training import TaskTraining
from hyperfan.files import rounded
from hyperfan.hypernet import HyperNet

INPUTS, OUTPUTS = 3, 2
"""Inputs and outputs of the mainnet: position and time; velocity."""
NORMAL = "auddy2024-normal"
"""The init that is drawn from a normal distribution."""
KEPT_POINTS = 25
"""Points of a path in the metrics."""


def widths(config: Demonstrations) -> list[int]:
    """The widths of the mainnet, from its inputs to its outputs."""
    return [INPUTS, *config.target, OUTPUTS]


def build(config: Demonstrations) -> HyperNet:
    """A net, to which ``draw`` gives the values of a seed."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths(config)):
        layers += [nn.Linear(before, after), nn.ELU()]
    return HyperNet(
        nn.Sequential(*layers[:-1]),
        Embedding(config.embedding, trainable=True, per="net", tasks=config.tasks, distribution="normal"),
        generate="weights+biases",
        trunk=config.hidden,
        heads="separate",
        init=config.init,
        share=1.0,
        distribution="normal" if config.init == NORMAL else "uniform",
    )


def draw(net: HyperNet, seed: int, biases: Biases) -> HyperNet:
    """Write the init's values of a seed into a net."""
    draw_init(net, seed)
    if biases == "torch":
        layers = trunk_layers(net) + head_layers(net)
        draw_as_torch(((layer.bias, layer.fan_in) for layer in layers), generator(seed, "biases"))
    return net


def shapes(config: Demonstrations, seed: int) -> list[str]:
    """The shapes that a seed learns, in their order."""
    names = LASA_SHAPES if config.curves == "lasa" else list(SHAPES)
    order = torch.randperm(len(names), generator=generator(seed, "shapes"))[: config.tasks]
    return [names[i] for i in order]


@functools.lru_cache(maxsize=1)
def recorded(data_dir: Path | None, points: int) -> dict[str, Tensor]:
    """LASA's shapes, which all seeds share."""
    return lasa(data_dir, points=points)


def demonstrated(config: Demonstrations, seed: int, data_dir: Path | None = None) -> Tensor:
    """The demonstrations of every task, (task, demonstration, point, 2): a seed's own, or LASA's."""
    if config.curves == "lasa":
        return torch.stack([recorded(data_dir, config.points)[shape] for shape in shapes(config, seed)])
    drawn = [
        demonstrations(shape, generator(seed, "demonstrations", shape), count=DEMONSTRATIONS, points=config.points)
        for shape in shapes(config, seed)
    ]
    return torch.stack(drawn)


@functools.lru_cache(maxsize=1)
def first_points(config: Demonstrations, task: int) -> Tensor:
    """The first points of all subsequences of a task, (run, iteration, demonstration)."""
    count, size = config.points - WINDOW + 1, (config.iterations, DEMONSTRATIONS)
    drawn = [torch.randint(count, size, generator=generator(seed, "windows", task)) for seed in config.seed_range]
    return torch.stack(drawn * len(config.rates))


class DemonstrationsTraining(TaskTraining[PathStack, tuple[Tensor, Tensor]]):
    """All runs as one stack, those of one rate together."""

    def __init__(self, config: Demonstrations, data_dir: Path | None = None) -> None:
        super().__init__(config, config.tasks)
        self.config = config
        self.data = torch.stack([demonstrated(config, seed, data_dir) for seed in self.seeds] * len(config.rates), 1)
        """(task, run, demonstration, point, 2)."""
        self.dt = 1 / (config.points - 1)
        net = build(config)
        nets = [values_and_embeddings_of(draw(net, seed, config.biases)) for seed in self.seeds]
        self.stacks = {"": PathStack(nets, config.rates, widths(config), config.beta)}
        self.plan: Any = net.plan.to_dict()

    @property
    def stack(self) -> PathStack:
        """All runs."""
        return self.stacks[""]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The next subsequences of every run, and the times at which they begin."""
        task, iteration = self.place(step)
        return self._windows(task, first_points(self.config, task)[:, iteration])

    def train(self, stack: PathStack, batch: tuple[Tensor, Tensor], count: int) -> Tensor:
        """A step of all runs."""
        return stack.step(lambda values: stack.losses(values, *batch, self.dt), count)

    def losses(self, task: int) -> Tensor:
        """On subsequences that cover all demonstrations, each half of the one before."""
        found = []
        for start in range(0, self.config.points - WINDOW + 1, WINDOW // 2):
            starts = torch.full(self.data.shape[1:3], start)
            window, times = self._windows(task, starts)
            found.append(errors(self.stack.follow(task, window[:, :, 0], WINDOW - 1, self.dt, times), window))
        return torch.stack(found).mean(0)

    def errors(self, learnt: int) -> dict[str, Any]:
        """Mean squared error of whole paths from their start, in every task, and the first demonstration's path."""
        found, paths = [], []
        for task, demonstrated in enumerate(self.data):
            made = self.stack.follow(task, demonstrated[:, :, 0], self.config.points - 1, self.dt)
            found.append(errors(made, demonstrated))
            kept = torch.linspace(0, self.config.points - 1, KEPT_POINTS).long()
            paths.append(made[:, 0, kept])
        return {"learnt": learnt, "errors": _by_run(found), "paths": rounded(_by_run(paths), 4)}

    def _windows(self, task: int, starts: Tensor) -> tuple[Tensor, Tensor]:
        """The subsequences of every demonstration from points (run, demonstration), and the times of these."""
        points = starts[:, :, None, None] + torch.arange(WINDOW)[:, None]
        chosen = self.data[task].gather(2, points.expand(-1, -1, -1, OUTPUTS))
        return chosen, starts.unsqueeze(-1) * self.dt


def _by_run(values: list[Tensor]) -> Any:
    return torch.stack(values, 1).tolist()
