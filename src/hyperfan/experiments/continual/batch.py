"""Many runs of one structure as one program: the first dimension of every tensor counts runs.

All that follows is written for a single run and mapped over the stack by ``torch.func.vmap``. Heads that read the same
code are one matrix here, since a few large products cost less than many small ones.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn.functional import mse_loss

from hyperfan.experiments.stack import BETAS, EPS, HEAD, HEAD_BIAS, Tensors, values_of
from hyperfan.hypernet import HyperNet

Points = tuple[Tensor, Tensor]
"""Inputs and the values wanted there; of earlier tasks, their embeddings and the values generated from them."""
Rule = Callable[[Tensors, Tensors, Tensors, Tensor, Tensor], tuple[Tensors, Tensors]]
"""An optimiser's step: from values, gradients, its state, rate and number of the step to new values and state."""
EMBEDDING = "embedding"


class Structure:
    """How one run computes, read from any net of the structure, all generated; values come from outside."""

    def __init__(self, net: HyperNet) -> None:
        assert net.trunk is not None
        self.net, self.trunk = net, net.trunk
        self.names = [t.name for t in net.generated]
        self.shapes = [t.shape for t in net.generated]
        self.sizes = [t.numel for t in net.generated]
        ends = [0, *itertools.accumulate(self.sizes)]
        self.columns = [slice(*pair) for pair in itertools.pairwise(ends)]

    def values(self) -> Tensors:
        """The net's values as the functions below take them: trunk, heads side by side, embeddings."""
        return {**values_of(self.net), "embeddings": self.net.embeddings.get_parameter("weight").detach().clone()}

    def generate(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """All generated values for each task: (tasks, n, size) → (tasks, values)."""
        trunk = {name.removeprefix("trunk."): t for name, t in theta.items() if name.startswith("trunk.")}
        tasks, n, size = embeddings.shape
        codes: Tensor = functional_call(self.trunk, trunk, (embeddings.reshape(-1, size),))
        values = codes @ theta[HEAD] + theta[HEAD_BIAS]
        if n == 1:
            return values
        values = values.view(tasks, n, -1)  # by code, of which each tensor has one, and columns
        return torch.cat([values[:, i, columns] for i, columns in enumerate(self.columns)], 1)

    def predict(self, theta: Tensors, embedding: Tensor, x: Tensor) -> Tensor:
        """The mainnet's outputs for x in the task of this embedding, (n, size)."""
        (values,) = self.generate(theta, embedding[None])
        parts = [v.view(shape) for v, shape in zip(values.split(self.sizes), self.shapes, strict=True)]
        out: Tensor = self.net.skeleton(dict(zip(self.names, parts, strict=True)), x)
        return out

    def loss(self, params: Tensors, x: Tensor, y: Tensor) -> Tensor:
        """The loss of the task alone. ``params`` is theta with the task's embedding."""
        return mse_loss(self.predict(params, params[EMBEDDING], x), y)

    def drift(self, theta: Tensors, embeddings: Tensor, past: Tensor) -> Tensor:
        """How far the values of earlier tasks have moved: sum of squares, mean over tasks."""
        return (self.generate(theta, embeddings) - past).square().sum() / len(past)


class Batch:
    """Runs of one structure, each with its values and learning rate, trained side by side.

    ``beta`` is the weight of the regulariser.
    """

    def __init__(
        self, structure: Structure, values: Sequence[Tensors], rates: Tensor, optimiser: str, beta: float
    ) -> None:
        self.structure, self.rates, self.beta = structure, rates, beta
        self.rule = RULES[optimiser]
        stacked = {name: torch.stack([v[name] for v in values]) for name in values[0]}
        self.embeddings, self.theta = stacked.pop("embeddings"), stacked
        self.held: Tensors = {}
        self.past = self.embeddings.new_empty(len(values), 0, sum(structure.sizes))
        self.task = -1

    def __len__(self) -> int:
        return len(self.rates)

    def begin(self, task: int) -> None:
        """Before the first step on a task: remember the values generated for earlier ones, and reset the optimiser."""
        self.task = task
        params = {**self.theta, EMBEDDING: self.embeddings[:, task]}
        moments = ("mean", "square") if self.rule is adam else ()
        self.held = {f"{moment}.{name}": torch.zeros_like(t) for moment in moments for name, t in params.items()}
        self.past = vmap(self.structure.generate)(self.theta, self.embeddings[:, :task]) if task else self.past[:, :0]

    def step(self, x: Tensor, y: Tensor, count: int) -> Tensor:
        """One step of each run on its batch, (runs, batch, 1), the ``count``-th of the task; returns the losses."""
        number = torch.tensor(float(count), dtype=x.dtype)
        params = {**self.theta, EMBEDDING: self.embeddings[:, self.task]}
        steps = vmap(self._step, in_dims=(0, 0, 0, 0, 0, None))
        earlier = self.embeddings[:, : self.task], self.past
        params, self.held, losses = steps(params, self.held, earlier, (x, y), self.rates, number)
        self.embeddings = self.embeddings.clone()
        self.embeddings[:, self.task] = params.pop(EMBEDDING)
        self.theta = params
        return losses

    def _step(
        self, params: Tensors, held: Tensors, earlier: Points, batch: Points, rate: Tensor, n: Tensor
    ) -> tuple[Tensors, Tensors, Tensor]:
        grads, loss = grad_and_value(self.structure.loss)(params, *batch)
        if self.task:
            theta = {name: t for name, t in params.items() if name != EMBEDDING}
            candidate, _ = self.rule(theta, grads, held, rate, n)
            pull = grad(lambda theta: self.beta * self.structure.drift(theta, *earlier))(candidate)
            grads = {name: g + pull[name] if name in pull else g for name, g in grads.items()}
        return *self.rule(params, grads, held, rate, n), loss

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of each run in the present task, on (runs, points, 1)."""
        params = {**self.theta, EMBEDDING: self.embeddings[:, self.task]}
        found: Tensor = vmap(self.structure.loss)(params, x, y)
        return found

    def predictions(self, task: int, x: Tensor) -> Tensor:
        """The outputs of each run in a task at the same points, (points, 1) → (runs, points)."""
        predict = vmap(self.structure.predict, in_dims=(0, 0, None))
        return predict(self.theta, self.embeddings[:, task], x).squeeze(-1)

    def keep(self, which: Tensor) -> None:
        """Go on with these runs only."""
        self.theta, self.held = ({name: t[which] for name, t in held.items()} for held in (self.theta, self.held))
        self.embeddings, self.past, self.rates = self.embeddings[which], self.past[which], self.rates[which]

    def state(self) -> Tensors:
        """All that changes in training."""
        tensors = {f"theta.{name}": t for name, t in self.theta.items()}
        tensors |= {f"held.{name}": t for name, t in self.held.items()}
        return {**tensors, "embeddings": self.embeddings, "past": self.past, "rates": self.rates}

    def load(self, state: Tensors, task: int) -> None:
        """Restore what ``state`` returned, in a task."""
        self.theta, self.held = (
            {name.removeprefix(part): t for name, t in state.items() if name.startswith(part)}
            for part in ("theta.", "held.")
        )
        self.embeddings, self.past, self.rates, self.task = state["embeddings"], state["past"], state["rates"], task


def sgd(values: Tensors, grads: Tensors, held: Tensors, rate: Tensor, n: Tensor) -> tuple[Tensors, Tensors]:
    """Plain SGD."""
    return {name: torch.addcmul(t, grads[name], rate, value=-1) for name, t in values.items()}, held


def adam(values: Tensors, grads: Tensors, held: Tensors, rate: Tensor, n: Tensor) -> tuple[Tensors, Tensors]:
    """Adam with torch's defaults."""
    after: Tensors = {}
    holds: Tensors = {}
    for name, t in values.items():
        g = grads[name]
        mean = BETAS[0] * held[f"mean.{name}"] + (1 - BETAS[0]) * g
        square = BETAS[1] * held[f"square.{name}"] + (1 - BETAS[1]) * g.square()
        root = (square / (1 - BETAS[1] ** n)).sqrt() + EPS
        after[name] = t - rate * mean / (1 - BETAS[0] ** n) / root
        holds |= {f"mean.{name}": mean, f"square.{name}": square}
    return after, holds


RULES: dict[str, Rule] = {"sgd": sgd, "adam": adam}
