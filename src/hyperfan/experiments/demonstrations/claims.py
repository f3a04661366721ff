"""What Auddy et al. 2024 say about inits of hypernets, taken apart into facts that an interval can decide."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hyperfan.experiments.demonstrations import (
    COMPARED,
    KAIMING,
    OURS,
    SETTINGS,
    THEIR_RATE,
    THEIRS,
    WINDOW,
    Demonstrations,
)
from hyperfan.experiments.demonstrations.stack import PathStack, errors
from hyperfan.experiments.demonstrations.training import build, demonstrated, draw, widths
from hyperfan.experiments.results.claims import Claim, Claims, Fact
from hyperfan.experiments.results.pairs import compare_at_best_rates, is_no_smaller, measure_ratio, median_ratio
from hyperfan.experiments.stack import values_and_embeddings_of

if TYPE_CHECKING:
    from hyperfan.experiments.demonstrations.results import DemonstrationsResults, DemonstrationsRun

START, DURING, LEARNT, END = "start", "during", "learnt", "end"
MEASURES = {
    START: "error of all tasks before training",
    DURING: "mean loss during the tasks",
    LEARNT: "error of each task right after it",
    END: "error of all tasks at the end",
}
"""What is compared, seed by seed, each a mean over tasks."""
FACTS = {DURING: "during training", END: "at the end"}
"""Measures by which an init may bring something, and when that is."""
NEEDED = "hyperfan-in"
"""The init whose targets are the variances that the mainnet needs."""


def _nothing(c: Claim, results: "DemonstrationsResults") -> None:
    _decide_nothing(c, results)
    c.remark = (
        "At their widths, the mean square that the mainnet's weights start with, over the variance that they need by "
        f"the plan of {NEEDED}: {weight_ratios(results.starts)}."
    )


def _nothing_on_lasa(c: Claim, results: "DemonstrationsResults") -> None:
    _decide_nothing(c, results.recorded)


def _decide_nothing(c: Claim, results: "DemonstrationsResults") -> None:
    """Decide for each init whether it brings nothing beside Kaiming's."""
    kaiming = results.run(KAIMING)
    for name, measure in itertools.product(COMPARED, MEASURES):
        no_smaller = _is_no_smaller(c, results.run(name), kaiming, name, measure)
        if measure in FACTS:
            c.decide(f"{name}: nothing {FACTS[measure]}", no_smaller)
    ours, theirs = (median_ratio(results.run(name).scores(DURING), kaiming.scores(DURING)) for name in (NEEDED, THEIRS))
    c.headline = f"loss in training {ours.format()} of Kaiming's, theirs {theirs.format()}"
    for name, measure in itertools.product(COMPARED, (DURING, END)):
        label = f"{name} over {KAIMING}, both at their rate, {THEIR_RATE:g}: {MEASURES[measure]}"
        measure_ratio(c, label, *(results.run(n).scores(measure, THEIR_RATE) for n in (name, KAIMING)))


def _is_no_smaller(c: Claim, run: "DemonstrationsRun", kaiming: "DemonstrationsRun", name: str, measure: str) -> Fact:
    """Whether a measure is as large in the runs of a setting as in Kaiming's, but for a little at most."""

    def at(label: str, lr: float, other: float) -> Fact:
        return is_no_smaller(c, label, run.scores(measure, lr), kaiming.scores(measure, other))

    label = f"{name}, at {{:g}}, over {KAIMING}, at {{:g}}: {MEASURES[measure]}"
    return compare_at_best_rates(label, [run.rate, kaiming.rate], at)


CLAIMS: Claims = {
    "A1": (
        "Auddy et al.: such inits bring nothing",
        "Auddy et al. 2024: initialisers made for hypernets bring nothing in continual learning from demonstration",
        _nothing,
    ),
    "A2": (
        "Auddy et al.: nor on real handwriting",
        "Auddy et al. 2024, as A1: nor on the shapes of handwriting that the LASA set recorded",
        _nothing_on_lasa,
    ),
}


# ── untrained nets ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class MainnetStart:
    """How a setting starts the mainnet, tensor by tensor.

    Args:
        squares: mean square of its values, over the tasks.
        shares: the part of it that differs from task to task, from 0 to 1.
        gradients: root mean square of its gradient.
        targets: the variance that the plan asks for, if it does.
    """

    squares: dict[str, float]
    shares: dict[str, float]
    gradients: dict[str, float]
    targets: dict[str, float]


def start(config: Demonstrations) -> MainnetStart:
    """How the first seed's net starts, with the gradient on the beginnings of the first task's demonstrations."""
    net = draw(build(config), config.seed, config.biases)
    names, sizes = [t.name for t in net.generated], [t.numel for t in net.generated]
    stack = PathStack([values_and_embeddings_of(net)], config.rates[:1], widths(config), config.beta)
    values = stack.generate(stack.theta, stack.embeddings)[0]
    first = values[:1].clone().requires_grad_()
    shown = demonstrated(config, config.seed)[:1, :, :WINDOW]
    times = torch.zeros_like(shown[:, :, 0, :1])
    paths = stack.paths(first, shown[:, :, 0], times, WINDOW - 1, 1 / (config.points - 1))
    (gradient,) = torch.autograd.grad(errors(paths, shown).sum(), first)
    parts = dict(zip(names, torch.split(values.double(), sizes, -1), strict=True))
    gradients = zip(names, torch.split(gradient[0].double(), sizes), strict=True)
    squares = {name: part.square().mean().item() for name, part in parts.items()}
    return MainnetStart(
        squares,
        {name: (part.var(0).mean().item() / squares[name] if squares[name] else 0.0) for name, part in parts.items()},
        {name: part.square().mean().sqrt().item() for name, part in gradients},
        {row.tensor: row.target for row in net.plan.rows if row.made_by == "head" and row.target is not None},
    )


def weight_ratios(starts: Mapping[str, MainnetStart]) -> str:
    """From the smallest to the largest ratio of a weight's mean square to what it needs, of all settings but ours."""
    found = {}
    for name in (n for n in SETTINGS if n not in OURS):
        needed = {tensor: v for tensor, v in starts[NEEDED].targets.items() if tensor.endswith("weight")}
        found[name] = [starts[name].squares[tensor] / v for tensor, v in needed.items()]
    return "; ".join(f"{name} {min(ratios):.1g} to {max(ratios):.1g}" for name, ratios in found.items())
