"""The paper's claims about continual learning, each taken apart into facts that an interval can decide."""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hyperfan.codes import Embedding
from hyperfan.data.regression import NOISE
from hyperfan.experiments.draws import draw_init
from hyperfan.experiments.experiment import HYPERFANS, KAIMINGS
from hyperfan.experiments.optimisers import OPTIMISER_NAMES
from hyperfan.experiments.results.claims import Claim, Claims, Fact, all_of
from hyperfan.experiments.results.pairs import (
    ChosenBy,
    agreed,
    compare_at_best_rates,
    is_no_smaller,
    is_smaller,
    median_ratio,
    opposite,
)
from hyperfan.experiments.results.statistics import Estimate, growth
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet

if TYPE_CHECKING:
    from hyperfan.experiments.continual.results import ContinualResults, ContinualRun

BASELINE = "kaiming-fan-in"
SCALE_TOLERANCE = 1.1
"""How far from 1 the factor from a layer to the next may be where the scale is kept."""
RUNS_OF_A_MEAN = 15
"""Runs over which the paper's figure takes the mean."""
WIDTHS = (32, 64, 112, 256)
FACTOR = "factor from a layer to the next"
GROWTH_DEPTH, GROWTH_EMBEDDING, GROWTH_SEEDS, GROWTH_INPUTS = 10, 16, 40, 100
"""Layers, embedding size, seeds and inputs of the untrained nets of the paper's section 3."""


def _smaller(c: Claim, results: "ContinualResults") -> None:
    sgd = results.grid("sgd")
    moments = {"at the start of": sgd.initial, "during": sgd.during, "at the end of": sgd.final}
    for init, other in itertools.product(HYPERFANS, KAIMINGS):
        losses = [sgd.initial(each, sgd.best(each))[:, 0].tolist() for each in (init, other)]
        c.decide(
            f"{init}: smaller at initialisation than {other}",
            is_smaller(c, f"{init} over {other}: loss before training", *losses),
        )
        c.headline = (
            c.headline or f"before training {median_ratio(*losses).format()} of {other.removeprefix('kaiming-')}'s loss"
        )
        for when, losses_at in moments.items():
            facts = (_smaller_in_every_task(c, sgd, (init, other), when, losses_at, by) for by in ChosenBy)
            c.decide(f"{init}: smaller {when} every task than {other}", agreed(facts))
    c.remark = (
        f"Points have noise of variance {NOISE**2:g}, so the loss of a task that is fitted well ends about there. Near "
        "the edge of divergence the last bit of a number decides which runs survive, and another CPU may round it "
        "otherwise."
    )


def _smaller_in_every_task(
    c: Claim, sgd: "ContinualRun", inits: tuple[str, str], when: str, losses: Callable[..., Tensor], by: ChosenBy
) -> Fact:
    """Whether the first of two inits has a smaller loss than the second in each task."""
    rates = [sgd.rate(by, init) for init in inits]
    label = f"{' over '.join(inits)}, at {rates[0]:g} and {rates[1]:g}: loss {when} task"
    sides = (losses(init, lr).T.tolist() for init, lr in zip(inits, rates, strict=True))
    return all_of(is_smaller(c, f"{label} {task}{by}", *pair) for task, pair in enumerate(zip(*sides, strict=True), 1))


def _rates(c: Claim, results: "ContinualResults") -> None:
    sgd = results.grid("sgd")
    n, smallest = len(sgd.seeds), min(sgd.config.rates)
    for lr in sgd.config.rates:
        c.measure(f"{BASELINE} at {lr:g}: share of runs that stay finite", Estimate.share(sgd.finite(lr, BASELINE), n))
        label = f"{BASELINE} at {lr:g}: share that ends every task better than a constant would"
        share = c.measure(label, Estimate.share(sgd.trained(BASELINE, lr), n))
        if lr > smallest:
            c.decide(f"at {lr:g} fewer than half of the runs train", share.within(high=0.5))
        else:
            c.decide(f"at {lr:g} more than half do", share.within(0.5))
    for lr in sgd.config.rates:
        finite = _finite_groups(c, lr, sgd.ends(lr, BASELINE))
        words = f"means of {RUNS_OF_A_MEAN} runs, as the paper plots them"
        if lr > smallest:
            c.decide(f"at {lr:g} {words}, diverge", finite.within(high=0.5) if finite else None)
        else:
            c.decide(f"at {lr:g} {words}, stay finite", finite.within(0.5) if finite else None)
    next_smallest = sorted(sgd.config.rates)[1]
    share = Estimate.share(sgd.trained(BASELINE, next_smallest), n)
    c.headline = f"at {next_smallest:g}, {share.format('.0%')} of {n} runs train"
    as_large = [
        is_no_smaller(
            c, f"{lr:g} over {smallest:g}: mean final loss", *(sgd.ends(each, BASELINE) for each in (lr, smallest))
        )
        for lr in sgd.config.rates
        if lr > smallest
    ]
    c.decide("no other rate is better", all_of(as_large))
    c.remark = (
        f"The paper plots the mean of {RUNS_OF_A_MEAN} runs, which one that diverges takes out of the figure: that is "
        "one reading. The other is how many of the runs train."
    )


