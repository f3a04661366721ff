"""The paper's claims about continual learning, each taken apart into facts that an interval can decide."""

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from hyperfan.codes import Embedding
from hyperfan.experiments.continual import OPTIMISER_NAMES
from hyperfan.experiments.results.claims import Claim, Claims, Fact, all_of, any_of
from hyperfan.experiments.results.statistics import Estimate, growth, ratios, signed_rank
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet

if TYPE_CHECKING:
    from hyperfan.experiments.continual.results import ContinualResults

HYPERFANS = ("hyperfan-in", "hyperfan-out")
BASELINES = ("kaiming-fan-in", "kaiming-fan-out")
BASELINE = "kaiming-fan-in"
LOSS_MARGIN = 1.1
"""A factor between two losses that nobody would mind."""
SIGNIFICANT_P = 0.05
"""The bound on p of a paired test."""
MIN_PAIRS = 6
"""Below so many pairs no p can be under that bound."""
SCALE_TOLERANCE = 1.1
"""How far from 1 the factor from a layer to the next may be where the scale is kept."""
WIDTHS = (32, 64, 112, 256)
FACTOR = "factor from a layer to the next"
GROWTH_DEPTH, GROWTH_EMBEDDING, GROWTH_SEEDS, GROWTH_INPUTS = 10, 16, 10, 100
"""Layers, embedding size, seeds and inputs of the untrained nets of the paper's section 3."""


def _smaller(c: Claim, results: "ContinualResults") -> None:
    sgd = results.grid("sgd")
    for init, other in itertools.product(HYPERFANS, BASELINES):
        rate, other_rate = sgd.best(init), sgd.best(other)
        moments = {"at the start": sgd.initial, "during": sgd.during, "at the end": sgd.final}
        for when, losses in moments.items():
            pairs = zip(losses(init, rate).T.tolist(), losses(other, other_rate).T.tolist(), strict=True)
            of = "" if when == "during" else " of"
            label = f"{init} over {other}, at {rate:g} and {other_rate:g}: loss {when}{of} task"
            facts = [_is_smaller(c, f"{label} {task}", a, b) for task, (a, b) in enumerate(pairs, 1)]
            c.decide(f"{init}: smaller {when}{of} every task than {other}", all_of(facts))
        c.headline = c.headline or f"{label} 1, ratio {c.measured[f'{label} 1'].estimate.format()}"
    c.remark = (
        "Points have noise of variance 0.0025, so the loss of a task that is fitted well ends about there. Near the "
        "edge of divergence runs are chaotic: the last bit, which another CPU rounds otherwise, decides which survive."
    )


def _rates(c: Claim, results: "ContinualResults") -> None:
    sgd = results.grid("sgd")
    n, smallest, best = len(sgd.seeds), min(sgd.config.rates), sgd.best(BASELINE)
    for lr in sgd.config.rates:
        c.measure(f"{BASELINE} at {lr:g}: share of runs that stay finite", Estimate.share(sgd.finite(BASELINE, lr), n))
        label = f"{BASELINE} at {lr:g}: share that ends every task better than a constant would"
        share = c.measure(label, Estimate.share(sgd.trained(BASELINE, lr), n))
        if lr > smallest:
            c.decide(f"at {lr:g} fewer than half of the runs train", share.within(high=0.5))
        else:
            c.decide(f"at {lr:g} more than half do", share.within(0.5))
    at = sorted(sgd.config.rates)[1]
    share = Estimate.share(sgd.trained(BASELINE, at), n)
    c.headline = f"at {at:g}, {share.format('.0%')} of {n} runs train"
    scores = [sgd.scores(BASELINE, lr) for lr in (best, smallest)]
    better = best != smallest and _is_smaller(c, f"{best:g} over {smallest:g}: mean final loss", *scores)
    c.decide("no other rate is better", None if better is None else not better)
    safe = [f"{lr:g}" for lr in sgd.config.rates if sgd.finite(BASELINE, lr) == n]
    c.remark = f"Rates at which all runs stay finite, as a mean over runs needs: {', '.join(safe) or 'none'}."


def _optimisers(c: Claim, results: "ContinualResults") -> None:
    scores = {}
    for optimiser, init in itertools.product(("sgd", "adam"), ("hyperfan-in", *BASELINES)):
        grid = results.grid(optimiser)
        lr, name = grid.best(init), OPTIMISER_NAMES[optimiser]
        found = scores[init, optimiser] = grid.scores(init, lr)
        c.measure(f"{init}, {name} at {lr:g}: mean final loss of the tasks, median", Estimate.median(found))
    good, bad, helped = scores["hyperfan-in", "sgd"], scores[BASELINE, "sgd"], scores[BASELINE, "adam"]
    c.headline = f"median final loss: hyperfan-in with SGD {statistics.median(good):.2g}, {BASELINE} with SGD "
    c.headline += f"{statistics.median(bad):.2g}, with Adam {statistics.median(helped):.2g}"
    worse = _is_smaller(c, f"hyperfan-in over {BASELINE}, both SGD", good, bad)
    c.decide(f"{BASELINE} with SGD, at its best rate, is worse than hyperfan-in with SGD", worse)
    c.decide("Adam at its best rate makes it better", _is_smaller(c, f"{BASELINE}, Adam over SGD", helped, bad))
    lower = _is_smaller(c, f"{BASELINE} with Adam over hyperfan-in with SGD", helped, good)
    c.decide("hyperfan-in with SGD is no worse than that", None if lower is None else not lower)
    if lower:
        c.remark = f"With Adam {BASELINE} ends lower than hyperfan-in does with SGD."
        if _is_smaller(c, "hyperfan-in, Adam over SGD", scores["hyperfan-in", "adam"], good):
            c.remark += " Hyperfan-in gains from Adam too."


