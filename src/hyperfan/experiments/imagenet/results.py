"""From runs to what is published of them: figures, a summary as JSON, and a README with the claims."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from hyperfan.experiments.files import one_line_if_it_fails
from hyperfan.experiments.imagenet.claims import decide
from hyperfan.experiments.imagenet.config import INITS, SEEDS, Imagenet, grid
from hyperfan.experiments.imagenet.readme import readme
from hyperfan.experiments.imagenet.runs import Run, Runs
from hyperfan.experiments.imagenet.summary import TITLE
from hyperfan.experiments.publish import check_place, publish
from hyperfan.experiments.statistics import Estimate
from hyperfan.report import save, settings, training_losses, uncertainty

LABELS = {
    "kaiming-fan-in": "Kaiming fan-in",
    "kaiming-fan-out": "Kaiming fan-out",
    "hyperfan-in": "hyperfan-in",
    "hyperfan-out": "hyperfan-out",
}
VARIANTS: dict[str, tuple[bool, Literal["generated", "plain"]]] = {
    "batch norm, all generated": (True, "generated"),
    "batch norm, last layer plain": (True, "plain"),
    "no batch norm, all generated": (False, "generated"),
    "no batch norm, last layer plain": (False, "plain"),
}


def write_results(
    runs_dir: Path, out: Path, base: Imagenet, tell: Callable[[str], Any], overwrite: bool = False
) -> None:
    """Write the folder of results. Every setting must have a run; what else is missing is told."""
    check_place(out, overwrite)
    runs = Runs(runs_dir)
    wanted = grid(base)
    missing = [c.title for c in wanted if c not in runs]
    tell(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {runs_dir}")
    found = {
        label: {init: runs.need(replace(base, init=init, norm=norm, last=last), SEEDS) for init in INITS}
        for label, (norm, last) in VARIANTS.items()
    }
    claims = decide(runs, base)
    rows = [_row(mine) for by_init in found.values() for mine in by_init.values()]
    told = _told(next(iter(found.values())))
    tested = sum(n for n, _, _ in next(iter(told.values()))[0]["reliability"]) if told else 0
    classes = next(iter(told.values()))[0]["classes"] if told else 1
    with one_line_if_it_fails(str(out), "Make room, and write the results again with --overwrite"):
        (out / "figures").mkdir(parents=True, exist_ok=True)
        tell("drawing")
        panels = {
            label: settings({LABELS[init]: [r.rows for r in mine] for init, mine in by_init.items()})
            for label, by_init in found.items()
        }
        save(training_losses(panels, f"{TITLE}: who starts at the right scale?"), out / "figures/loss")
        if told:
            title = "Does it know what it does not know? Batch norm, all generated"
            save(uncertainty(told, classes, title), out / "figures/uncertainty")
        content = {
            "code of the runs": sorted({str(r.environment.get("code")) for r in runs}),
            "base": asdict(base),
            "settings": rows,
            "claims": [{**asdict(c), "verdict": c.verdict} for c in claims],
            "missing": missing,
        }
        publish(out, readme(claims, rows, missing, base, tested, math.log(classes)), content)


def _told(by_init: dict[str, list[Run]]) -> dict[str, list[Any]]:
    """What the runs that came to their end say about their uncertainty."""
    found = {LABELS[init]: [told for r in mine if (told := r.uncertainty())] for init, mine in by_init.items()}
    return {label: told for label, told in found.items() if told}


def _row(runs: Sequence[Run]) -> dict[str, Any]:
    config, whole = runs[0].config, [r for r in runs if not r.diverged]
    scores = [s for r in whole if (s := r.scores())]
    told = [u for r in whole if (u := r.uncertainty())]
    apart = [u["separation by entropy"] for u in told if "separation by entropy" in u]

    def mean(values: list[float]) -> dict[str, Any] | None:
        return asdict(Estimate.of(values)) if values else None

    return {
        "init": config.init,
        "last": config.last,
        "norm": config.norm,
        "seeds": [r.config.seed for r in runs],
        "diverged": len(runs) - len(whole),
        **{
            name: mean([s[name] for s in scores if s[name] is not None]) for name in ("accuracy", "nll", "brier", "ece")
        },
        "unknown": mean(apart),
        "first loss": [r.beginning() for r in runs],
        "training loss, last quarter": [r.ending() for r in runs],
    }