def _finite_groups(c: Claim, lr: float, ends: Sequence[float]) -> Estimate | None:
    """The share of groups of as many runs as the paper's means have in which all stay finite; ``None`` without any."""
    groups = [ends[i : i + RUNS_OF_A_MEAN] for i in range(0, len(ends) - RUNS_OF_A_MEAN + 1, RUNS_OF_A_MEAN)]
    if not groups:
        return None
    share = Estimate.share(sum(all(map(math.isfinite, group)) for group in groups), len(groups))
    return c.measure(f"{BASELINE} at {lr:g}: share of groups of {RUNS_OF_A_MEAN} runs that all stay finite", share)


def _optimisers(c: Claim, results: "ContinualResults") -> None:
    scores = {}
    for by, optimiser, init in itertools.product(ChosenBy, OPTIMISER_NAMES, ("hyperfan-in", *KAIMINGS)):
        grid = results.grid(optimiser)
        lr, name = grid.rate(by, init), OPTIMISER_NAMES[optimiser]
        found = scores[init, optimiser, by] = grid.ends(lr, init)
        c.measure(f"{init}, {name} at {lr:g}: mean final loss of the tasks, median{by}", Estimate.median(found))
    good, bad, helped = ("hyperfan-in", "sgd"), (BASELINE, "sgd"), (BASELINE, "adam")
    compare = functools.partial(_compare_ends, c, results)
    ends = [f"{statistics.median(scores[*each, ChosenBy.OTHERS]):.2g}" for each in (good, bad, helped)]
    c.headline = f"loss {ends[0]}, Kaiming {ends[1]}, with Adam {ends[2]}"
    worse = compare(f"hyperfan-in over {BASELINE}, both SGD", good, bad)
    c.decide(f"{BASELINE} with SGD, at its best rate, is worse than hyperfan-in with SGD", worse)
    c.decide("Adam at its best rate makes it better", compare(f"{BASELINE}, Adam over SGD", helped, bad))
    no_worse = compare(f"{BASELINE} with Adam over hyperfan-in with SGD", helped, good, is_no_smaller)
    c.decide("hyperfan-in with SGD is no worse than that", no_worse)
    if no_worse is False:
        c.remark = f"With Adam {BASELINE} ends lower than hyperfan-in does with SGD."
        if compare("hyperfan-in, Adam over SGD", ("hyperfan-in", "adam"), good):
            c.remark += " Hyperfan-in gains from Adam too."


def _compare_ends(
    c: Claim,
    results: "ContinualResults",
    label: str,
    a: tuple[str, str],
    b: tuple[str, str],
    compare: Callable[..., Fact] = is_smaller,
) -> Fact:
    """Compare the mean final loss of two inits, each with an optimiser and at its best rate."""
    sides = [(results.grid(optimiser), init) for init, optimiser in (a, b)]

    def at(label: str, *rates: float) -> Fact:
        return compare(c, label, *(grid.ends(lr, init) for (grid, init), lr in zip(sides, rates, strict=True)))

    return compare_at_best_rates(label, [functools.partial(grid.rate, start=init) for grid, init in sides], at)


