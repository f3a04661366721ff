"""Claims about the Bayesian MobileNet, the paper's and others, each taken apart into facts that an interval decides."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hyperfan.experiments.experiment import HYPERFANS, KAIMINGS
from hyperfan.experiments.imagenet import (
    DISAGREEMENT,
    LASTS,
    NOISE_INIT,
    NOISES,
    SEPARATION,
    Last,
    without_norm,
)
from hyperfan.experiments.results.claims import Claim, Claims
from hyperfan.experiments.results.runs import OVERFLOWED_LOSS, difference, mean, mean_share, ratio
from hyperfan.experiments.results.statistics import Estimate

if TYPE_CHECKING:
    from hyperfan.experiments.imagenet.results import ImagenetResults, ImagenetRun

    ByInit = Mapping[str, Sequence[ImagenetRun]]

FAN_IN, FAN_OUT = KAIMINGS
FAR_FACTOR = 2.0
"""A factor between the losses of two first batches that is far."""
EQUAL_SHARE = 0.25
"""The share of a setting's lead over guessing within which another accuracy is about equal to its own."""
CHANCE = 0.5
"""The separation of a number that tells nothing."""
USEFUL_SEPARATION = 0.6
"""The separation from which one might use it."""


def _first(run: "ImagenetRun") -> float:
    return min(run.first_loss(), OVERFLOWED_LOSS)


def _accuracy(run: "ImagenetRun") -> float:
    return run.accuracy()


def _learnt(run: "ImagenetRun") -> float:
    return run.learnt()


def _separation(run: "ImagenetRun") -> float:
    return run.separation()


def _start(c: Claim, found: "ByInit") -> None:
    """Compare the losses of the first batches."""
    when = "loss of the first batch"
    for init, runs in found.items():
        c.measure(f"{init}: {when}", Estimate.ratio([_first(r) for r in runs]))
    higher = [c.measure(f"{FAN_IN} over {i}: {when}", ratio(found[FAN_IN], found[i], _first)) for i in HYPERFANS]
    for init, far in zip(HYPERFANS, higher, strict=True):
        c.decide(f"fan-in starts more than {FAR_FACTOR:g} times as high as {init}", far.within(FAR_FACTOR))
    apart = [c.measure(f"{FAN_OUT} over {i}: {when}", ratio(found[FAN_OUT], found[i], _first)) for i in HYPERFANS]
    c.remark = (
        f"Fan-out's first loss is {apart[0].format()} times {HYPERFANS[0]}'s and {apart[1].format()} times "
        f"{HYPERFANS[1]}'s. No fact is about that: within any factor of a loss near that of guessing lies guessing "
        "itself, and under batch norm the fans of the last layer alone decide it (see below). "
    )
    c.headline = f"fan-in starts {higher[0].format()} times as high"


def _learning(c: Claim, found: "ByInit", classes: int) -> None:
    """Compare how far the inits have come, by test accuracy."""
    lead: list[str] = []
    when, learnt = "test accuracy at the end", f"ln {classes} − training loss of the last quarter"
    for init, runs in found.items():
        c.measure(f"{init}: {when}", mean_share(runs, _accuracy), ".1%")
        c.measure(f"{init}: {learnt}", mean(runs, _learnt))
    for init in HYPERFANS:
        lower = c.measure(f"{FAN_IN} − {init}: {when}", difference(found[FAN_IN], found[init], _accuracy), ".3f")
        c.decide(f"fan-in learns more slowly than {init}: {when} is lower", lower.within(high=0))
    for init in HYPERFANS:
        margin = EQUAL_SHARE * (mean(found[init], _accuracy).value - 1 / classes)
        apart = difference(found[FAN_OUT], found[init], _accuracy)
        c.measure(f"{FAN_OUT} − {init}: {when}", apart, ".3f", f"; about equal is up to {margin:.3f}")
        c.decide(f"fan-out is about equal to {init}: {when}", apart.within(-margin, margin))
        ahead = c.measure(f"{FAN_OUT} − {init}: {learnt}", difference(found[FAN_OUT], found[init], _learnt))
        if ahead.within(0):
            lead.append(f"of {init} by {ahead.format()} nats")
    if lead:
        c.remark += f"By training loss, which no fact is about, fan-out is ahead {' and '.join(lead)}. "


