"""The page of results that people read: pictures, verdicts, numbers, and how to repeat it."""

import math
from collections.abc import Sequence

from hyperfan.experiments.claims import Claim, claim_sections, verdict_lines
from hyperfan.experiments.continual.config import TASKS
from hyperfan.experiments.continual.outcome import Outcome
from hyperfan.experiments.continual.table import HEADER, cells

PAGE = """\
# Continual learning on regression, section 4.2 of the paper

Three functions are learnt one after another by a 1-10-10-1 mainnet, whose weights and biases a hypernet makes from a
trainable embedding for each task; a regulariser holds what it makes for earlier tasks. {seeds} seeds, every init at
every rate, all runs of an optimiser as one batched program. Settings are compared seed by seed, since runs of one
seed share points, embeddings' draws and the order of batches: the median of the ratio with its 95 % interval
(bootstrap), and the exact p of Wilcoxon's signed-rank test. A fact is decided where the interval and p < 0.05 agree.
Intervals and p are those of each comparison by itself; with so many, about one in twenty would err. Written by
`hyperfan results continual` from the grids of `hyperfan run continual --all`; `summary.json` holds the same as data.

![Training loss by task](figures/loss.png)

| claim | the paper says | verdict |
|---|---|---|
{verdicts}

![Fits of a median run after each task](figures/fits.png)

## Every init at its best rate
The best rate has the smallest median over seeds of the mean final loss of the tasks, where a run that diverged counts
as infinite. Losses are medians over seeds, on the training points at the end of each task; errors are medians on the
clean points of each task after the last one: what is left of it.

{best}

{forgetting}

![The other inits](figures/loss-others.png)

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
- Means over runs have heavy tails, and one run that diverges takes the mean with it; so verdicts go by medians.

## Repeat it
```sh
hyperfan run continual --all --resume     # some minutes; can be stopped and resumed
hyperfan results continual --overwrite
```
"""
NAMES = {"sgd": "SGD", "adam": "Adam"}
FORGOTTEN = 10.0
"""A task counts as forgotten if its error grew by such a factor since it was learnt."""


def readme(claims: Sequence[Claim], sgd: Outcome, adam: Outcome | None) -> str:
    """The page, from the claims and the grids."""
    grids = [sgd] if adam is None else [sgd, adam]
    return PAGE.format(
        seeds=sgd.config.seeds,
        verdicts=verdict_lines(claims),
        best="\n\n".join(f"With {NAMES[o.config.optimiser]}:\n\n{_table(HEADER, cells(o))}" for o in grids),
        forgetting=_forgetting(sgd),
        claims=claim_sections(claims),
        all="\n\n".join(f"With {NAMES[o.config.optimiser]}:\n\n{_all(o)}" for o in grids),
    )


def _forgetting(outcome: Outcome) -> str:
    """A sentence on how many runs forgot the first task."""
    told = []
    for init in outcome.config.inits:
        errors = outcome.errors[outcome.at(init, outcome.best(init))]
        learnt, kept = errors[:, 0, 0], errors[:, -1, 0]
        forgot = int((kept > FORGOTTEN * learnt).sum())
        told.append(f"{init} {forgot} of {int(kept.isfinite().sum())}")
    return (
        f"How well the regulariser holds, at the paper's β = {outcome.config.beta:g}: runs with SGD whose error on the "
        f"first task grew more than tenfold by the end: {', '.join(told)}."
    )


def _all(outcome: Outcome) -> str:
    lines = []
    for init in outcome.config.inits:
        for lr in outcome.config.rates:
            losses = outcome.final(init, lr)
            shown = [_spread(losses[:, task].tolist()) for task in range(TASKS)]
            finite, trained = outcome.finite(init, lr), outcome.trained(init, lr)
            lines.append([init, f"{lr:g}", str(finite), str(trained), *shown])
    header = ["init", "rate", "finite", "trained", *(f"loss, task {i + 1}" for i in range(TASKS))]
    return _table(header, lines)


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    low, middle, high = (ordered[round(q * (len(ordered) - 1))] for q in (0.25, 0.5, 0.75))
    return f"{_text(middle)} [{_text(low)}, {_text(high)}]"


def _text(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "∞"


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *lines])
