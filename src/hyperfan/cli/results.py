"""``hyperfan results``: from finished runs to figures, claims and verdicts, a command for each experiment."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyperfan.errors import HyperfanError
from hyperfan.experiments.registry import EXPERIMENTS, experiment

HELP = """Figures, summary and verdicts from the runs of "hyperfan run {name} --all".

Example: hyperfan results {name} --runs runs/{name} --out results/{name}

Args:
    runs: Where the runs are.
    out: Where the results go.
    profile: Of the runs: paper, laptop or smoke.
    data_dir: Where the data is, as for the runs, if untrained nets are measured too.
    overwrite: Replace results that are there.
"""


def commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """A command for each experiment."""
    return {name: _command(name) for name in EXPERIMENTS}


def _command(name: str) -> Callable[..., None]:
    def command(
        runs: Path = Path("runs") / name,
        out: Path = Path("results") / name,
        profile: str = "paper",
        data_dir: Path | None = None,
        overwrite: bool = False,
    ) -> None:
        e = experiment(name)
        if profile not in e.profiles:
            raise HyperfanError(f"--profile '{profile}' is not known: {', '.join(e.profiles)}")
        from hyperfan.experiments.results.write import README_FILE, write_results

        with _status() as log:
            write_results(e, runs, out, e.profiles[profile], log, data_dir=data_dir, overwrite=overwrite)
        print(out / README_FILE)

    command.__doc__ = HELP.format(name=name)
    return command


@contextmanager
def _status() -> Iterator[Callable[[str], Any]]:
    """Shows progress: a line that changes in a terminal, lines elsewhere."""
    from rich.console import Console

    log = Console(stderr=True)
    with log.status("reading runs") as status:
        yield status.update if log.is_terminal else log.print
