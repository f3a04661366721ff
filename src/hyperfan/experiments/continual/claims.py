"""The paper's claims about continual learning, each taken apart into facts that an interval can decide."""

import math
from collections.abc import Callable, Sequence

from hyperfan.errors import RunError
from hyperfan.experiments.claims import Claim, Fact, all_of, decide_all, within
from hyperfan.experiments.continual.config import NAMES, TASKS
from hyperfan.experiments.continual.heuristics import WIDTHS
from hyperfan.experiments.continual.outcome import Outcome
from hyperfan.experiments.statistics import Estimate, ratios, signed_rank

HYPERFANS = ("hyperfan-in", "hyperfan-out")
BASELINES = ("kaiming-fan-in", "kaiming-fan-out")
BAD = "kaiming-fan-in"
MARGIN = 1.1
"""A factor between two losses that nobody would mind."""
SURE = 0.05
"""What p of a paired test must be below."""
ENOUGH = 6
"""Pairs below which no p can be so."""
NEAR = 1.1
"""How far from 1 the factor from a layer to the next may be where the scale is kept."""

Growths = Callable[[str, int], Sequence[float]]
"""From an init and a width to the factor by which activations grow from a layer to the next, for some seeds."""


def decide(sgd: Outcome, adam: Outcome | None, growths: Growths) -> list[Claim]:
    """All claims, from a finished grid with SGD, one with Adam, and untrained nets."""
    return decide_all(CLAIMS, sgd, adam, growths)


def _smaller(c: Claim, sgd: Outcome, adam: Outcome | None, growths: Growths) -> None:
    best = {init: sgd.best(init) for init in (*HYPERFANS, *BASELINES)}
    moments = {"at the start": sgd.first, "at the end": sgd.final}
    for init in HYPERFANS:
        for other in BASELINES:
            for when, losses in moments.items():
                mine, theirs = losses(init, best[init]), losses(other, best[other])
                facts = []
                for task in range(TASKS):
                    rates = f"{best[init]:g} and {best[other]:g}"
                    label = f"{init} over {other}, at {rates}: loss {when} of task {task + 1}"
                    facts.append(_is_smaller(c, label, mine[:, task].tolist(), theirs[:, task].tolist()))
                c.facts[f"{init}: smaller {when} of every task than {other}"] = all_of(facts)
    c.remark = "Points have noise of variance 0.0025, so the loss of a task that is fitted well ends about there."


def _rates(c: Claim, sgd: Outcome, adam: Outcome | None, growths: Growths) -> None:
    n = sgd.config.seeds
    shares = {}
    for lr in sgd.config.rates:
        c.measure(f"{BAD} at {lr:g}: share of runs that stay finite", Estimate.share(sgd.finite(BAD, lr), n))
        label = f"{BAD} at {lr:g}: share that ends every task better than a constant would"
        shares[lr] = c.measure(label, Estimate.share(sgd.trained(BAD, lr), n))
    smallest = min(shares)
    for lr, share in shares.items():
        if lr > smallest:
            c.facts[f"at {lr:g} fewer than half of the runs train"] = within(share, -1, 0.5)
    c.facts[f"at {smallest:g} more than half do"] = within(shares[smallest], 0.5, 2)
    best = sgd.best(BAD)
    scores = {lr: sgd.final(BAD, lr).mean(1).tolist() for lr in (best, smallest)}
    better = best != smallest and _is_smaller(c, f"{best:g} over {smallest:g}: mean final loss", *scores.values())
    c.facts["no other rate is better"] = None if better is None else not better
    safe = [lr for lr in sgd.config.rates if sgd.finite(BAD, lr) == n]
    told = ", ".join(f"{lr:g}" for lr in safe) or "none"
    c.remark = f"Rates at which all runs stay finite, as a mean over runs needs: {told}."


def _optimisers(c: Claim, sgd: Outcome, adam: Outcome | None, growths: Growths) -> None:
    if adam is None:
        raise RunError("there is no finished grid with Adam: hyperfan run continual --all --resume makes it")

    def scores(outcome: Outcome, init: str) -> list[float]:
        lr = outcome.best(init)
        found: list[float] = outcome.final(init, lr).mean(1).tolist()
        name = NAMES[outcome.config.optimiser]
        c.measure(f"{init}, {name} at {lr:g}: mean final loss of the tasks, median", Estimate.median(found))
        return found

    good, bad = scores(sgd, "hyperfan-in"), scores(sgd, BAD)
    scores(sgd, BASELINES[1])
    helped = scores(adam, BAD)
    scores(adam, BASELINES[1])
    both = scores(adam, "hyperfan-in")
    c.facts = {
        f"{BAD} with SGD, at its best rate, is worse than hyperfan-in with SGD": _is_smaller(
            c, f"hyperfan-in over {BAD}, both SGD", good, bad
        ),
        "Adam at its best rate makes it better": _is_smaller(c, f"{BAD}, Adam over SGD", helped, bad),
        "hyperfan-in with SGD is no worse than that": _no_larger(
            c, f"hyperfan-in with SGD over {BAD} with Adam", good, helped
        ),
    }
    if c.facts["hyperfan-in with SGD is no worse than that"] is False:
        c.remark = f"With Adam {BAD} ends lower than hyperfan-in does with SGD."
        if _is_smaller(c, "hyperfan-in, Adam over SGD", both, good):
            c.remark += " Hyperfan-in gains from Adam too."


