"""The paper's claims about continual learning, each taken apart into facts that an interval can decide."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from hyperfan.codes import Embedding
from hyperfan.experiments.continual import OPTIMISER_NAMES, TASKS
from hyperfan.experiments.results.claims import Claim, Claims, Fact, all_of
from hyperfan.experiments.results.statistics import Estimate, growth, ratios, signed_rank
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet

if TYPE_CHECKING:
    from hyperfan.experiments.continual.results import ContinualResults, Grid

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
WIDTHS = (64, 256)
GROWTH_DEPTH, GROWTH_EMBEDDING, GROWTH_SEEDS, GROWTH_INPUTS = 10, 16, 10, 100
"""Layers, embedding size, seeds and inputs of the untrained nets of the paper's section 3."""


def _smaller(c: Claim, results: "ContinualResults") -> None:
    sgd = results.sgd
    best = {init: sgd.best(init) for init in (*HYPERFANS, *BASELINES)}
    moments = {"at the start": sgd.initial, "at the end": sgd.final}
    for init in HYPERFANS:
        for other in BASELINES:
            for when, losses in moments.items():
                a, b = losses(init, best[init]), losses(other, best[other])
                facts = []
                for task in range(TASKS):
                    rates = f"{best[init]:g} and {best[other]:g}"
                    label = f"{init} over {other}, at {rates}: loss {when} of task {task + 1}"
                    facts.append(_is_smaller(c, label, a[:, task].tolist(), b[:, task].tolist()))
                c.facts[f"{init}: smaller {when} of every task than {other}"] = all_of(facts)
    c.remark = "Points have noise of variance 0.0025, so the loss of a task that is fitted well ends about there."


def _rates(c: Claim, results: "ContinualResults") -> None:
    sgd = results.sgd
    n = sgd.config.seeds
    shares = {}
    for lr in sgd.config.rates:
        c.measure(f"{BASELINE} at {lr:g}: share of runs that stay finite", Estimate.share(sgd.finite(BASELINE, lr), n))
        label = f"{BASELINE} at {lr:g}: share that ends every task better than a constant would"
        shares[lr] = c.measure(label, Estimate.share(sgd.trained(BASELINE, lr), n))
    smallest = min(shares)
    for lr, share in shares.items():
        if lr > smallest:
            c.facts[f"at {lr:g} fewer than half of the runs train"] = share.within(high=0.5)
    c.facts[f"at {smallest:g} more than half do"] = shares[smallest].within(0.5)
    best = sgd.best(BASELINE)
    scores = {lr: sgd.final(BASELINE, lr).mean(1).tolist() for lr in (best, smallest)}
    better = best != smallest and _is_smaller(c, f"{best:g} over {smallest:g}: mean final loss", *scores.values())
    c.facts["no other rate is better"] = None if better is None else not better
    safe = [lr for lr in sgd.config.rates if sgd.finite(BASELINE, lr) == n]
    rates = ", ".join(f"{lr:g}" for lr in safe) or "none"
    c.remark = f"Rates at which all runs stay finite, as a mean over runs needs: {rates}."


def _optimisers(c: Claim, results: "ContinualResults") -> None:
    sgd, adam = results.sgd, results.need_adam()

    def scores(grid: "Grid", init: str) -> list[float]:
        lr = grid.best(init)
        found: list[float] = grid.final(init, lr).mean(1).tolist()
        name = OPTIMISER_NAMES[grid.config.optimiser]
        c.measure(f"{init}, {name} at {lr:g}: mean final loss of the tasks, median", Estimate.median(found))
        return found

    good, bad = scores(sgd, "hyperfan-in"), scores(sgd, BASELINE)
    scores(sgd, BASELINES[1])
    helped = scores(adam, BASELINE)
    scores(adam, BASELINES[1])
    both = scores(adam, "hyperfan-in")
    worse = _is_smaller(c, f"hyperfan-in over {BASELINE}, both SGD", good, bad)
    c.decide(f"{BASELINE} with SGD, at its best rate, is worse than hyperfan-in with SGD", worse)
    better = _is_smaller(c, f"{BASELINE}, Adam over SGD", helped, bad)
    c.decide("Adam at its best rate makes it better", better)
    no_worse = _no_larger(c, f"hyperfan-in with SGD over {BASELINE} with Adam", good, helped)
    c.decide("hyperfan-in with SGD is no worse than that", no_worse)
    if no_worse is False:
        c.remark = f"With Adam {BASELINE} ends lower than hyperfan-in does with SGD."
        if _is_smaller(c, "hyperfan-in, Adam over SGD", both, good):
            c.remark += " Hyperfan-in gains from Adam too."


