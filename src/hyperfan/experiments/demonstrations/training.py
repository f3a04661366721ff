"""Training of the demonstrations experiment: nets and demonstrations of each seed, trained side by side."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes import Embedding
from hyperfan.data.curves import SHAPES, demonstrations
from hyperfan.experiments.demonstrations import DEMONSTRATIONS, WINDOW, Biases, Demonstrations
from hyperfan.experiments.demonstrations.stack import PathStack, errors
from hyperfan.experiments.experiment import GridTraining
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import values_and_embeddings_of
from hyperfan.files import rounded
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import Kind, Row

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
    net.reset_parameters(generator(seed, "init"), embeddings=generator(seed, "embeddings"))
    if biases == "torch":
        draws = generator(seed, "biases")
        assert net.trunk is not None
        layers = [(layer.bias, layer.in_features) for layer in net.trunk.modules() if isinstance(layer, nn.Linear)]
        heads = [net.heads.head(name) for name in net.heads.names]
        with torch.no_grad():
            for bias, fan_in in [*layers, *((head.bias, len(head.weight)) for head in heads)]:
                bias.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=draws)
    return net


def shapes(config: Demonstrations, seed: int) -> list[str]:
    """The shapes that a seed learns, in their order."""
    order = torch.randperm(len(SHAPES), generator=generator(seed, "shapes"))[: config.tasks]
    return [list(SHAPES)[i] for i in order]


def demonstrated(config: Demonstrations, seed: int) -> Tensor:
    """The demonstrations of every task, (task, demonstration, point, 2)."""
    drawn = [
        demonstrations(shape, generator(seed, "demonstrations", shape), count=DEMONSTRATIONS, points=config.points)
        for shape in shapes(config, seed)
    ]
    return torch.stack(drawn)


class DemonstrationsTraining(GridTraining):
    """All runs, trained side by side, those of one rate together. What diverges has a loss of NaN from then on."""

    def __init__(self, config: Demonstrations, data_dir: Path | None = None) -> None:
        self.config = config
        self.seeds = config.seed_range
        self.data = torch.stack([demonstrated(config, seed) for seed in self.seeds] * len(config.rates), 1)
        """(task, run, demonstration, point, 2)."""
        self.dt = 1 / (config.points - 1)
        net = build(config)
        nets = [values_and_embeddings_of(draw(net, seed, config.biases)) for seed in self.seeds]
        self.stack = PathStack(nets, config.rates, widths(config), config.beta)
        self.plan: Any = net.plan.to_dict()
        self._starts: tuple[int, Tensor] = (-1, torch.empty(0))

    def step(self, step: int) -> float:
        """One iteration of every run; returns the mean of their losses."""
        task, iteration = divmod(step, self.config.iterations)
        if iteration == 0:
            self.stack.begin(task)
        window, times = self._windows(task, self._drawn(task)[:, iteration])
        losses = self.stack.step(lambda values: self.stack.losses(values, window, times, self.dt), iteration + 1)
        self.latest = losses[losses.isfinite()]
        return self.typical(self.latest)

    def tests(self, step: int) -> Iterator[Row]:
        """The loss of the present task; before training and after each task, also the paths of all tasks."""
        if step % self.config.log_every:
            return
        task, iteration = divmod(step, self.config.iterations)
        if iteration == 0 and step:
            yield self._losses(step, task - 1, self.config.iterations)
        if iteration == 0:
            yield self._errors(step, task)
        if task < self.config.tasks:
            yield self._losses(step, task, iteration)

    def _losses(self, step: int, task: int, iteration: int) -> Row:
        """On subsequences that cover all demonstrations, each half of the one before."""
        found = []
        for start in range(0, self.config.points - WINDOW + 1, WINDOW // 2):
            starts = torch.full(self.data.shape[1:3], start)
            window, times = self._windows(task, starts)
            found.append(errors(self.stack.follow(task, window[:, :, 0], WINDOW - 1, self.dt, times), window))
        losses = torch.stack(found).mean(0)
        return {"kind": Kind.LOSSES, "step": step, "task": task, "iteration": iteration, "losses": losses.tolist()}

    def _errors(self, step: int, learnt: int) -> Row:
        """Mean squared error of whole paths from their start, in every task, and the first demonstration's path."""
        found, paths = [], []
        for task, demonstrated in enumerate(self.data):
            made = self.stack.follow(task, demonstrated[:, :, 0], self.config.points - 1, self.dt)
            found.append(errors(made, demonstrated))
            kept = torch.linspace(0, self.config.points - 1, KEPT_POINTS).long()
            paths.append(made[:, 0, kept])
        shown = rounded(_by_run(paths), 4)
        return {"kind": Kind.ERRORS, "step": step, "learnt": learnt, "errors": _by_run(found), "paths": shown}

    def _windows(self, task: int, starts: Tensor) -> tuple[Tensor, Tensor]:
        """The subsequences of every demonstration from points (run, demonstration), and the times of these."""
        points = starts[:, :, None, None] + torch.arange(WINDOW)[:, None]
        chosen = self.data[task].gather(2, points.expand(-1, -1, -1, OUTPUTS))
        return chosen, starts.unsqueeze(-1) * self.dt

    def _drawn(self, task: int) -> Tensor:
        """The first points of all subsequences of a task, (run, iteration, demonstration)."""
        if self._starts[0] != task:
            count, size = self.config.points - WINDOW + 1, (self.config.iterations, DEMONSTRATIONS)
            drawn = [torch.randint(count, size, generator=generator(seed, "windows", task)) for seed in self.seeds]
            self._starts = task, torch.stack(drawn * len(self.config.rates))
        return self._starts[1]

    def state(self) -> dict[str, Tensor]:
        """The state of all runs."""
        return self.stack.state()

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.stack.load(state)


def _by_run(values: list[Tensor]) -> Any:
    return torch.stack(values, 1).tolist()
