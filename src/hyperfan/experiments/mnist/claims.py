"""The paper's claims about MNIST, each decided by a rule that is written down before its number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hyperfan.experiments.mnist.config import (
    ADAM_RATES,
    CLASSICAL,
    FEW,
    SEEDS,
    SGD_RATES,
    SHORT,
    Mnist,
)
from hyperfan.experiments.mnist.runs import SETTLED, Run, Runs
from hyperfan.experiments.mnist.starts import Start, growth
from hyperfan.experiments.statistics import Estimate

Verdict = Literal["holds", "holds in part", "does not hold", "not decided"]
HYPERFANS = ("hyperfan-in", "hyperfan-out")
MEANS = ("hyperfan-harmonic", "hyperfan-geometric", "hyperfan-arithmetic")
Starts = Callable[[Mnist], Sequence[Start]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, how it was decided, what was measured, and what follows.

    Args:
        name: as in the list of claims.
        says: the claim.
        rule: when it counts as holding.
        measured: label → mean with interval and n.
        verdict: by the rule.
        remark: what a reader should know beside it.
    """

    name: str
    says: str
    rule: str
    measured: dict[str, str]
    verdict: Verdict
    remark: str = ""


def decide(runs: Runs, starts: Starts, base: Mnist) -> list[Claim]:
    """All claims, from finished runs and from starts."""
    return [
        _explodes(starts, base),
        _keeps_scale(starts, base),
        _settles(runs, base),
        _learns(runs, base),
        _relu(starts, base),
        _biases(runs, base),
        _means(runs, base),
        _sharing(runs, base),
        _flow(starts, base),
        _adam(runs, base),
    ]


# ── before training ────────────────────────────────────────────────────────────────────────────────────────────────


def _explodes(starts: Starts, base: Mnist) -> Claim:
    def grows(init: str, activation: Literal["tanh", "relu"]) -> Estimate:
        found = starts(replace(base, init=init, activation=activation))
        return Estimate.ratio([growth(s.activations[:5]) for s in found])

    relu, tanh = grows("kaiming-fan-in", "relu"), grows("xavier-fan-in", "tanh")
    out, both = grows("xavier-fan-out", "tanh"), grows("xavier-harmonic", "tanh")
    plain = grows(CLASSICAL, "tanh")
    ratio = _beside(starts, base, "xavier-fan-in", CLASSICAL, slice(0, 1))
    explodes, vanishes = _above(relu, 2), _below(out, 0.5)
    return Claim(
        "C1",
        "classical init on a hypernet explodes (fan-in) or vanishes (fan-out) activations exponentially in depth",
        "the factor from one hidden layer to the next is above 2 (fan-in) and below ½ (fan-out), with its interval",
        {
            "fan-in, ReLU: factor per layer": relu.say(),
            "fan-in, tanh: factor per layer": tanh.say(),
            "fan-in, tanh: first layer over the classical net's": ratio.say(),
            "fan-out, tanh: factor per layer": out.say(),
            "torch's xavier (both fans), tanh: factor per layer": both.say(),
            "classical net, tanh: factor per layer": plain.say(),
        },
        _part(explodes and _above(tanh, 2), vanishes, explodes),
        "Under tanh, fan-in cannot grow with depth: every layer reads saturated values of ±1, so all layers explode "
        "alike. With ReLU it is exponential.",
    )


def _keeps_scale(starts: Starts, base: Mnist) -> Claim:
    hidden = {init: _beside(starts, base, init, CLASSICAL, slice(0, 5)) for init in HYPERFANS}
    last = {init: _beside(starts, base, init, CLASSICAL, slice(5, 6)) for init in HYPERFANS}
    inside = all(_above(e, 0.5) and _below(e, 2) for e in hidden.values())
    all_inside = inside and all(_above(e, 0.5) and _below(e, 2) for e in last.values())
    return Claim(
        "C2",
        "hyperfan keeps activations at the scale of a classical net",
        "activations over the classical net's are between ½ and 2, with their interval",
        {
            **{f"{init}: hidden layers, geometric mean": e.say() for init, e in hidden.items()},
            **{f"{init}: output layer": e.say() for init, e in last.items()},
        },
        _part(all_inside, inside),
        "Hyperfan-out keeps gradients, and the output layer narrows from 500 to 10, so its logits are larger.",
    )


