"""Many hypernets of one structure as one program: the first dimension of every tensor counts runs.

A product of matrices for all runs is one call, where many small nets would otherwise each cost a call. Heads that read
the same code are one matrix, since a few large products cost less than many small ones.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from hyperfan.experiments.optimisers import Optimiser
from hyperfan.experiments.state import join_states, part_of
from hyperfan.hypernet import HyperNet

Tensors = dict[str, Tensor]
TensorFunction = Callable[[Tensor], Tensor]
BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 1e-2
"""Torch's defaults; the decay is AdamW's."""
HEAD, HEAD_BIAS = "heads.weight", "heads.bias"
EMBEDDING = "embedding"
"""The embedding of the present task, among what is trained."""


def values_of(net: HyperNet) -> Tensors:
    """The values of a net with a ReLU trunk and separate heads, whose heads are put side by side."""
    heads = [net.heads.head(name) for name in net.heads.names]
    assert net.trunk is not None
    values: Tensors = {f"trunk.{name}": p for name, p in net.trunk.named_parameters()}
    values[HEAD] = torch.cat([head.weight for head in heads], 1)
    values[HEAD_BIAS] = torch.cat([head.bias for head in heads])
    return {name: t.detach().clone() for name, t in values.items()}


def values_and_embeddings_of(net: HyperNet) -> tuple[Tensors, Tensor]:
    """The values of a net, and its embeddings: (task, size), or (task, tensor, size) if each tensor has one."""
    return values_of(net), net.embeddings.get_parameter("weight").squeeze(-2).detach().clone()


class Stack:
    """Hypernets of one structure, each with a mainnet of linear layers, and an optimiser.

    Args:
        nets: values of each, as :func:`values_of` has them, with whatever else is trained; trained at each rate.
        rates: learning rates. Runs are counted nets fastest.
        widths: of the mainnet's layers, from its inputs to its outputs.
        nonlinearity: between them.
        optimiser: how they are trained.
        mask: 1 for values of a mainnet that depend on the code, and 0 for those that do not; by default all do.

    Attributes:
        sizes: of the mainnet's tensors, weight and bias of each layer in turn.
        theta: what is trained, by name.
        means, squares: the optimiser's moments, if it has any, by the same names.
        past: what was generated for earlier tasks when the present one began, (run, task, values).
    """

    def __init__(
        self,
        nets: Sequence[Tensors],
        rates: Sequence[float],
        widths: Sequence[int],
        nonlinearity: TensorFunction,
        optimiser: Optimiser,
        mask: Tensor | None = None,
    ) -> None:
        self.rates, self.widths, self.nonlinearity, self.optimiser = rates, widths, nonlinearity, optimiser
        self.mask = mask
        self.sizes = [size for before, after in itertools.pairwise(widths) for size in (before * after, after)]
        runs = [*nets] * len(rates)
        self.theta = {name: torch.stack([values[name] for values in runs]) for name in runs[0]}
        self.past = self.theta[HEAD].new_empty(len(runs), 0, self.theta[HEAD].shape[-1])
        self.means: Tensors = {}
        self.squares: Tensors = {}
        self.reset_moments(self.theta)

    def codes(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """What the heads read: (run, n, size) → (run, n, width)."""
        layers = [name.removesuffix(".weight") for name in theta if name.startswith("trunk.") and "weight" in name]
        for layer in layers:
            bias = theta[f"{layer}.bias"].unsqueeze(1)
            embeddings = torch.baddbmm(bias, embeddings, theta[f"{layer}.weight"].mT).relu()
        return embeddings

    def generate(self, theta: Tensors, embeddings: Tensor) -> Tensor:
        """All values of the mainnet from each embedding: (run, n, size) → (run, n, values)."""
        head = theta[HEAD] if self.mask is None else theta[HEAD] * self.mask
        return torch.baddbmm(theta[HEAD_BIAS].unsqueeze(1), self.codes(theta, embeddings), head)

    def call(self, values: Tensor) -> TensorFunction:
        """The mainnets with these values, (run, …, values), as a function of (run, …, points, inputs)."""
        parts = torch.split(values, self.sizes, -1)
        layers = [
            (parts[2 * i].reshape(-1, after, before).mT, parts[2 * i + 1].reshape(-1, 1, after))
            for i, (before, after) in enumerate(itertools.pairwise(self.widths))
        ]

        def run(x: Tensor) -> Tensor:
            found = x.flatten(0, -3)
            for i, (weight, bias) in enumerate(layers):
                found = torch.baddbmm(bias, found if i == 0 else self.nonlinearity(found), weight)
            return found.view(*x.shape[:-1], -1)

        return run

    def begin(self, task: int) -> None:
        """Before the first step on a task: start the optimiser anew."""
        self.reset_moments(self.theta)

    def reset_moments(self, params: Tensors) -> None:
        """Start the optimiser of these parameters anew."""
        if self.optimiser != "SGD":
            self.means, self.squares = ({name: torch.zeros_like(t) for name, t in params.items()} for _ in range(2))

    @torch.no_grad()
    def update_(self, params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, count: int) -> None:
        """The optimiser's step, the ``count``-th, of the runs at each rate."""
        size = len(next(iter(params.values()))) // len(self.rates)
        for i, lr in enumerate(self.rates):
            runs = slice(i * size, (i + 1) * size)
            if self.optimiser == "SGD":
                for name, t in params.items():
                    t[runs].sub_(grads[name][runs], alpha=lr)
                continue
            step = adamw if self.optimiser == "AdamW" else adam
            step(
                [t[runs] for t in params.values()],
                [grads[name][runs] for name in params],
                [means[name][runs] for name in params],
                [squares[name][runs] for name in params],
                max_exp_avg_sqs=[],
                state_steps=[torch.tensor(count - 1.0) for _ in params],
                fused=True,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=lr,
                weight_decay=DECAY if self.optimiser == "AdamW" else 0.0,
                eps=EPS,
                maximize=False,
            )

    def state(self) -> Tensors:
        """All that changes in training."""
        return {**join_states({"theta/": self.theta, "mean/": self.means, "square/": self.squares}), "past": self.past}

    def load(self, state: Tensors) -> None:
        """Restore what ``state`` returned."""
        self.theta, self.means, self.squares = (part_of(state, prefix) for prefix in ("theta/", "mean/", "square/"))
        self.past = state["past"]