def _heuristics(c: Claim, results: "ContinualResults") -> None:
    def factors(name: str, init: str) -> list[Estimate]:
        found = []
        for width in WIDTHS:
            label = f"{name}: factor from a layer to the next, width {width}"
            found.append(c.measure(label, Estimate.ratio(results.growths(init, width))))
        return found

    explodes = factors("M1, fan-in", "xavier-fan-in")
    vanishes = factors("M1, fan-out", "xavier-fan-out")
    harmonic = factors("M1, both fans", "xavier-harmonic")
    small, scaled = factors("M2, std 0.01", "m2"), factors("M3, head/10", "m3")
    constant, right = factors("M4", "m4"), factors("hyperfan-in", "hyperfan-in")
    c.facts = {
        "M1, fan-in: activations explode with depth": all_of(e.within(SCALE_TOLERANCE) for e in explodes),
        "M1, fan-out: they vanish": all_of(e.within(high=1 / SCALE_TOLERANCE) for e in vanishes),
        "M1, both fans: they explode or vanish": all_of(_off(e) for e in harmonic),
        "M2: its one number is right at no width tried": all_of(_off(e) for e in small),
        "M3: its one number is right at no width tried": all_of(_off(e) for e in scaled),
        "M4: activations keep their scale": all_of(_keeps(e) for e in constant),
        "so they do with hyperfan-in, without a constant embedding": all_of(_keeps(e) for e in right),
    }
    sgd = results.sgd
    best = {init: sgd.best(init) for init in ("hyperfan-in", "m2", "m3", "m4")}
    scores = {init: sgd.final(init, lr).mean(1).tolist() for init, lr in best.items()}
    comparisons = []
    for init in ("m2", "m3", "m4"):
        label = f"{init} at {best[init]:g} over hyperfan-in at {best['hyperfan-in']:g}: mean final loss of the tasks"
        ratio, p = _ratio(c, label, scores[init], scores["hyperfan-in"])
        sides = {"lower": ratio.within(high=1), "higher": ratio.within(1)}
        sure = [side for side, so in sides.items() if so and p < SIGNIFICANT_P]
        comparisons.append(f"{init.upper()} ends {sure[0] if sure else 'neither lower nor higher for certain'}")
    c.remark = (
        "The example of the paper's section 3: a linear hypernet and a linear mainnet, ten layers deep. In the "
        f"regression tasks, whose mainnet has three layers, against hyperfan-in {', '.join(comparisons)}."
    )


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


def _no_larger(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is at most a little larger. It is not if it is certainly larger."""
    ratio, p = _ratio(c, label, a, b)
    if ratio.low is None or ratio.high is None or ratio.n < MIN_PAIRS:
        return None
    if ratio.high < LOSS_MARGIN:
        return True
    return False if ratio.low > 1 and p < SIGNIFICANT_P else None


def _keeps(e: Estimate) -> Fact:
    """Whether a factor is near 1."""
    return e.within(1 / SCALE_TOLERANCE, SCALE_TOLERANCE)


def _off(e: Estimate) -> Fact:
    """Whether a factor is certainly not near 1."""
    keeps = _keeps(e)
    return None if keeps is None else not keeps


CLAIMS: Claims = {
    "C7": ("In continual learning hyperfan has smaller losses at the start and the end of each task", _smaller),
    "C8": ("Kaiming fan-in trains there only at the smallest rate, 1e-5", _rates),
    "C15": ("Plain SGD suffices with hyperfan where bad inits need Adam", _optimisers),
    "C16": ("M1 to M4 behave as described in its section 3", _heuristics),
}
