"""From finished grids to what is published of them: figures, a summary as JSON, and a README with the claims."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hyperfan.experiments.continual import heuristics
from hyperfan.experiments.continual.claims import decide
from hyperfan.experiments.continual.config import Continual, grid
from hyperfan.experiments.continual.figures import figures
from hyperfan.experiments.continual.outcome import Outcome, is_over, read_outcome
from hyperfan.experiments.continual.readme import readme
from hyperfan.experiments.continual.table import rows
from hyperfan.experiments.files import one_line_if_it_fails
from hyperfan.experiments.publish import check_place, publish
from hyperfan.report import save


def write_results(
    runs_dir: Path, out: Path, base: Continual, tell: Callable[[str], Any], overwrite: bool = False
) -> None:
    """Write the folder of results. The grid with SGD must be there; without Adam's, its claim is not decided."""
    check_place(out, overwrite)
    sgd, adam = (runs_dir / config.folder for config in grid(base))
    tell(f"reading {sgd}")
    outcome = read_outcome(sgd)
    with_adam = read_outcome(adam) if is_over(adam) else None

    @functools.cache
    def growths(init: str, width: int) -> Sequence[float]:
        tell(f"looking at {heuristics.SEEDS} untrained nets of width {width}: {init}")
        return heuristics.growths(init, width)

    claims = decide(outcome, with_adam, growths)
    with one_line_if_it_fails(str(out), "Make room, and write the results again with --overwrite"):
        (out / "figures").mkdir(parents=True, exist_ok=True)
        tell("drawing")
        for name, figure in figures(outcome):
            save(figure, out / "figures" / name)
        content = {
            "code of the runs": sorted({str(o.environment.get("code")) for o in (outcome, with_adam) if o}),
            "base": asdict(base),
            "grids": [_grid(o) for o in (outcome, with_adam) if o],
            "claims": [{**asdict(c), "verdict": c.verdict} for c in claims],
        }
        publish(out, readme(claims, outcome, with_adam), content)


def _grid(outcome: Outcome) -> dict[str, Any]:
    """What came out at best rates, and all final losses."""
    config = outcome.config
    finals = {init: {f"{lr:g}": outcome.final(init, lr).tolist() for lr in config.rates} for init in config.inits}
    return {"optimiser": config.optimiser, "best": rows(outcome), "final losses by seed and task": finals}
