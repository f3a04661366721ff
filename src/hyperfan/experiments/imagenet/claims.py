"""The paper's claims about the Bayesian MobileNet, and what batch norm hides, as facts that an interval can decide."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hyperfan.experiments.imagenet import INITS, SEEDS, Imagenet
from hyperfan.experiments.results.claims import Claim, Claims
from hyperfan.experiments.results.runs import pairs
from hyperfan.experiments.results.statistics import Estimate

if TYPE_CHECKING:
    from hyperfan.experiments.imagenet.results import ImagenetResults, ImagenetRun

    Loss = Callable[[ImagenetRun], float]

FAN_IN, FAN_OUT = "kaiming-fan-in", "kaiming-fan-out"
HYPERFANS = ("hyperfan-in", "hyperfan-out")
FAR_FACTOR = 2.0
"""A factor between two losses that is far."""
EQUAL_FACTOR = 1.25
"""A factor within which two losses are about equal."""
OVERFLOWED_LOSS = 1e30
"""The value of a loss that overflowed."""
FIRST, LAST = "loss of the first batch", "training loss, last quarter"


def _generated(c: Claim, results: "ImagenetResults") -> None:
    _compare(c, results, replace(results.base, last="generated", norm=True))


def _plain(c: Claim, results: "ImagenetResults") -> None:
    _compare(c, results, replace(results.base, last="plain", norm=True))


def _compare(c: Claim, results: "ImagenetResults", base: Imagenet) -> None:
    found = {init: results.runs.need(replace(base, init=init), SEEDS) for init in INITS}
    for init, runs in found.items():
        c.measure(f"{init}: {FIRST}", _mean(runs, _first))
        c.measure(f"{init}: {LAST}", _mean(runs, _last))
    for init in HYPERFANS:
        start, end = (_ratio(found[FAN_IN], found[init], loss) for loss in (_first, _last))
        c.measure(f"{FAN_IN} over {init}: {FIRST}", start)
        c.measure(f"{FAN_IN} over {init}: {LAST}", end)
        c.decide(f"fan-in starts more than {FAR_FACTOR:g} times as high as {init}", start.within(FAR_FACTOR))
        c.decide(f"fan-in learns more slowly than {init}: its loss is still higher at the end", end.within(1))
    for init in HYPERFANS:
        for when, loss in ((FIRST, _first), (LAST, _last)):
            ratio = c.measure(f"{FAN_OUT} over {init}: {when}", _ratio(found[FAN_OUT], found[init], loss))
            c.decide(f"fan-out is about equal to {init}: {when}", ratio.within(1 / EQUAL_FACTOR, EQUAL_FACTOR))
    c.remark = (
        f"Tested: {base.total} batches of {base.batch} pictures of {base.size} pixels, at one learning rate. Not "
        "tested: ImageNet itself, and other rates."
    )


def _without_norm(c: Claim, results: "ImagenetResults") -> None:
    for last in ("generated", "plain"):
        for init in INITS:
            bare, normed = (
                results.runs.need(replace(results.base, init=init, last=last, norm=norm), SEEDS)
                for norm in (False, True)
            )
            setting = f"{init}, last layer {last}"
            c.measure(f"{setting}, no batch norm: {FIRST}", _mean(bare, _first))
            diverged = Estimate.share(sum(r.diverged for r in bare), len(bare))
            c.measure(f"{setting}, no batch norm: share of runs that diverge", diverged)
            ratio = c.measure(f"{setting}: first loss without batch norm over with it", _ratio(bare, normed, _first))
            if init == FAN_IN:
                c.decide(f"{setting}: without batch norm it starts far higher", ratio.within(FAR_FACTOR))
            else:
                c.decide(f"{setting}: without batch norm it starts no higher", ratio.within(high=EQUAL_FACTOR))


def _first(run: "ImagenetRun") -> float:
    return min(run.first_loss(), OVERFLOWED_LOSS)


def _last(run: "ImagenetRun") -> float:
    return min(run.last_loss(), OVERFLOWED_LOSS)


def _mean(runs: list["ImagenetRun"], loss: "Loss") -> Estimate:
    return Estimate.ratio([loss(r) for r in runs])


def _ratio(a: list["ImagenetRun"], b: list["ImagenetRun"], loss: "Loss") -> Estimate:
    """One over the other, seed by seed."""
    return Estimate.ratio([loss(x) / loss(y) for x, y in pairs(a, b)])


CLAIMS: Claims = {
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
