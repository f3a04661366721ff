"""How untrained nets of the conditions experiment are related under two conditions: by weights and by gradients."""

import math
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from hyperfan.experiments.conditions import JOB_TABLE, Conditions, setting
from hyperfan.experiments.conditions.jobs import NONLINEARITIES
from hyperfan.experiments.conditions.stack import ConditionStack, values_of
from hyperfan.experiments.conditions.training import JOBS_BY_NAME, build, draw, widths
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import Tensors

MEASURED_JOBS = tuple(name for name, entry in JOB_TABLE.items() if not entry.needs_data)
"""Jobs without data sets, so that a page can be made without data."""
SEEDS, PAIRED_CONDITIONS, INPUTS = 3, 8, 4
"""Nets, conditions whose pairs are looked at, and inputs on which gradients are taken."""


@dataclass(frozen=True)
class AtStart:
    """What two conditions' nets have in common before training, as means over pairs of conditions, tensors and seeds.

    Args:
        cosine: of two codes, cos(h, h′).
        correlation: of two conditions' weights.
        kernel: cosine of the gradients of two conditions' outputs for one input, in all parameters of the hypernet: the
            change of one output by a small step on the other, against what the step does to its own.
        share: part of the weights' mean square that differs from condition to condition.
        square: mean square of the weights over the variance that hyperfan-in wants.
        code: ‖h‖² + 1, the factor between the steps of a generated weight and of a plain one.
    """

    cosine: float
    correlation: float
    kernel: float
    share: float
    square: float
    code: float


def at_start(base: Conditions, job: str) -> dict[str, AtStart]:
    """Every start on a job."""
    config = setting(base, job, base.optimiser)
    found = {}
    for name, share in zip(config.starts, (*config.shares, None), strict=True):
        each = [_measure(config, share, config.seed + i) for i in range(SEEDS)]
        found[name] = AtStart(*(statistics.fmean(values) for values in zip(*each, strict=True)))
    return found


def _measure(config: Conditions, share: float | None, seed: int) -> tuple[float, ...]:
    """The fields of :class:`AtStart` of one net."""
    job = JOBS_BY_NAME[config.job]
    net = draw(build(config, share), seed, share)
    _, nonlinearity = NONLINEARITIES[job.nonlinearity]
    stack = ConditionStack([values_of(net)], (1.0,), widths(job, config.width), nonlinearity, config.optimiser)
    world = job.world(seed, None)
    count = min(PAIRED_CONDITIONS, job.known)
    chosen = torch.arange(count)
    chosen = (chosen if world.conditions is None else world.conditions[chosen]).unsqueeze(0)
    x = world.batch(torch.zeros(1, dtype=torch.long), INPUTS, generator(seed, "inputs"), True)["x"]
    codes = stack.codes(stack.theta, chosen)[0].double()
    parts = torch.split(stack.generate(stack.theta, chosen)[0].double(), [t.numel for t in net.generated], -1)
    weights = [part for part, t in zip(parts, net.generated, strict=True) if t.role == "weight"]
    wanted = [row.target for row in net.plan.rows if row.made_by == "head" and row.role == "weight" and row.target]
    mean = statistics.fmean
    return (
        _between(codes @ codes.T),
        mean(_between(w @ w.T) for w in weights),
        _between_conditions(stack, chosen, x, count),
        mean((w.var(0).mean() / w.square().mean()).item() for w in weights),
        mean(w.square().mean().item() / v for w, v in zip(weights, wanted, strict=True)),
        codes.square().sum(-1).mean().item() + 1,
    )


def _between(products: Tensor) -> float:
    """The mean cosine of two different rows, from all products of rows."""
    norms = products.diagonal().clamp_min(math.ulp(0)).sqrt()
    cosines = products / norms / norms.unsqueeze(1)
    n = len(cosines)
    return ((cosines.sum() - cosines.diagonal().sum()) / (n * (n - 1))).item()


def _between_conditions(stack: ConditionStack, chosen: Tensor, x: Tensor, count: int) -> float:
    """The mean cosine of the gradients of two conditions' outputs for the same input."""
    theta = {name: t.double().requires_grad_() for name, t in stack.theta.items()}
    given = chosen.double() if chosen.is_floating_point() else chosen
    inputs = x.double().expand(count, -1, -1).unsqueeze(0)
    outputs = stack.call(stack.generate(theta, given))(inputs)[0, ..., 0]  # (condition, input)
    gradients = [[_gradient(theta, outputs[c, i]) for c in range(count)] for i in range(x.shape[1])]
    return statistics.fmean(_between(torch.stack(rows) @ torch.stack(rows).T) for rows in gradients)


def _gradient(theta: Tensors, output: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(output, list(theta.values()), retain_graph=True)])