class TaskStack(Stack):
    """A stack that learns one task after another, with an embedding for each, and a regulariser against forgetting.

    Args:
        nets: values and embeddings, as :func:`values_and_embeddings_of` has them.
        rates, widths, nonlinearity, optimiser: as for :class:`Stack`. The optimiser starts anew in every task.
        beta: weight of the squared change of what is generated for earlier tasks.

    Attributes:
        embeddings: of all tasks, with dimensions of runs and of tasks in front.
        task: the present one; −1 before the first.
    """

    def __init__(
        self,
        nets: Sequence[tuple[Tensors, Tensor]],
        rates: Sequence[float],
        widths: Sequence[int],
        nonlinearity: TensorFunction,
        optimiser: Optimiser,
        beta: float,
    ) -> None:
        super().__init__([values for values, _ in nets], rates, widths, nonlinearity, optimiser)
        self.embeddings = torch.stack([embeddings for _, embeddings in nets] * len(rates))
        self.beta, self.task = beta, -1

    def task_values(self, task: int) -> Tensor:
        """All values of the mainnet in a task as it is known now, (run, values)."""
        with torch.no_grad():
            return self.generate(self.theta, self.embeddings[:, task : task + 1]).squeeze(1)

    def begin(self, task: int) -> None:
        """Before the first step on a task: remember the values made for earlier ones, and start the optimiser anew."""
        self.task = task
        self.reset_moments(self._params())
        with torch.no_grad():
            self.past = self.generate(self.theta, self.embeddings[:, :task])

    def step(self, loss: TensorFunction, count: int) -> Tensor:
        """One step of each run on the present task; returns the losses before it, (run).

        Args:
            loss: from the generated values, (run, values), to the losses of the task, (run).
            count: the number of the step in the task, from 1.
        """
        params = {name: t.detach().requires_grad_() for name, t in self._params().items()}
        losses = loss(self.generate(params, params[EMBEDDING].unsqueeze(1)).squeeze(1))
        grads = gradients(losses, params)
        params = {name: t.detach() for name, t in params.items()}
        if self.task and self.beta:
            self._add_pull(params, grads, count)
        self.update_(params, grads, self.means, self.squares, count)
        self.embeddings[:, self.task] = params.pop(EMBEDDING)
        self.theta = params
        return losses.detach()

    def _params(self) -> Tensors:
        return {**self.theta, EMBEDDING: self.embeddings[:, self.task].clone()}

    def _add_pull(self, params: Tensors, grads: Tensors, count: int) -> None:
        """Add the regulariser's gradient where the step of the loss alone would lead."""
        ahead = {name: t.clone() for name, t in params.items() if name != EMBEDDING}
        means, squares = ({name: t.clone() for name, t in of.items()} for of in (self.means, self.squares))
        self.update_(ahead, grads, means, squares, count)
        for t in ahead.values():
            t.requires_grad_()
        drift = (self.generate(ahead, self.embeddings[:, : self.task]) - self.past).square().sum() / self.task
        pulls = torch.autograd.grad(self.beta * drift, list(ahead.values()))
        for name, pull in zip(ahead, pulls, strict=True):
            grads[name] += pull

    def state(self) -> Tensors:
        """All that changes in training."""
        return {**super().state(), "embeddings": self.embeddings, "task": torch.tensor(self.task)}

    def load(self, state: Tensors) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        self.embeddings, self.task = state["embeddings"], int(state["task"])


def gradients(losses: Tensor, params: Tensors) -> Tensors:
    """The gradients of all runs' losses by name, in memory order: those of transposed weights come transposed."""
    found = torch.autograd.grad(losses.sum(), list(params.values()))
    return {name: grad.contiguous() for name, grad in zip(params, found, strict=True)}