def _heuristics(c: Claim, results: "ContinualResults") -> None:
    for name, init, label, bounds, expected in SCHEMES:
        facts = []
        for width in WIDTHS:
            factor = Estimate.ratio(results.growths(init, width))
            within = c.measure(f"{name}: {FACTOR}, width {width}", factor).within(*bounds)
            facts.append(None if within is None else within == expected)
        c.decide(label, all_of(facts) if name not in ONE_NUMBER else any_of(facts))
    c.headline = f"M4: {FACTOR}, {c.measured[f'M4: {FACTOR}, width {WIDTHS[-1]}'].estimate.format()}"
    sgd, comparisons = results.grid("sgd"), []
    good_rate = sgd.best("hyperfan-in")
    for init in ("m2", "m3", "m4"):
        label = f"{init} at {sgd.best(init):g} over hyperfan-in at {good_rate:g}: mean final loss of the tasks"
        ratio, p = _ratio(c, label, sgd.scores(init, sgd.best(init)), sgd.scores("hyperfan-in", good_rate))
        sides = {"lower": ratio.within(high=1), "higher": ratio.within(1)}
        sure = [side for side, so in sides.items() if so and p < SIGNIFICANT_P]
        comparisons.append(f"{init.upper()} ends {sure[0] if sure else 'neither lower nor higher for certain'}")
    c.remark = (
        "The example of the paper's section 3: a linear hypernet and a linear mainnet, ten layers deep. In the "
        f"regression tasks, whose mainnet has three layers, against hyperfan-in {', '.join(comparisons)}."
    )


EXPLODES, KEEPS, VANISHES = (
    (SCALE_TOLERANCE, math.inf),
    (1 / SCALE_TOLERANCE, SCALE_TOLERANCE),
    (0, 1 / SCALE_TOLERANCE),
)
SCHEMES = (
    ("M1, fan-in", "xavier-fan-in", "M1, fan-in: activations explode with depth", EXPLODES, True),
    ("M1, fan-out", "xavier-fan-out", "M1, fan-out: they vanish", VANISHES, True),
    ("M1, both fans", "xavier-harmonic", "M1, both fans: they explode or vanish", KEEPS, False),
    ("M2, std 0.01", "m2", "M2: its one number does not fit all widths", KEEPS, False),
    ("M3, head/10", "m3", "M3: its one number does not fit all widths", KEEPS, False),
    ("M4", "m4", "M4: activations keep their scale", KEEPS, True),
    ("hyperfan-in", "hyperfan-in", "so they do with hyperfan-in, without a constant embedding", KEEPS, True),
)
"""Each with its init method, a fact, and within which bounds the factor from a layer to the next then is, or is not."""
ONE_NUMBER = ("M2, std 0.01", "M3, head/10")
"""Of these one width at which the factor is not within its bounds is enough."""


# ── untrained nets ─────────────────────────────────────────────────────────────────────────────────────────────────


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
        net.reset_parameters(generator(seed, "init"), embeddings=generator(seed, "embeddings"))
        x = torch.randn(GROWTH_INPUTS, width, generator=generator(seed, "inputs"))
        plain, scales = net.freeze(), []
        with torch.no_grad():
            for layer in plain.children():
                x = layer(x)
                scales.append(x.std().item())
        found.append(growth(tuple(scales)))
    return found


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _ratio(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> tuple[Estimate, float]:
    p = signed_rank(a, b)
    return c.measure(label, Estimate.median(ratios(a, b)), note=f", p = {p:.2g}"), p


def _is_smaller(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is smaller, seed by seed. It is not if it is certainly at most a little smaller."""
    ratio, p = _ratio(c, label, a, b)
    if ratio.low is None or ratio.high is None or ratio.n < MIN_PAIRS:
        return None
    if ratio.high < 1 and p < SIGNIFICANT_P:
        return True
    return False if ratio.low > 1 / LOSS_MARGIN else None


CLAIMS: Claims = {
    "C7": (
        "In continual learning hyperfan has smaller losses at the start, during and at the end of each task",
        _smaller,
    ),
    "C8": ("Kaiming fan-in trains there only at the smallest rate, 1e-5", _rates),
    "C15": ("Plain SGD suffices with hyperfan where bad inits need Adam", _optimisers),
    "C16": ("M1 to M4 behave as described in its section 3", _heuristics),
}
