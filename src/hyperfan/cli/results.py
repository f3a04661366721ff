"""``hyperfan results``: from finished runs to figures, claims and verdicts."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hyperfan.errors import HyperfanError
from hyperfan.experiments.cifar10.config import PROFILES as CIFAR10
from hyperfan.experiments.continual.config import PROFILES as CONTINUAL
from hyperfan.experiments.imagenet.config import PROFILES as IMAGENET
from hyperfan.experiments.mnist.config import PROFILES as MNIST

Base = TypeVar("Base")


def commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """A command for each experiment."""
    others: dict[str, Mapping[str, Any]] = {"continual": CONTINUAL, "cifar10": CIFAR10, "imagenet": IMAGENET}
    return {"mnist": mnist, **{name: _results(name, profiles) for name, profiles in others.items()}}


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
    from hyperfan.experiments.mnist.results import write_results

    base = _base(profile, MNIST)
    with _telling() as tell:
        write_results(runs, out, base, data_dir, tell, overwrite)
    print(out / "README.md")


def _results(name: str, profiles: Mapping[str, Any]) -> Callable[..., None]:
    def results(
        runs: Path = Path("runs") / name,
        out: Path = Path("results") / name,
        profile: str = "paper",
        overwrite: bool = False,
    ) -> None:
        module = importlib.import_module(f"hyperfan.experiments.{name}.results")
        base = _base(profile, profiles)
        with _telling() as tell:
            module.write_results(runs, out, base, tell, overwrite)
        print(out / "README.md")

    results.__doc__ = f"""Figures, summary and verdicts from the runs of "hyperfan run {name} --all".

    Example: hyperfan results {name} --runs runs/{name} --out results/{name}

    Args:
        runs: Where the runs are.
        out: Where the results go.
        profile: Of the runs: paper, laptop or smoke.
        overwrite: Replace results that are there.
    """
    return results


def _base(profile: str, profiles: Mapping[str, Base]) -> Base:
    if profile not in profiles:
        raise HyperfanError(f"--profile '{profile}' is not known: {', '.join(profiles)}")
    return profiles[profile]


@contextmanager
def _telling() -> Iterator[Callable[[str], Any]]:
    """A line that changes in a terminal, lines elsewhere."""
    from rich.console import Console

    log = Console(stderr=True)
    with log.status("reading runs") as status:
        yield status.update if log.is_terminal else log.print
