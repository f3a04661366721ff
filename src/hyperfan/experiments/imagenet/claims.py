"""The paper's claims about the Bayesian MobileNet, and what batch norm hides, as facts that an interval can decide."""

import math
from collections.abc import Callable
from dataclasses import replace

from hyperfan.experiments.claims import Claim, decide_all, within
from hyperfan.experiments.imagenet.config import INITS, SEEDS, Imagenet
from hyperfan.experiments.imagenet.runs import Run, Runs
from hyperfan.experiments.runs import pairs
from hyperfan.experiments.statistics import Estimate

FAN_IN, FAN_OUT = "kaiming-fan-in", "kaiming-fan-out"
HYPERFANS = ("hyperfan-in", "hyperfan-out")
FAR = 2.0
"""A factor between two losses that is far."""
NEAR = 1.25
"""A factor within which two losses are about equal."""
MOST = 1e30
"""What a loss that overflowed counts as."""


def decide(runs: Runs, base: Imagenet) -> list[Claim]:
    """All claims, from finished runs."""
    return decide_all(CLAIMS, runs, base)


def _generated(c: Claim, runs: Runs, base: Imagenet) -> None:
    _compare(c, runs, replace(base, last="generated", norm=True))


def _plain(c: Claim, runs: Runs, base: Imagenet) -> None:
    _compare(c, runs, replace(base, last="plain", norm=True))


def _compare(c: Claim, runs: Runs, base: Imagenet) -> None:
    found = {init: runs.need(replace(base, init=init), SEEDS) for init in INITS}
    for init, mine in found.items():
        c.measure(f"{init}: loss of the first batch", _of(mine, Run.beginning))
        c.measure(f"{init}: training loss, last quarter", _of(mine, Run.ending))
    for init in HYPERFANS:
        start, end = (_ratio(found[FAN_IN], found[init], when) for when in (Run.beginning, Run.ending))
        c.measure(f"{FAN_IN} over {init}: loss of the first batch", start)
        c.measure(f"{FAN_IN} over {init}: training loss, last quarter", end)
        c.facts[f"fan-in starts more than {FAR:g} times as high as {init}"] = within(start, FAR, math.inf)
        c.facts[f"fan-in learns more slowly than {init}: its loss is still higher at the end"] = within(
            end, 1, math.inf
        )
    for init in HYPERFANS:
        both = [_ratio(found[FAN_OUT], found[init], when) for when in (Run.beginning, Run.ending)]
        for when, ratio in zip(("loss of the first batch", "training loss, last quarter"), both, strict=True):
            c.measure(f"{FAN_OUT} over {init}: {when}", ratio)
            c.facts[f"fan-out is about equal to {init}: {when}"] = within(ratio, 1 / NEAR, NEAR)
    c.remark = (
        f"Tested: {base.total} batches of {base.batch} pictures of {base.size} pixels, at one learning rate. Not "
        "tested: ImageNet itself, and other rates."
    )


def _without_norm(c: Claim, runs: Runs, base: Imagenet) -> None:
    for last in ("generated", "plain"):
        for init in INITS:
            bare, normed = (runs.need(replace(base, init=init, last=last, norm=norm), SEEDS) for norm in (False, True))
            told = f"{init}, last layer {last}"
            c.measure(f"{told}, no batch norm: loss of the first batch", _of(bare, Run.beginning))
            gone = Estimate.share(sum(r.diverged for r in bare), len(bare))
            c.measure(f"{told}, no batch norm: share of runs that diverge", gone)
            ratio = c.measure(
                f"{told}: first loss without batch norm over with it", _ratio(bare, normed, Run.beginning)
            )
            label = f"{told}: without batch norm it starts " + ("far higher" if init == FAN_IN else "no higher")
            c.facts[label] = within(ratio, FAR, math.inf) if init == FAN_IN else within(ratio, high=NEAR)


def _of(runs: list[Run], what: Callable[[Run], float]) -> Estimate:
    return Estimate.ratio([min(what(r), MOST) for r in runs])


def _ratio(a: list[Run], b: list[Run], what: Callable[[Run], float]) -> Estimate:
    """One over the other, seed by seed."""
    return Estimate.ratio([min(what(x), MOST) / min(what(y), MOST) for x, y in pairs(a, b)])


CLAIMS = {
    "C10": (
        (
            "on a Bayesian MobileNet Kaiming fan-in starts far higher and learns more slowly, even with batch norm; "
            "fan-out is about equal to hyperfan"
        ),
        _generated,
    ),
    "C11": ("the same with the last layer not generated", _plain),
    "BN": (
        "(not the paper's) batch norm hides that fan-in explodes: without it fan-in alone starts higher",
        _without_norm,
    ),
}