def _compare(c: Claim, results: "ImagenetResults", last: Last) -> None:
    base, found = results.base, results.by_init(results.base, last)
    if last == "generated":
        _start(c, found)
    _learning(c, found, results.classes)
    c.remark += (
        f"Tested: {base.total} batches of {base.batch} pictures of {base.size} pixels, at one learning rate. Not "
        "tested: ImageNet itself, and other rates."
    )
    if last == "plain":
        apart = difference(found[FAN_OUT], found[HYPERFANS[0]], _accuracy)
        c.headline = f"fan-out − hyperfan-in: accuracy {apart.format('.3f')}"
        higher = c.measure(
            f"{FAN_IN} over {HYPERFANS[0]}: loss of the first batch", ratio(found[FAN_IN], found[HYPERFANS[0]], _first)
        )
        c.remark += (
            f" In the paper fan-in starts higher here too. Here it starts at {higher.format('.4g')} times the loss of "
            f"{HYPERFANS[0]}. No fact is about that, since it follows from the net: the last layer is the same under "
            "every init, and batch norm takes the scale of every other away."
        )


def _without_norm(c: Claim, results: "ImagenetResults") -> None:
    bare_base, accuracies, others = without_norm(results.base), [], []
    for last in LASTS:
        bare, normed = results.by_init(bare_base, last), results.by_init(results.base, last)
        for init, runs in bare.items():
            setting = f"{init}, last layer {last}"
            c.measure(f"{setting}, no batch norm: loss of the first batch", Estimate.ratio([_first(r) for r in runs]))
            diverged = Estimate.share(sum(r.diverged for r in runs), len(runs))
            c.measure(f"{setting}, no batch norm: share of runs that diverge in {bare_base.total} batches", diverged)
            higher = ratio(runs, normed[init], _first)
            c.measure(f"{setting}: first loss without batch norm over with it", higher)
            accuracies.append(mean(runs, _accuracy).value)
            if init == FAN_IN:
                c.headline = c.headline or f"fan-in starts {higher.format()} times as high without"
                c.decide(f"{setting}: without batch norm it starts far higher", higher.within(FAR_FACTOR))
            else:
                others.append(higher.value)
    c.remark = (
        f"The others start at {min(others):.3g} to {max(others):.3g} times their loss with batch norm. No fact is "
        "about that: one that vanishes starts beside the loss of guessing too. After "
        f"{bare_base.total} batches without batch norm no init has more than {max(accuracies):.1%} right, where a run "
        "that diverged counts as guessing."
    )


def _unknown_classes(c: Claim, results: "ImagenetResults") -> None:
    found = {noise: results.at_noise(noise) for noise in NOISES}
    for noise, runs in found.items():
        c.measure(f"noise {noise:g}: test accuracy at the end", mean_share(runs, _accuracy), ".1%")
        separation = c.measure(f"noise {noise:g}: {SEPARATION}", mean_share(runs, _separation), ".3f")
        rows = [row for r in runs if (row := r.uncertainty())]
        if noise and rows:
            for kind in ("known", "unknown"):
                values = [row[DISAGREEMENT][kind] for row in rows]
                c.measure(f"noise {noise:g}: disagreement of draws, {kind} classes, nats", Estimate.ratio(values))
        c.decide(f"noise {noise:g}: the entropy is higher on held-out classes", separation.within(CHANCE))
        c.decide(
            f"noise {noise:g}: by enough to be of use, {USEFUL_SEPARATION:g}", separation.within(USEFUL_SEPARATION)
        )
    for noise in NOISES[1:]:
        gain = difference(found[noise], found[NOISES[0]], _separation)
        c.measure(f"noise {noise:g} − no noise: {SEPARATION}", gain, ".3f")
        c.decide(f"noise {noise:g} tells held-out classes apart better than no noise", gain.within(0))
    own = results.base.noise
    c.headline = f"AUROC {mean_share(found[own], _separation).format('.3f')} at noise {own:g}, chance {CHANCE:g}"
    c.remark = (
        f"{NOISE_INIT}, all generated. {SEPARATION.capitalize()} is how often a picture of a held-out class has a "
        "higher entropy than one of the others (AUROC; 0.5 is chance). Noises are compared by the seeds that both "
        "have. Intervals are over seeds, for the same held-out classes and pictures: other classes may differ by more."
    )


CLAIMS: Claims = {
    "C10": (
        "MobileNet: fan-in starts far higher",
        "on a Bayesian MobileNet Kaiming fan-in starts far higher and learns more slowly, even with batch norm; "
        "fan-out is about equal to hyperfan",
        functools.partial(_compare, last="generated"),
    ),
    "C11": (
        "MobileNet, plain end: fan-in is slower",
        "with the last layer not generated fan-in learns more slowly too; fan-out is about equal to hyperfan",
        functools.partial(_compare, last="plain"),
    ),
    "Unknown": (
        "entropy tells held-out classes apart",
        "(not the paper's) the entropy of the predictions tells held-out classes apart, and better with more noise",
        _unknown_classes,
    ),
    "BN": (
        "batch norm hides that fan-in explodes",
        "(not the paper's) batch norm hides that fan-in explodes: without it fan-in starts far higher",
        _without_norm,
    ),
}
