"""The page of results that people read: pictures, verdicts, numbers, and how to repeat it."""

import math
from collections.abc import Sequence

from torch import Tensor

from hyperfan.experiments.claims import Claim, claim_sections, verdict_lines
from hyperfan.experiments.continual.build import points
from hyperfan.experiments.continual.claims import ENOUGH, MARGIN
from hyperfan.experiments.continual.config import NAMES, PROFILES, TASKS
from hyperfan.experiments.continual.outcome import Outcome
from hyperfan.experiments.continual.table import HEADER, after, cells
from hyperfan.report import quartiles

PAGE = """\
# Continual learning on regression, section 4.2 of the paper

Three functions are learnt one after another, {iterations} iterations each, by a 1-10-10-1 mainnet whose weights and
biases a hypernet makes from a trainable embedding for each task; a regulariser holds what it makes for earlier tasks.
{seeds} seeds, every init at every rate, all runs of an optimiser as one batched program. Written by
`hyperfan results continual` from the grids of `hyperfan run continual --all`; `summary.json` holds the same as data.

![Training loss by task](figures/loss.svg)

| claim | the paper says | verdict |
|---|---|---|
{verdicts}

## What is kept of the first task
The regulariser is as in the paper, β = {beta:g}. Errors are medians over seeds on the clean points of the first task,
after each task; it is forgotten if its error grew more than {forgotten:g} times, of the runs that had learnt it better
than a constant would ({constant:.2g}).

{forgetting}

![Fits after each task, of the run whose error at the end is the median](figures/fits.svg)

## Every init at its best rate
The best rate has the smallest median over seeds of the mean final loss of the tasks, where a run that diverged counts
as infinite. Losses are medians over seeds, on the training points at the end of each task; errors are medians on the
clean points of each task after the last one.

{best}

![The other inits](figures/loss-others.svg)

## How facts are decided
Settings are compared seed by seed, since runs of one seed share points, embeddings' draws and the order of batches: the
median of the ratios with its 95 % interval (bootstrap), and the exact p of Wilcoxon's signed-rank test. That median is
not the ratio of the medians: runs either learn a task or do not. A run that diverged counts as infinite, and two such
are equal. Something is smaller if the interval lies below 1 and p < 0.05; it is not if the interval lies above
1/{margin:g}. With fewer than {enough} seeds nothing is decided. Shares have Wilson's interval. Rates are chosen on the
same seeds that are compared. Intervals and p are those of each comparison by itself: with so many, about one in twenty
would err. Start is before the first step on a task. A claim holds if all of its facts do, in part if some do and some
do not, and is not decided while nothing speaks against it.

{claims}
## All rates
Trained are runs that end every task closer to it than the best constant would be. Losses are medians with quartiles.

{all}

## Choices that the paper leaves open
- The loss of a curve is that on all training points of the task, not of the last batch.
- Batches go through the points pass after pass, each pass in an order of its own.
- The hypernet's hidden layers are ReLU; M4 has an embedding of its own for each tensor, since its constant depends on
  the tensor.
- Adam starts anew in each task; its look-ahead is the step that it would take.
- Means over runs have heavy tails, and one run that diverges would take the mean with it; so verdicts go by medians.
  The means in the figure are those of the runs that are finite at each iteration.

## Repeat it
```sh
hyperfan run continual --all --resume{profile}     # some minutes; can be stopped and resumed
hyperfan results continual --overwrite{profile}
```
"""
FORGOTTEN = 10.0
"""A task counts as forgotten if its error grew by such a factor since it was learnt."""


def readme(claims: Sequence[Claim], sgd: Outcome, adam: Outcome | None) -> str:
    """The page, from the claims and the grids."""
    grids = [sgd] if adam is None else [sgd, adam]
    profile = next((name for name, c in PROFILES.items() if c.iterations == sgd.config.iterations), "paper")
    return PAGE.format(
        iterations=sgd.config.iterations,
        seeds=sgd.config.seeds,
        beta=sgd.config.beta,
        verdicts=verdict_lines(claims),
        constant=_constant(sgd),
        forgotten=FORGOTTEN,
        forgetting=_forgetting(grids),
        best="\n\n".join(f"With {NAMES[o.config.optimiser]}:\n\n{_table(HEADER, cells(o))}" for o in grids),
        margin=MARGIN,
        enough=ENOUGH,
        claims=claim_sections(claims),
        all="\n\n".join(f"With {NAMES[o.config.optimiser]}:\n\n{_all(o)}" for o in grids),
        profile="" if profile == "paper" else f" --profile {profile}",
    )


def _constant(outcome: Outcome) -> float:
    """The error of the best constant on the first task."""
    y = points(outcome.config, outcome.config.seed)[0].test_y
    return y.var(correction=0).item()


def _forgetting(grids: Sequence[Outcome]) -> str:
    lines = []
    for outcome in grids:
        for init in outcome.config.inits:
            errors = after(outcome, init)[:, :, 0]
            learnt, kept = errors[:, 0], errors[:, -1]
            had = (learnt < _constant(outcome)) & kept.isfinite()
            forgot = int((kept[had] > FORGOTTEN * learnt[had]).sum())
            medians = [_text(m) for m in quartiles(errors)[1].tolist()]
            lines.append([NAMES[outcome.config.optimiser], init, *medians, f"{forgot} of {int(had.sum())}"])
    return _table(["optimiser", "init", *(f"error after task {i + 1}" for i in range(TASKS)), "forgotten"], lines)


def _all(outcome: Outcome) -> str:
    lines = []
    for init in outcome.config.inits:
        for lr in outcome.config.rates:
            losses = outcome.final(init, lr)
            shown = [_spread(losses[:, task]) for task in range(TASKS)]
            finite, trained = outcome.finite(init, lr), outcome.trained(init, lr)
            lines.append([init, f"{lr:g}", str(finite), str(trained), *shown])
    header = ["init", "rate", "finite", "trained", *(f"loss, task {i + 1}" for i in range(TASKS))]
    return _table(header, lines)


def _spread(values: Tensor) -> str:
    low, middle, high = (_text(q.item()) for q in quartiles(values))
    return f"{middle} [{low}, {high}]"


def _text(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "∞"


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *lines])