def _relu(starts: Starts, base: Mnist) -> Claim:
    tanh = starts(replace(base, init="xavier-fan-in"))
    relu = starts(replace(base, init="kaiming-fan-in", activation="relu"))
    by_layer = [
        Estimate.ratio([b.activations[i] / a.activations[i] for a, b in zip(tanh, relu, strict=True)])
        for i in range(len(tanh[0].activations))
    ]
    return Claim(
        "C5",
        "with ReLU and Kaiming init the explosion is bigger",
        "activations over those of tanh and Xavier are above 1 in every layer, with their interval",
        {f"layer {i}: ReLU over tanh": e.say() for i, e in enumerate(by_layer, 1)},
        "holds" if all(_above(e, 1) for e in by_layer) else "does not hold",
    )


def _flow(starts: Starts, base: Mnist) -> Claim:
    measured, near, shrinks = {}, True, True
    fans = [(784, 500), *[(500, 500)] * 4, (500, 10)]
    for init in HYPERFANS:
        found = starts(replace(base, init=init))
        for label, layers in (("hidden layers 2 to 5", range(1, 5)), ("output layer", range(5, 6))):
            says = fans[layers[0]][0 if init == "hyperfan-out" else 1] / base.embedding
            got = Estimate.ratio([_geometric([s.flow[i] for i in layers]) for s in found])
            measured[f"{init}: {label}, formula {says:g}"] = got.say()
            near = near and _above(got, says / 1.5) and _below(got, says * 1.5)
            shrinks = shrinks and _below(got, 1)
    return Claim(
        "C14",
        "gradients shrink from mainnet to hypernet, by the factor d_j/(d_k·Var(e)) under hyperfan-out "
        "(and d_i in place of d_j under hyperfan-in)",
        "Var(∂L/∂h)/Var(∂L/∂W) is within 1.5 of the formula, and below 1",
        measured,
        _part(near and shrinks, near),
        "The formula is right. It is a shrinking only where the embedding is wider than the layer; at the paper's own "
        "sizes, 500 and 50, the variance grows tenfold.",
    )


# ── training ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _settles(runs: Runs, base: Mnist) -> Claim:
    found = {init: runs.need(replace(base, init=init), SEEDS) for init in (CLASSICAL, "xavier-fan-in", *HYPERFANS)}
    settled = {init: Estimate.of([r.settled() for r in mine]) for init, mine in found.items()}
    moves = {
        (of, relative): {i: Estimate.of([r.restless(of, relative) for r in mine]) for i, mine in found.items()}
        for of in ("mean", "deviation")
        for relative in (True, False)
    }
    bad = "xavier-fan-in"
    sooner = [_apart(settled[init], settled[bad]) for init in HYPERFANS]
    steadier = [_apart(e[init], e[bad]) for (_, relative), e in moves.items() if relative for init in HYPERFANS]
    smaller = all(_apart(e[init], e[bad]) for (_, relative), e in moves.items() if not relative for init in HYPERFANS)
    return Claim(
        "C3",
        "hyperfan's generated weights settle quickly, Xavier's stay unstable",
        f"their deviation comes to stay within {SETTLED:.0%} of its final value sooner than Xavier's, and after the "
        "first third of training their mean and deviation move less, relative to their size; intervals apart",
        {
            **{f"{init}: batches until settled": e.say(".0f") for init, e in settled.items()},
            **{
                f"{init}: movement of the {of} in 1000 batches, {'relative' if relative else 'as it is'}": e.say()
                for (of, relative), by_init in moves.items()
                for init, e in by_init.items()
            },
        },
        _part(all(sooner) and all(steadier), *sooner, *steadier),
        "As they are, Xavier's weights move more, since they are larger; the paper's figure shows that."
        if smaller and not all(steadier)
        else "",
    )


