"""From runs to what is published of them: figures, a summary as JSON, and a README with the claim."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hyperfan.experiments.cifar10.claims import decide
from hyperfan.experiments.cifar10.config import BASELINES, HYPERFANS, MOST_SEEDS, RATES, Cifar10, grid
from hyperfan.experiments.cifar10.readme import readme
from hyperfan.experiments.cifar10.runs import LAST, Run, Runs
from hyperfan.experiments.cifar10.summary import TITLE
from hyperfan.experiments.files import one_line_if_it_fails
from hyperfan.experiments.publish import check_place, publish
from hyperfan.experiments.runs import CLASSES
from hyperfan.experiments.settings import CLASSICAL
from hyperfan.experiments.statistics import Estimate
from hyperfan.report import accuracy_by_rate, loss_and_accuracy, save, settings

LABELS = {
    CLASSICAL: "classical net",
    "kaiming-fan-in": "Kaiming fan-in",
    "kaiming-fan-out": "Kaiming fan-out",
    "hyperfan-in": "hyperfan-in",
    "hyperfan-out": "hyperfan-out",
}


def write_results(
    runs_dir: Path, out: Path, base: Cifar10, tell: Callable[[str], Any], overwrite: bool = False
) -> None:
    """Write the folder of results. The first seed must be there at every rate; what else is missing is told."""
    check_place(out, overwrite)
    runs = Runs(runs_dir)
    wanted = grid(base)
    missing = [c.title for c in wanted if c not in runs]
    tell(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {runs_dir}")
    best = {init: runs.need(runs.best(base, init), MOST_SEEDS) for init in LABELS}
    claims = decide(runs, base)
    with one_line_if_it_fails(str(out), "Make room, and write the results again with --overwrite"):
        (out / "figures").mkdir(parents=True, exist_ok=True)
        tell("drawing")
        drawn = settings({f"{LABELS[i]}, {mine[0].config.rate:g}": [r.rows for r in mine] for i, mine in best.items()})
        save(loss_and_accuracy(drawn, 1, f"{TITLE}: each at its best rate", "batch"), out / "figures/loss")
        save(_rates(runs, base), out / "figures/rates")
        rows = [_row(mine) for init in LABELS for lr in RATES[init] if (mine := _at(runs, base, init, lr))]
        content = {
            "code of the runs": sorted({str(r.environment.get("code")) for r in runs}),
            "base": asdict(base),
            "settings": rows,
            "claims": [{**asdict(c), "verdict": c.verdict} for c in claims],
            "missing": missing,
        }
        publish(out, readme(claims, rows, missing, base), content)


def _at(runs: Runs, base: Cifar10, init: str, lr: float) -> list[Run]:
    return runs.seeds(replace(base, init=init, lr=lr), MOST_SEEDS)


def _rates(runs: Runs, base: Cifar10) -> Any:
    found = {
        LABELS[init]: {
            lr: [None if r.diverged else r.accuracy() for r in _at(runs, base, init, lr)] for lr in RATES[init]
        }
        for init in (*BASELINES, *HYPERFANS)
    }
    return accuracy_by_rate(found, 1 / CLASSES, f"Who trains? Test accuracy after {base.total} batches of {base.batch}")


def _row(runs: list[Run]) -> dict[str, Any]:
    config, whole = runs[0].config, [r for r in runs if not r.diverged]
    accuracies = [r.accuracy() for r in runs]
    return {
        "init": config.init,
        "rate": config.rate,
        "seeds": [r.config.seed for r in runs],
        "diverged": len(runs) - len(whole),
        "first loss": statistics.fmean(r.first_loss() for r in runs),
        "training loss": statistics.fmean(r.training_loss(LAST) for r in whole) if whole else None,
        "accuracy": asdict(Estimate.of(accuracies)),
        "accuracies": accuracies,
    }