def _heuristics(c: Claim, sgd: Outcome, adam: Outcome | None, growths: Growths) -> None:
    def factors(name: str, init: str) -> list[Estimate]:
        found = []
        for width in WIDTHS:
            label = f"{name}: factor from a layer to the next, width {width}"
            found.append(c.measure(label, Estimate.ratio(growths(init, width))))
        return found

    explodes = factors("M1, fan-in", "xavier-fan-in")
    vanishes = factors("M1, fan-out", "xavier-fan-out")
    harmonic = factors("M1, both fans", "xavier-harmonic")
    small, scaled = factors("M2, std 0.01", "m2"), factors("M3, head/10", "m3")
    constant, right = factors("M4", "m4"), factors("hyperfan-in", "hyperfan-in")
    c.facts = {
        "M1, fan-in: activations explode with depth": all_of(within(e, NEAR, math.inf) for e in explodes),
        "M1, fan-out: they vanish": all_of(within(e, 0, 1 / NEAR) for e in vanishes),
        "M1, both fans: they explode or vanish": all_of(_off(e) for e in harmonic),
        "M2: its one number is right at no width tried": all_of(_off(e) for e in small),
        "M3: its one number is right at no width tried": all_of(_off(e) for e in scaled),
        "M4: activations keep their scale": all_of(within(e, 1 / NEAR, NEAR) for e in constant),
        "so they do with hyperfan-in, without a constant embedding": all_of(within(e, 1 / NEAR, NEAR) for e in right),
    }
    best = {init: sgd.best(init) for init in ("hyperfan-in", "m2", "m3", "m4")}
    scores = {init: sgd.final(init, lr).mean(1).tolist() for init, lr in best.items()}
    told = []
    for init in ("m2", "m3", "m4"):
        label = f"{init} at {best[init]:g} over hyperfan-in at {best['hyperfan-in']:g}: mean final loss of the tasks"
        ratio, p = _ratio(c, label, scores[init], scores["hyperfan-in"])
        sides = {"lower": within(ratio, 0, 1), "higher": within(ratio, 1, math.inf)}
        sure = [side for side, so in sides.items() if so and p < SURE]
        told.append(f"{init.upper()} ends {sure[0] if sure else 'neither lower nor higher for certain'}")
    c.remark = (
        "The example of the paper's section 3: a linear hypernet and a linear mainnet, ten layers deep. In the "
        f"regression tasks, whose mainnet has three layers, against hyperfan-in {', '.join(told)}."
    )


# ── measuring and deciding ─────────────────────────────────────────────────────────────────────────────────────────


def _ratio(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> tuple[Estimate, float]:
    p = signed_rank(a, b)
    return c.measure(label, Estimate.median(ratios(a, b)), note=f", p = {p:.2g}"), p


def _is_smaller(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is smaller, seed by seed. It is not if it is certainly at most a little smaller."""
    ratio, p = _ratio(c, label, a, b)
    if ratio.low is None or ratio.high is None or ratio.n < ENOUGH:
        return None
    if ratio.high < 1 and p < SURE:
        return True
    return False if ratio.low > 1 / MARGIN else None


def _no_larger(c: Claim, label: str, a: Sequence[float], b: Sequence[float]) -> Fact:
    """Whether a is at most a little larger. It is not if it is certainly larger."""
    ratio, p = _ratio(c, label, a, b)
    if ratio.low is None or ratio.high is None or ratio.n < ENOUGH:
        return None
    if ratio.high < MARGIN:
        return True
    return False if ratio.low > 1 and p < SURE else None


def _off(e: Estimate) -> Fact:
    """Whether a factor is certainly not near 1."""
    near = within(e, 1 / NEAR, NEAR)
    return None if near is None else not near


CLAIMS = {
    "C7": ("In continual learning hyperfan has smaller losses at the start and the end of each task", _smaller),
    "C8": ("Kaiming fan-in trains there only at the smallest rate, 1e-5", _rates),
    "C15": ("Plain SGD suffices with hyperfan where bad inits need Adam", _optimisers),
    "C16": ("M1 to M4 behave as described in its section 3", _heuristics),
}