def _heuristics(c: Claim, results: "ContinualResults") -> None:
    factors: dict[str, list[Estimate]] = {}
    for name, init, label, bounds, for_all in SCHEMES:
        factors[init] = [Estimate.ratio(growths(init, width)[results.part]) for width in WIDTHS]
        labels = (f"{name}: {FACTOR}, width {width}" for width in WIDTHS)
        within = all_of(c.measure(*each).within(*bounds) for each in zip(labels, factors[init], strict=True))
        c.decide(label, within if for_all else opposite(within))
    ends = (f"{init.upper()} {factors[init][0].value:.2f} to {factors[init][-1].value:.2f}" for init in ("m2", "m3"))
    c.headline = f"{', '.join(ends)} times a layer"
    comparisons = []
    for init in ("m2", "m3", "m4"):
        label = f"{init} at {{:g}} over hyperfan-in at {{:g}}: mean final loss of the tasks"
        lower = _compare_ends(c, results, label, (init, "sgd"), ("hyperfan-in", "sgd"))
        comparisons.append(f"{init.upper()} ends {LOWER[lower]}")
    not_for_all = (_fitting(name, factors[init]) for name, init, *_, for_all in SCHEMES if not for_all)
    c.remark = (
        f"The example of the paper's section 3: a linear hypernet and a linear mainnet, {GROWTH_DEPTH} layers deep. "
        f"{' '.join(not_for_all)} In the regression tasks, whose mainnet has three layers, against hyperfan-in "
        f"{', '.join(comparisons)}."
    )


def _fitting(name: str, factors: Sequence[Estimate]) -> str:
    """At which widths a scheme keeps the scale."""
    fit = ", ".join(str(width) for width, factor in zip(WIDTHS, factors, strict=True) if factor.within(*KEEPS))
    return f"{name.partition(',')[0]} keeps the scale at {f'width {fit}' if fit else 'no width'}."


EXPLODES, KEEPS, VANISHES = (
    (SCALE_TOLERANCE, math.inf),
    (1 / SCALE_TOLERANCE, SCALE_TOLERANCE),
    (0, 1 / SCALE_TOLERANCE),
)
SCHEMES = (
    ("M1, fan-in", "xavier-fan-in", "M1, fan-in: activations explode with depth", EXPLODES, True),
    ("M1, fan-out", "xavier-fan-out", "M1, fan-out: they vanish", VANISHES, True),
    ("M1 of both fans", "xavier-harmonic", "M1 of both fans: its scale does not fit all widths", KEEPS, False),
    ("M2, std 0.01", "m2", "M2: its one number does not fit all widths", KEEPS, False),
    ("M3, head/10", "m3", "M3: its one number does not fit all widths", KEEPS, False),
    ("M4", "m4", "M4: activations keep their scale", KEEPS, True),
    ("hyperfan-in", "hyperfan-in", "so they do with hyperfan-in, without a constant embedding", KEEPS, True),
)
"""Each with init method, a fact, bounds of the factor from a layer to the next, and whether all widths are within."""
LOWER = {True: "lower", False: "higher", None: "neither lower nor higher for certain"}


# ── untrained nets ─────────────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def growths(init: str, width: int) -> list[float]:
    """The factor by which activations grow from a layer to the next in untrained nets, for each seed.

    The example of the paper's section 3: a linear hypernet that makes a deep linear mainnet. Heads are separate, since
    M4 gives layers of one shape equal embeddings.
    """
    with torch.device("meta"):
        mainnet = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(GROWTH_DEPTH)))
    embedding = Embedding(GROWTH_EMBEDDING, distribution="normal")
    net = HyperNet(mainnet, embedding, heads="separate", init=init, fidelity="paper").to_empty(device="cpu")
    found = []
    for seed in range(GROWTH_SEEDS):
        draw_init(net, seed)
        x = torch.randn(GROWTH_INPUTS, width, generator=generator(seed, "inputs"))
        plain, scales = net.freeze(), []
        with torch.no_grad():
            for layer in plain.children():
                x = layer(x)
                scales.append(x.std().item())
        found.append(growth(tuple(scales)))
    return found


CLAIMS: Claims = {
    "C7": (
        "continual learning: smaller losses",
        "in continual learning hyperfan has smaller losses at the start, during and at the end of each task",
        _smaller,
    ),
    "C8": (
        "continual: fan-in trains only at 1e-5",
        "Kaiming fan-in trains there only at the smallest rate, 1e-5",
        _rates,
    ),
    "C15": (
        "continual: SGD does, others need Adam",
        "plain SGD suffices with hyperfan where bad inits need Adam",
        _optimisers,
    ),
    "C16": ("M1 to M4 behave as described", "M1 to M4 behave as described in its section 3", _heuristics),
}
