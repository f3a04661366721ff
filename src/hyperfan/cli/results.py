"""``hyperfan results``: from finished runs to figures, claims and verdicts."""

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
    return {"mnist": mnist, "continual": continual, "cifar10": cifar10, "imagenet": imagenet}


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


def continual(
    runs: Path = Path("runs/continual"),
    out: Path = Path("results/continual"),
    profile: str = "paper",
    overwrite: bool = False,
) -> None:
    """Figures, summary and verdicts from the runs of "hyperfan run continual --all".

    Example: hyperfan results continual --runs runs/continual --out results/continual

    Args:
        runs: Where the runs are.
        out: Where the results go.
        profile: Of the runs: paper, laptop or smoke.
        overwrite: Replace results that are there.
    """
    from hyperfan.experiments.continual.results import write_results

    base = _base(profile, CONTINUAL)
    with _telling() as tell:
        write_results(runs, out, base, tell, overwrite)
    print(out / "README.md")


def cifar10(
    runs: Path = Path("runs/cifar10"),
    out: Path = Path("results/cifar10"),
    profile: str = "paper",
    overwrite: bool = False,
) -> None:
    """Figures, summary and verdict from the runs of "hyperfan run cifar10 --all".

    Example: hyperfan results cifar10 --profile laptop

    Args:
        runs: Where the runs are.
        out: Where the results go.
        profile: Of the runs: paper, laptop or smoke.
        overwrite: Replace results that are there.
    """
    from hyperfan.experiments.cifar10.results import write_results

    base = _base(profile, CIFAR10)
    with _telling() as tell:
        write_results(runs, out, base, tell, overwrite)
    print(out / "README.md")


def imagenet(
    runs: Path = Path("runs/imagenet"),
    out: Path = Path("results/imagenet"),
    profile: str = "paper",
    overwrite: bool = False,
) -> None:
    """Figures, summary and verdicts from the runs of "hyperfan run imagenet --all".

    Example: hyperfan results imagenet --profile laptop

    Args:
        runs: Where the runs are.
        out: Where the results go.
        profile: Of the runs: paper, laptop or smoke.
        overwrite: Replace results that are there.
    """
    from hyperfan.experiments.imagenet.results import write_results

    base = _base(profile, IMAGENET)
    with _telling() as tell:
        write_results(runs, out, base, tell, overwrite)
    print(out / "README.md")


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
