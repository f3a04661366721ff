"""What came out for each init at its best rate, as rows of a table."""

import math
import statistics
from typing import Any

from torch import Tensor

from hyperfan.experiments.continual.config import TASKS
from hyperfan.experiments.continual.outcome import Outcome
from hyperfan.report import quartiles

HEADER = ["init", "best rate", "finite", *(f"loss, task {i + 1}" for i in range(TASKS))]
HEADER += [f"error at the end, task {i + 1}" for i in range(TASKS)]


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    """A row for each init."""
    return [_row(outcome, init, outcome.best(init)) for init in outcome.config.inits]


def cells(outcome: Outcome) -> list[list[str]]:
    """The same as text under :data:`HEADER`."""
    return [
        [
            row["init"],
            f"{row['rate']:g}",
            f"{row['finite']} of {row['runs']}",
            *map(_text, row["loss"]),
            *map(_text, row["error"]),
        ]
        for row in rows(outcome)
    ]


def _row(outcome: Outcome, init: str, lr: float) -> dict[str, Any]:
    losses, errors = outcome.final(init, lr), after(outcome, init)
    return {
        "init": init,
        "rate": lr,
        "finite": outcome.finite(init, lr),
        "trained": outcome.trained(init, lr),
        "runs": outcome.config.seeds,
        "loss": [statistics.median(column) for column in losses.T.tolist()],
        "error": [statistics.median(column) for column in errors[:, -1].T.tolist()],
        "errors by task after each task": quartiles(errors)[1].tolist(),
    }


def after(outcome: Outcome, init: str) -> Tensor:
    """Errors at the init's best rate, (seed, after, task); infinite after a divergence."""
    return outcome.errors[outcome.at(init, outcome.best(init))].nan_to_num(math.inf, math.inf)


def _text(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "diverged"
