"""What Auddy et al. 2024 say about inits of hypernets, taken apart into facts that an interval can decide."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.experiments.continual.claims import LOSS_MARGIN, MIN_PAIRS, SIGNIFICANT_P
from hyperfan.experiments.demonstrations import KAIMING, OURS, THEIR_RATE, THEIRS, WINDOW, Demonstrations
from hyperfan.experiments.demonstrations.stack import Stack, errors, values_of
from hyperfan.experiments.demonstrations.training import build, demonstrated, draw, widths
from hyperfan.experiments.results.claims import Claim, Claims, Fact
from hyperfan.experiments.results.statistics import Estimate, ratios, signed_rank

if TYPE_CHECKING:
    from hyperfan.experiments.demonstrations.results import DemonstrationsResults

START, DURING, LEARNT, END = "start", "during", "learnt", "end"
MEASURES = {
    START: "error of all tasks before training",
    DURING: "mean loss during the tasks",
    LEARNT: "error of each task right after it",
    END: "error of all tasks at the end",
}
"""What is compared, seed by seed, each a mean over tasks."""
FACTS = {START: "at the start", DURING: "during training", END: "at the end"}
"""Where an init may bring something."""
NEEDED = "hyperfan-in"
"""The init whose targets are the variances that the mainnet needs."""


def _nothing(c: Claim, results: "DemonstrationsResults") -> None:
    kaiming = results.run(KAIMING)
    headline = []
    for init in (*THEIRS, *OURS):
        run = results.run(init)
        for measure, words in MEASURES.items():
            label = f"{init} at {run.best:g} over {KAIMING} at {kaiming.best:g}: {words}"
            smaller = _is_smaller(c, label, run.scores(measure), kaiming.scores(measure))
            if measure in FACTS:
                c.decide(f"{init} brings nothing {FACTS[measure]}", None if smaller is None else not smaller)
        headline.append(f"{init} {c.measured[label].estimate.format()}")
    for init, measure in itertools.product((*THEIRS, *OURS), (DURING, END)):
        label = f"{init} over {KAIMING}, both at their rate {THEIR_RATE:g}: {MEASURES[measure]}"
        _is_smaller(c, label, *(results.run(i).scores(measure, THEIR_RATE) for i in (init, KAIMING)))
    c.headline = f"{MEASURES[END]} over Kaiming's: {', '.join(headline)}"
    c.remark = (
        "At their widths, the variance that the mainnet's weights start with, over what they need by the plan of "
        f"{NEEDED}: {weight_ratios(results.starts)}."
    )


CLAIMS: Claims = {
    "A1": (
        "Auddy et al. 2024: initialisers made for hypernets bring nothing in continual learning from demonstration",
        _nothing,
    ),
}


# ── untrained nets ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Start:
    """How an init starts the mainnet, tensor by tensor: its variance by the plan, and the gradient's root mean square.

    ``targets`` has the variances that the init itself asks for, if it does.
    """

    variances: dict[str, float]
    gradients: dict[str, float]
    targets: dict[str, float]

    def ratios(self, needed: "Start") -> dict[str, float]:
        """The variance of each weight over what another init asks for."""
        return {name: v / needed.targets[name] for name, v in self.variances.items() if name.endswith("weight")}


def start(config: Demonstrations) -> Start:
    """How the first seed's net starts, with the gradient on the first subsequences of its first task."""
    net = draw(build(config), config.seed)
    rows = {row.tensor: row for row in net.plan.rows if row.made_by == "head"}
    variances = {name: (r.variance or 0) * (r.moment or 0) * r.scale**2 for name, r in rows.items()}
    stack = Stack([values_of(net)], config.rates[:1], widths(config), config.beta)
    shown = demonstrated(config, config.seed)[:1, :, :WINDOW]
    values: Tensor = stack.generate(stack.theta, stack.embeddings[:, :1])[:, 0].requires_grad_()
    paths = stack.paths(
        values, shown[:, :, 0], torch.zeros_like(shown[:, :, 0, :1]), WINDOW - 1, 1 / (config.points - 1)
    )
    (gradient,) = torch.autograd.grad(errors(paths, shown).sum(), values)
    parts = torch.split(gradient.double()[0], [t.numel for t in net.generated])
    gradients = {t.name: part.square().mean().sqrt().item() for t, part in zip(net.generated, parts, strict=True)}
    return Start(variances, gradients, {name: r.target for name, r in rows.items() if r.target is not None})


def weight_ratios(starts: Mapping[str, Start]) -> str:
    """From the smallest to the largest ratio of a weight's variance to what it needs, with Kaiming and with theirs."""
    found = {init: starts[init].ratios(starts[NEEDED]).values() for init in (KAIMING, *THEIRS)}
    return "; ".join(f"{init} {min(ratios):.1g} to {max(ratios):.1g}" for init, ratios in found.items())


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _is_smaller(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is smaller, seed by seed. It is not if it is certainly at most a little smaller."""
    p = signed_rank(a, b)
    ratio = c.measure(label, Estimate.median(ratios(a, b)), note=f", p = {p:.2g}")
    if ratio.low is None or ratio.high is None or ratio.n < MIN_PAIRS:
        return None
    if ratio.high < 1 and p < SIGNIFICANT_P:
        return True
    return False if ratio.low > 1 / LOSS_MARGIN else None
