"""What conditioned hypernets are used for, each as a small job: data of a seed, conditions, mainnet and loss."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid

from hyperfan.experiments.conditions import STAGES
from hyperfan.experiments.seeds import generator

Batch = dict[str, Tensor]
"""Tensors of (condition, point, …), or, of many runs, (run, condition, point, …)."""
Mainnets = Callable[[Tensor], Tensor]
"""The mainnets: (run, condition, point, inputs) → (run, condition, point, outputs)."""
Teacher = Callable[[Tensor, Tensor], Tensor]
"""The targets of a job: (condition, size) and (condition, point, inputs) → (condition, point, 1)."""


@dataclass(frozen=True)
class World:
    """The data of one seed.

    Args:
        conditions: all of them, those for training first, (n, size); none where a net has a table for them.
        batch: makes a batch, from indices of conditions, the number of points under each, a source of randomness, and
            whether it is for a test.
    """

    conditions: Tensor | None
    batch: Callable[[Tensor, int, Generator, bool], Batch]


TRAINED = "normal, variance 1, then trained"
"""The distribution of conditions in a table."""


class Job(ABC):
    """A job: what is learnt under which conditions.

    Attributes:
        label: what it is, in a few words.
        size: of a condition.
        distribution: of a condition's values, in a few words.
        known: conditions in training.
        unseen: conditions that only tests have.
        batch: conditions in a batch.
        points: points under each of them.
        inputs, outputs: of the mainnet.
        nonlinearity: of the mainnet.
        trunk_layers: of the trunk.
        stages: how many tasks come one after another, or 1 if all are there from the start.
        beta: weight of the regulariser that keeps what was generated for earlier tasks.
    """

    label: ClassVar[str]
    size: ClassVar[int]
    inputs: ClassVar[int]
    distribution: ClassVar[str] = "normal, variance 1"
    known: ClassVar[int] = 128
    unseen: ClassVar[int] = 32
    batch: ClassVar[int] = 16
    points: ClassVar[int] = 8
    outputs: ClassVar[int] = 1
    nonlinearity: ClassVar[Literal["relu", "tanh", "sin"]] = "relu"
    trunk_layers: ClassVar[int] = 1
    stages: ClassVar[int] = 1
    beta: ClassVar[float] = 0.0

    @abstractmethod
    def world(self, seed: int, data_dir: Path | None) -> World:
        """The data of a seed."""

    def loss(self, call: Mainnets, batch: Batch) -> Tensor:
        """The loss of each run under each condition, (run, condition); by default the mean squared error."""
        return (call(batch["x"]) - batch["y"]).square().mean((2, 3))

    def normal_conditions(self, draws: Generator) -> Tensor:
        """Conditions of normal values, for training and for tests."""
        return torch.randn(self.known + self.unseen, self.size, generator=draws)


# ── teachers ───────────────────────────────────────────────────────────────────────────────────────────────────────

SCALE_DRAWS = 4096
"""Samples on which targets are brought to variance 1."""


def taught(conditions: Tensor, teach: Teacher, inputs: int, draws: Generator) -> World:
    """Normal inputs and a teacher's targets, which are brought to variance 1 over all conditions."""
    x = torch.randn(len(conditions), SCALE_DRAWS // len(conditions), inputs, generator=draws)
    scale = 1 / teach(conditions, x).std()

    def batch(chosen: Tensor, points: int, draws: Generator, test: bool) -> Batch:
        x = torch.randn(len(chosen), points, inputs, generator=draws)
        return {"x": x, "y": scale * teach(conditions[chosen], x)}

    return World(conditions, batch)


def random_net(inputs: int, hidden: int, draws: Generator) -> Callable[[Tensor], Tensor]:
    """A random function: a tanh net of one hidden layer, whose pre-activations have standard deviation 1.5."""
    first = 1.5 * torch.randn(inputs, hidden, generator=draws) / math.sqrt(inputs)
    second = torch.randn(hidden, 1, generator=draws) / math.sqrt(hidden)
    return lambda x: torch.tanh(x @ first) @ second


class Turned(Job):
    """The inputs of one teacher are turned by the context, in each of four planes."""

    label = "context: a teacher whose inputs are turned"
    size = inputs = 8

    def world(self, seed: int, data_dir: Path | None) -> World:
        """A teacher, and how angles depend on the context."""
        draws = generator(seed, "world")
        net = random_net(self.inputs, 16, draws)
        to_angles = torch.randn(self.size, self.inputs // 2, generator=draws) / math.sqrt(self.size)

        def teach(c: Tensor, x: Tensor) -> Tensor:
            angles = (c @ to_angles).unsqueeze(1)
            a, b = x.chunk(2, -1)
            return net(torch.cat([angles.cos() * a - angles.sin() * b, angles.sin() * a + angles.cos() * b], -1))

        return taught(self.normal_conditions(draws), teach, self.inputs, draws)


class Projection(Job):
    """The sine of a projection of the inputs along a direction that the context gives."""

    label = "context: the sine of a projection"
    size = inputs = 6

    def world(self, seed: int, data_dir: Path | None) -> World:
        """How the direction depends on the context."""
        draws = generator(seed, "world")
        direction = torch.randn(self.size, self.inputs, generator=draws) / self.size

        def teach(c: Tensor, x: Tensor) -> Tensor:
            return torch.sin(2 * (x * (c @ direction).unsqueeze(1)).sum(-1, keepdim=True))

        return taught(self.normal_conditions(draws), teach, self.inputs, draws)


class Joint(Job):
    """A function of context and inputs together; with a tanh mainnet, a deeper trunk, and trained for longer."""

    label = "context: a function of it and the inputs"
    size, inputs = 8, 3
    known = 256
    nonlinearity = "tanh"
    trunk_layers = 2

    def world(self, seed: int, data_dir: Path | None) -> World:
        """A random function of context and inputs."""
        draws = generator(seed, "world")
        net = random_net(self.size + self.inputs, 64, draws)

        def teach(c: Tensor, x: Tensor) -> Tensor:
            return net(torch.cat([c.unsqueeze(1).expand(-1, x.shape[1], -1), x], -1))

        return taught(self.normal_conditions(draws), teach, self.inputs, draws)


class Tasks(Job):
    """Several tasks with features in common, each with an embedding in a table that is trained."""

    label = "tasks: a table of trained embeddings"
    size = inputs = 8
    distribution = TRAINED
    known, unseen = 16, 0
    FEATURES: ClassVar[int] = 24

    def world(self, seed: int, data_dir: Path | None) -> World:
        """The features, and a mixture of them for each task, which the net is not given."""
        draws = generator(seed, "world")
        first = 1.5 * torch.randn(self.inputs, self.FEATURES, generator=draws) / math.sqrt(self.inputs)
        mixtures = torch.randn(self.known, self.FEATURES, generator=draws)
        found = taught(mixtures, lambda u, x: torch.tanh(x @ first) @ u.unsqueeze(-1), self.inputs, draws)
        return replace(found, conditions=None)


class Sequence(Tasks):
    """Tasks like those of *tasks*, one after another."""

    label = "tasks one after another"
    known, batch, points = STAGES, 1, 64
    stages = STAGES


class Remembered(Sequence):
    """As *sequence*, with the output regulariser of von Oswald et al. 2020, without its look-ahead."""

    label = "tasks one after another, regularised"
    beta = 0.1


# ── other data and losses ──────────────────────────────────────────────────────────────────────────────────────────


class Preferences(Job):
    """A preference between three teachers that contradict each other → the net that serves it best."""

    label = "preferences between three losses"
    size, inputs = 3, 6
    distribution = "uniform on the simplex, standardised"
    SHARPNESS: ClassVar[float] = 4.0

    def world(self, seed: int, data_dir: Path | None) -> World:
        """The teachers, and preferences uniform on the simplex; as conditions these are standardised."""
        draws = generator(seed, "world")
        teachers = [random_net(self.inputs, 16, draws) for _ in range(self.size)]
        exponentials = -torch.rand(self.known + self.unseen, self.size, generator=draws).log()
        preferences = exponentials / exponentials.sum(-1, keepdim=True)

        def batch(chosen: Tensor, points: int, draws: Generator, test: bool) -> Batch:
            x = torch.randn(len(chosen), points, self.inputs, generator=draws)
            y = torch.cat([teach(x) for teach in teachers], -1)
            weights = preferences[chosen].unsqueeze(1).expand_as(y).contiguous()
            return {"x": x, "y": y, "weights": weights, "least": self._least(y, weights)}

        # Mean 1/3 and variance 1/18 are those of the uniform distribution on the simplex.
        return World((preferences - 1 / 3) * math.sqrt(18), batch)

    def _least(self, y: Tensor, weights: Tensor) -> Tensor:
        """The least loss that is possible at each point, by bisection, as the derivative grows."""
        low, high = y.amin(-1, keepdim=True), y.amax(-1, keepdim=True)
        for _ in range(12):
            middle = (low + high) / 2
            beyond = (weights * torch.tanh(self.SHARPNESS * (middle - y))).sum(-1, keepdim=True) > 0
            low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
        return self._weighted(low, y, weights)

    def _weighted(self, made: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Σ w·log cosh(s·(made − y))/s, nearly an absolute deviation: (…, 1) and (…, teachers) → (…)."""
        z = 2 * self.SHARPNESS * (made - y)
        log_cosh = (-logsigmoid(z) - logsigmoid(-z) - math.log(4)) / 2
        return (weights * log_cosh).sum(-1) / self.SHARPNESS

    def loss(self, call: Mainnets, batch: Batch) -> Tensor:
        """What the preference makes of the three, less the least that is possible at each point."""
        found = self._weighted(call(batch["x"]), batch["y"], batch["weights"])
        return (found - batch["least"]).mean(2)


class FewShot(Job):
    """Eight noisy observations of a function → a net that continues it."""

    label = "few shots of a function"
    size, inputs = 8, 1
    distribution = "values of a sine with noise"
    known = 256
    REACH: ClassVar[float] = 3.0
    NOISE: ClassVar[float] = 0.1

    def world(self, seed: int, data_dir: Path | None) -> World:
        """Sines of several amplitudes, frequencies and phases."""
        draws, shape = generator(seed, "world"), (self.known + self.unseen, 1, 1)
        amplitude, frequency, phase = (
            torch.empty(shape).uniform_(low, high, generator=draws)
            for low, high in ((0.5, 2.0), (0.5, 1.5), (-math.pi, math.pi))
        )
        shots = torch.linspace(-self.REACH, self.REACH, self.size).view(1, -1, 1)
        seen = (amplitude * torch.sin(frequency * shots + phase)).squeeze(-1)
        seen = seen + self.NOISE * torch.randn(seen.shape, generator=draws)

        def batch(chosen: Tensor, points: int, draws: Generator, test: bool) -> Batch:
            x = torch.empty(len(chosen), points, 1).uniform_(-self.REACH, self.REACH, generator=draws)
            y = amplitude[chosen] * torch.sin(frequency[chosen] * x + phase[chosen])
            return {"x": x * math.sqrt(3) / self.REACH, "y": y}

        return World(seen, batch)


class Policy(Job):
    """Steer a mass to a goal, against a wind, where goal, wind and drag are the context."""

    label = "policy from a context"
    size, inputs, outputs = 5, 4, 2
    points = 4
    STEPS: ClassVar[int] = 6
    DT: ClassVar[float] = 0.3
    EFFORT: ClassVar[float] = 0.02

    def world(self, seed: int, data_dir: Path | None) -> World:
        """Contexts: goal (2), wind (2), drag (1), all normal; and states to start from, place and speed."""
        contexts = self.normal_conditions(generator(seed, "world"))

        def batch(chosen: Tensor, points: int, draws: Generator, test: bool) -> Batch:
            x = torch.randn(len(chosen), points, self.inputs, generator=draws)
            return {"x": x, "context": contexts[chosen].unsqueeze(1)}

        return World(contexts, batch)

    def loss(self, call: Mainnets, batch: Batch) -> Tensor:
        """Mean squared distance to the goal along the way, and a little for effort."""
        state, c = batch["x"], batch["context"]
        goal, wind, drag = c[..., :2], 0.5 * c[..., 2:4], 0.3 * c[..., 4:].exp()
        total = torch.zeros(state.shape[:2])
        for _ in range(self.STEPS):
            force = call(state)
            place, speed = state[..., :2], state[..., 2:]
            speed = speed + self.DT * (force + wind - drag * speed)
            place = place + self.DT * speed
            state = torch.cat([place, speed], -1)
            cost = (place - goal).square().mean(-1) + self.EFFORT * force.square().mean(-1)
            total = total + cost.mean(2) / self.STEPS
        return total


class Sine(nn.Module):
    """The sine, as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return x.sin()


NONLINEARITIES: Mapping[str, tuple[type[nn.Module], Callable[[Tensor], Tensor]]] = {
    "relu": (nn.ReLU, torch.relu),
    "tanh": (nn.Tanh, torch.tanh),
    "sin": (Sine, torch.sin),
}
"""The mainnets' nonlinearities, each as a layer and as a function."""
