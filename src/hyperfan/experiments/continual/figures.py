"""The figures of the continual-learning experiment: losses as in the paper, and what a median run has learnt."""

from collections.abc import Iterator

import torch

from hyperfan.experiments.continual.build import points
from hyperfan.experiments.continual.config import PAPER_INITS
from hyperfan.experiments.continual.outcome import Outcome
from hyperfan.report import Fit, fits, losses_by_task

LABELS = {
    "kaiming-fan-in": "Kaiming fan-in",
    "kaiming-fan-out": "Kaiming fan-out",
    "hyperfan-in@exact": "hyperfan-in, exact",
    "hyperfan-out@exact": "hyperfan-out, exact",
    "m2": "M2: small random",
    "m3": "M3: Kaiming, head/10",
    "m4": "M4: Kaiming, constant embedding",
}


def figures(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Each figure with a name for its file: every init at its best rate."""
    config = outcome.config
    best = {init: outcome.best(init) for init in config.inits}
    labels = {init: f"{LABELS.get(init, init)} at {lr:g}" for init, lr in best.items()}
    tasks = points(config, config.seed)
    names = [task.name for task in tasks]
    iterations = range(0, config.iterations + 1, config.log_every)
    title = f"Continual Learning Loss on a Sequence of Regression Tasks: {config.seeds} runs of each init"
    # More than a handful of curves cannot be told apart, so those the paper does not show have a figure of their own.
    shown = {"loss": [i for i in best if i in PAPER_INITS], "loss-others": [i for i in best if i not in PAPER_INITS]}
    for name, inits in shown.items():
        curves = {}
        for init in inits:
            finite = outcome.finite(init, best[init])
            note = "" if finite == config.seeds else f" ({finite} of {config.seeds} finite)"
            curves[labels[init] + note] = outcome.losses[outcome.at(init, best[init])]
        if curves:
            yield name, losses_by_task(curves, iterations, names, title)
    runs = []
    for init, lr in best.items():
        at = (*outcome.at(init, lr), outcome.median_seed(init, lr))
        runs.append(Fit(labels[init], outcome.fits[at], outcome.errors[at]))
    x, y = (
        torch.stack([of.squeeze(-1) for of in both])
        for both in zip(*((t.test_x, t.test_y) for t in tasks), strict=True)
    )
    yield "fits", fits(runs, x, y, names, "What the median run has learnt, and what it keeps, after each task")
