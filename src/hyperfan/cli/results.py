"""``hyperfan results``: from finished runs to figures, claims and verdicts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hyperfan.errors import HyperfanError
from hyperfan.experiments.mnist.config import PROFILES


def commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """A command for each experiment."""
    return {"mnist": mnist}


def mnist(
    runs: Path = Path("runs/mnist"),
    out: Path = Path("results/mnist"),
    profile: str = "paper",
    data_dir: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Figures, summary and verdicts from the runs of "hyperfan run mnist --all".

    Example: hyperfan results mnist --runs runs/mnist --out results/mnist

    Args:
        runs: Where the runs are.
        out: Where the results go.
        profile: Of the runs: paper, laptop or smoke.
        data_dir: Where MNIST is, as for the runs.
        overwrite: Replace results that are there.
    """
    from rich.console import Console

    from hyperfan.experiments.mnist.results import write_results

    if profile not in PROFILES:
        raise HyperfanError(f"--profile '{profile}' is not known: {', '.join(PROFILES)}")
    log = Console(stderr=True)
    with log.status("reading runs") as status:
        tell = status.update if log.is_terminal else log.print
        write_results(runs, out, PROFILES[profile], data_dir, tell, overwrite)
    print(out / "README.md")
