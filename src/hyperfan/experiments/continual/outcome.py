"""A finished grid, and what is read off its metrics."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.experiments.continual.build import points
from hyperfan.experiments.continual.config import TASKS, Continual
from hyperfan.experiments.files import read_json
from hyperfan.experiments.folder import CONFIG, ENV, read_metrics


@dataclass(frozen=True)
class Outcome:
    """All that a grid measured; a run that diverged has NaN from then on.

    Args:
        config: of the grid.
        losses: training loss, (init, rate, seed, task, measurement).
        errors: on clean points, (init, rate, seed, after, task).
        fits: predictions on clean points, (init, rate, seed, after, task, point).
        environment: that it was made in.
    """

    config: Continual
    losses: Tensor
    errors: Tensor
    fits: Tensor
    environment: Mapping[str, Any]

    def final(self, init: str, lr: float) -> Tensor:
        """Training loss at the end of each task, (seed, task); infinite after a divergence."""
        return self._losses(init, lr)[:, :, -1].nan_to_num(math.inf, math.inf)

    def first(self, init: str, lr: float) -> Tensor:
        """Training loss before the first step on each task, (seed, task)."""
        return self._losses(init, lr)[:, :, 0].nan_to_num(math.inf, math.inf)

    def finite(self, init: str, lr: float) -> int:
        """How many runs went through all tasks."""
        return int(self.final(init, lr)[:, -1].isfinite().sum())

    def score(self, init: str, lr: float) -> float:
        """What rates are compared by: the median over seeds of the mean final loss of the tasks."""
        scores: list[float] = self.final(init, lr).mean(1).tolist()
        return statistics.median(scores)

    def best(self, init: str) -> float:
        """The rate with the smallest score, in which a run that diverged counts as infinite."""
        found: float = min(self.config.rates, key=lambda lr: (self.score(init, lr), lr))
        return found

    def trained(self, init: str, lr: float) -> int:
        """How many runs ended every task closer to it than the best constant is."""
        seeds = range(self.config.seed, self.config.seed + self.config.seeds)
        constant = torch.tensor([[t.train_y.var(correction=0) for t in points(self.config, s)] for s in seeds])
        return int((self.final(init, lr) < constant).all(1).sum())

    def median_seed(self, init: str, lr: float) -> int:
        """Which seed's mean error on all tasks is the median at the end, of an even number the better."""
        scores = self.errors[self.at(init, lr)][:, -1].nan_to_num(math.inf, math.inf).mean(1)
        return int(scores.argsort()[(len(scores) - 1) // 2])

    def _losses(self, init: str, lr: float) -> Tensor:
        return self.losses[self.at(init, lr)]

    def at(self, init: str, lr: float) -> tuple[int, int]:
        """Where the runs of an init at a rate are in the tensors above."""
        if init not in self.config.inits or lr not in self.config.rates:
            raise RunError(f"the grid '{self.config.title}' has no runs of {init} at {lr:g}")
        return self.config.inits.index(init), self.config.rates.index(lr)


def is_over(path: Path) -> bool:
    """Whether there is a grid that has come to its end."""
    if not (path / CONFIG).exists():
        return False
    rows = read_metrics(path)
    return bool(rows) and rows[-1]["kind"] == "end"


def read_outcome(path: Path) -> Outcome:
    """Of a grid that is over."""
    if not (path / CONFIG).exists():
        found = ", ".join(sorted(p.parent.name for p in path.parent.glob(f"*/{CONFIG}"))) or "none"
        raise RunError(
            f"there is no grid in {path}; beside it: {found}. hyperfan run continual --all makes those that results "
            "need, and --profile says which it was"
        )
    config = _config(path)
    if not is_over(path):
        raise RunError(f"{path} is not finished: hyperfan run continual --resume goes on with it")
    rows = read_metrics(path)
    shape = (len(config.inits), len(config.rates), config.seeds)
    per_task = config.iterations // config.log_every + 1
    runs, tested = len(config.runs), len(points(config, config.seed)[0].test_x)
    losses = torch.full((runs, TASKS, per_task), math.nan, dtype=torch.float64)
    errors = torch.full((runs, TASKS, TASKS), math.nan, dtype=torch.float64)
    fits = torch.full((runs, TASKS, TASKS, tested), math.nan, dtype=torch.float64)
    try:
        for row in rows:
            if row["kind"] == "losses":
                losses[:, row["task"], row["iteration"] // config.log_every] = _tensor(row["losses"])
            elif row["kind"] == "errors":
                errors[:, row["after"]] = _tensor(row["errors"])
                fits[:, row["after"]] = _tensor(row["fits"])
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise RunError(f"{path} does not hold the metrics of a continual-learning grid: {error}") from error
    losses, errors, fits = (t.view(*shape, *t.shape[1:]) for t in (losses, errors, fits))
    return Outcome(config, losses, errors, fits, read_json(path / ENV))


def _config(path: Path) -> Continual:
    content: dict[str, Any] = read_json(path / CONFIG)
    try:
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        return Continual(**values)
    except (AttributeError, TypeError) as error:
        raise RunError(f"{path / CONFIG} is not the configuration of a continual-learning grid: {error}") from error


def _tensor(values: Sequence[Any]) -> Tensor:
    """Numbers, ``None`` where there is none."""

    def filled(value: Any) -> Any:
        return [filled(v) for v in value] if isinstance(value, list) else math.nan if value is None else value

    return torch.tensor(filled(values), dtype=torch.float64)