def _learns(runs: Runs, base: Mnist) -> Claim:
    bad = runs.need(replace(base, init="xavier-fan-in"), SEEDS)
    plain = runs.need(replace(base, init=CLASSICAL), SEEDS)
    measured: dict[str, str] = {}
    better = []
    for init, mine in ((CLASSICAL, plain), ("xavier-fan-in", bad)):
        measured |= _training(init, mine)
    for init in HYPERFANS:
        mine = runs.need(replace(base, init=init), SEEDS)
        measured |= _training(init, mine)
        loss = Estimate.ratio([b.training_loss() / max(a.training_loss(), 1e-12) for a, b in _pairs(mine, bad)])
        gain = _gain(mine, bad, 1)
        measured[f"{init}: Xavier's training loss in the last epoch over its own"] = loss.say()
        measured[f"{init}: accuracy after one epoch above Xavier's"] = gain.say(".3f")
        better += [_above(loss, 1), _above(gain, 0)]
    return Claim(
        "C4",
        "lower training loss and faster convergence",
        "training loss of the last epoch below Xavier fan-in's, and accuracy after one epoch above it, paired by seed, "
        "with intervals",
        measured,
        _part(all(better), *better),
    )


def _biases(runs: Runs, base: Mnist) -> Claim:
    inits = (*HYPERFANS, "xavier-fan-in")
    one = {i: Estimate.of([r.settled() for r in runs.need(replace(base, init=i), SEEDS)]) for i in inits}
    two_runs = {i: runs.need(replace(base, init=i, generate="weights+biases"), SEEDS) for i in inits}
    two = {i: Estimate.of([r.settled() for r in mine]) for i, mine in two_runs.items()}
    longer = [_apart(one[i], two[i]) for i in HYPERFANS]
    sooner = [_apart(two[i], two["xavier-fan-in"]) for i in HYPERFANS]
    few = min(e.n for e in two.values()) < 2
    return Claim(
        "C6",
        "with generated biases hyperfan takes longer to settle, still less than Xavier",
        "batches until settled (as in C3): more than with weights alone, fewer than Xavier's; intervals apart",
        {
            **{f"{i}, weights: batches until settled": e.say(".0f") for i, e in one.items()},
            **{f"{i}, weights and biases": e.say(".0f") for i, e in two.items()},
            **{f"{i}, weights and biases: accuracy": _accuracy(mine).say(".4f") for i, mine in two_runs.items()},
        },
        "not decided" if few else _part(all(longer) and all(sooner), *longer, *sooner),
        "One seed has no interval, so nothing is decided." if few else "",
    )


def _means(runs: Runs, base: Mnist) -> Claim:
    short = replace(base, epochs=min(base.epochs, SHORT))
    full = {init: runs.need(replace(base, init=init), SEEDS) for init in HYPERFANS}
    measured, better = {}, []
    for init in HYPERFANS:
        measured[f"{init}: accuracy after {short.epochs} epochs"] = _accuracy(full[init], short.epochs).say(".4f")
    for mean in MEANS:
        mine = runs.need(replace(short, init=mean), SEEDS)
        measured[f"{mean}: accuracy"] = _accuracy(mine, short.epochs).say(".4f")
        for init in HYPERFANS:
            gain = _gain(mine, full[init], short.epochs)
            measured[f"{mean} above {init}"] = gain.say(".4f")
            better.append((mean, init, gain))
    beats = {mean for mean in MEANS if all(_above(g, 0) for m, _, g in better if m == mean)}
    return Claim(
        "C12",
        "no mean of hyperfan-in and hyperfan-out is better than both",
        "no mean has a higher accuracy than both, paired by seed, with intervals above 0",
        measured,
        "does not hold" if beats else "holds",
        "" if not beats else f"Better than both: {', '.join(sorted(beats))}.",
    )


