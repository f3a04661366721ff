"""From runs to what is published of them: figures, a summary as JSON, and a README with the claims."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hyperfan.experiments.files import one_line_if_it_fails
from hyperfan.experiments.mnist.claims import decide
from hyperfan.experiments.mnist.config import HEADLINE, SEEDS, Mnist, grid
from hyperfan.experiments.mnist.figures import figures
from hyperfan.experiments.mnist.readme import readme
from hyperfan.experiments.mnist.runs import Run, Runs
from hyperfan.experiments.mnist.starts import Images, Start, start
from hyperfan.experiments.publish import check_place, publish
from hyperfan.experiments.settings import CLASSICAL
from hyperfan.experiments.statistics import Estimate
from hyperfan.report import save, settings

START_SEEDS = 10
LABELS = {
    CLASSICAL: "classical net",
    "xavier-fan-in": "Xavier fan-in",
    "kaiming-fan-in": "Kaiming fan-in",
    "hyperfan-in": "hyperfan-in",
    "hyperfan-out": "hyperfan-out",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "weights": {},
    "weights-and-biases": {"generate": "weights+biases"},
    "relu": {"activation": "relu"},
}
"""A folder of figures for each, and how its runs differ from the base."""


def write_results(
    runs_dir: Path,
    out: Path,
    base: Mnist,
    data_dir: Path | None,
    tell: Callable[[str], Any],
    overwrite: bool = False,
) -> None:
    """Write the folder of results. Of the runs, the four headline settings must be there; what else is missing is told.

    A claim without its runs is not decided, and a variant without them is not drawn.
    """
    check_place(out, overwrite)
    runs = Runs(runs_dir)
    missing = [c for c in grid(base) if c not in runs]
    tell(f"{len(grid(base)) - len(missing)} of {len(grid(base))} runs are in {runs_dir}")
    for c in _headline(base):
        runs.need(c, SEEDS)  # before anything takes time
    variants = {v: replace(base, **changes) for v, changes in VARIANTS.items()}
    variants = {v: c for v, c in variants.items() if all(runs.seeds(h, SEEDS) for h in _headline(c))}
    images = Images(data_dir)

    @functools.cache
    def starts(config: Mnist) -> Sequence[Start]:
        tell(f"looking at {START_SEEDS} untrained nets: {config.title.replace(f'seed-{config.seed} ', '')}")
        return [start(replace(config, seed=config.seed + i), images) for i in range(START_SEEDS)]

    claims = decide(runs, starts, base)
    with one_line_if_it_fails(str(out), "Make room, and write the results again with --overwrite"):
        for variant, its_base in variants.items():
            tell(f"drawing {variant}")
            _draw(runs, its_base, out / "figures" / variant)
        rows = [_row(mine) for mine in _by_setting(runs, base)]
        content = {
            "code of the runs": sorted({str(r.environment.get("code")) for r in runs}),
            "base": asdict(base),
            "settings": rows,
            "claims": [{**asdict(c), "verdict": c.verdict} for c in claims],
            "missing": [c.title for c in missing],
        }
        publish(out, readme(claims, rows, [c.title for c in missing], list(variants), base), content)


def _headline(base: Mnist) -> list[Mnist]:
    """The four settings of the paper's figures. The classical net generates nothing."""
    names = [i.replace("xavier", "kaiming") if base.activation == "relu" else i for i in HEADLINE]
    return [replace(base, init=i, generate="weights" if i == CLASSICAL else base.generate) for i in names]


def _draw(runs: Runs, base: Mnist, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = {LABELS[c.init]: [r.rows for r in runs.need(c, SEEDS)] for c in _headline(base)}
    for name, figure in figures(settings(found), base.epoch_batches, base.generate, base.activation):
        save(figure, folder / name)


def _by_setting(runs: Runs, base: Mnist) -> list[list[Run]]:
    """The runs of every setting, in the order of the grid."""
    seen = dict.fromkeys(replace(c, seed=base.seed) for c in grid(base))
    return [found for c in seen if (found := runs.seeds(c, SEEDS))]


def _row(runs: list[Run]) -> dict[str, Any]:
    config = runs[0].config
    accuracy = Estimate.of([r.accuracy() for r in runs])
    return {
        "setting": config.title.replace(f" seed-{config.seed}", ""),
        "epochs": config.total / config.epoch_batches,
        "seeds": [r.config.seed for r in runs],
        "diverged": sum(r.diverged for r in runs),
        "accuracy": asdict(accuracy),
        "accuracy after one epoch": [r.accuracy(1) for r in runs] if config.total >= config.epoch_batches else None,
        "final training loss": [r.training_loss() for r in runs],
        "final test loss": [r.test_loss() for r in runs],
        "batches until settled": None if any(r.diverged for r in runs) else [r.settled() for r in runs],
    }