def _sharing(runs: Runs, base: Mnist) -> Claim:
    epochs = min(base.epochs, SHORT)
    measured, harm = {}, []
    for init in HYPERFANS:
        shared = runs.need(replace(base, init=init), SEEDS)
        apart = runs.need(replace(base, init=init, heads="separate", epochs=epochs), SEEDS)
        gain = _gain(apart, shared, epochs)
        measured[f"{init}: accuracy after {epochs} epochs, separate above shared"] = gain.say(".4f")
        harm.append(_above(gain, 0))
    return Claim(
        "C13",
        "sharing a head does no harm",
        "separate heads are not better: their gain in accuracy, paired by seed, has an interval that reaches 0",
        measured,
        _part(not any(harm), not all(harm)),
        "The seeds are few, so a small harm could hide in the interval.",
    )


def _adam(runs: Runs, base: Mnist) -> Claim:
    few = replace(base, batches=min(base.total, FEW))
    good = _accuracy(runs.need(few, SEEDS))
    sgd = {lr: _accuracy(runs.need(replace(few, init="xavier-fan-in", lr=lr), SEEDS)) for lr in SGD_RATES}
    adam_runs = {lr: runs.need(replace(few, init="xavier-fan-in", lr=lr, optimiser="adam"), SEEDS) for lr in ADAM_RATES}
    adam = {lr: _accuracy(found) for lr, found in adam_runs.items()}
    best_sgd, best_adam = max(sgd.values(), key=lambda e: e.mean), max(adam.values(), key=lambda e: e.mean)
    fails, helps = _apart(best_sgd, good), _apart(best_sgd, best_adam)
    return Claim(
        "C15",
        "plain SGD suffices with hyperfan where bad inits need Adam",
        f"after {few.total} batches: Xavier fan-in at its best SGD rate is worse than hyperfan-in with SGD, and better "
        "with Adam; intervals apart",
        {
            f"hyperfan-in, SGD {few.rate:g}": good.say(".3f"),
            **{f"xavier-fan-in, SGD {lr:g}": e.say(".3f") for lr, e in sgd.items()},
            **{f"xavier-fan-in, Adam {lr:g}": e.say(".3f") for lr, e in adam.items()},
        },
        _part(fails and helps, fails, helps),
        "" if not _apart(best_adam, good) else "Adam mends it only in part: it stays below hyperfan-in with SGD.",
    )


# ── comparing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _beside(starts: Starts, base: Mnist, init: str, other: str, layers: slice) -> Estimate:
    """The geometric mean over layers of one setting's activations over another's, seed by seed."""
    pairs = zip(starts(replace(base, init=init)), starts(replace(base, init=other)), strict=True)
    mine = [_geometric(a.activations[layers]) / _geometric(b.activations[layers]) for a, b in pairs]
    return Estimate.ratio(mine)


def _geometric(values: Sequence[float]) -> float:
    return Estimate.ratio(values).mean


def _training(init: str, runs: list[Run]) -> dict[str, str]:
    return {
        f"{init}: accuracy after one epoch": _accuracy(runs, 1).say(".4f"),
        f"{init}: accuracy at the end": _accuracy(runs).say(".4f"),
    }


def _accuracy(runs: list[Run], epoch: int | None = None) -> Estimate:
    return Estimate.of([r.accuracy(epoch) for r in runs])


def _gain(mine: list[Run], theirs: list[Run], epoch: int) -> Estimate:
    """Accuracy after an epoch above that of others, paired by seed."""
    return Estimate.of([a.accuracy(epoch) - b.accuracy(epoch) for a, b in _pairs(mine, theirs)])


def _pairs(a: list[Run], b: list[Run]) -> list[tuple[Run, Run]]:
    """By seed: the runs of one seed have the same data order and probe."""
    theirs = {r.config.seed: r for r in b}
    return [(r, theirs[r.config.seed]) for r in a if r.config.seed in theirs]


def _above(e: Estimate, bound: float) -> bool:
    return e.low is not None and e.low > bound


def _below(e: Estimate, bound: float) -> bool:
    return e.high is not None and e.high < bound


def _apart(low: Estimate, high: Estimate) -> bool:
    """Whether one is below the other, intervals and all."""
    return low.high is not None and high.low is not None and low.high < high.low


def _part(whole: bool, *parts: bool) -> Verdict:
    return "holds" if whole else "holds in part" if any(parts) else "does not hold"
