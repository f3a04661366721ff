"""``hyperfan run``: the experiments of the paper. A configuration's fields are the options."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from hyperfan.errors import HyperfanError, nearest
from hyperfan.experiments.mnist.config import CHOSEN, PROFILES, Mnist, grid

STOPPED = 130
Profile = Literal["paper", "laptop", "smoke"]
Bare = tyro.conf.arg(name="")
"""A dataclass whose fields are options without a prefix."""


def commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """A command for each experiment, its defaults those of the profile asked for."""
    return {"mnist": _mnist(PROFILES[_profile(args)])}


def _mnist(default: Mnist) -> Callable[..., int]:
    def mnist(
        config: Annotated[Mnist, Bare] = default,
        profile: Profile = "paper",
        all: bool = False,
        jobs: int | None = None,
        resume: bool = False,
        run_dir: Path | None = None,
        data_dir: Path | None = None,
        tensorboard: bool = False,
    ) -> int:
        """A feedforward net on MNIST (the paper's section 4.1), plain or generated.

        Ctrl-C stops a run and --resume goes on from its last checkpoint, also after a kill, to bit-identical results.

        Example: hyperfan run mnist --init hyperfan-in --seed 3 --epochs 5

        Args:
            config: What to run.
            profile: Where the other options start: the paper's full scale, some minutes, or some seconds.
            all: Run every setting that the results rest on, with the options given as their base; "hyperfan results"
                then compares them.
            jobs: How many runs at once with --all; by default as many as there are cores for.
            resume: Go on with the run in its folder, or start it if there is none.
            run_dir: Folder of the run; with --all, of all runs. By default under runs/mnist, named after its options.
            data_dir: Where MNIST is. By default $HYPERFAN_DATA, then the user's cache.
            tensorboard: Write scalars for TensorBoard to the run folder as well.
        """
        root = Path("runs") / "mnist"
        if jobs is not None and jobs < 1:
            raise HyperfanError(f"--jobs {jobs}: at least 1 is needed")
        if all:
            if tensorboard:
                raise HyperfanError("--tensorboard is for a single run")
            for name in CHOSEN:
                if getattr(config, name) != getattr(default, name):
                    raise HyperfanError(f"--{name} is for a single run; --all sets it for each of its own")
            return _all({(run_dir or root) / c.folder: c for c in grid(config)}, jobs, data_dir, resume)
        if jobs is not None:
            raise HyperfanError("--jobs is for --all")
        return _one(config, run_dir or root / config.folder, data_dir, resume, tensorboard)

    return mnist


def _one(config: Any, path: Path, data_dir: Path | None, resume: bool, tensorboard: bool) -> int:
    from rich.console import Console

    from hyperfan.experiments.board import Board
    from hyperfan.experiments.loop import run
    from hyperfan.experiments.progress import progress_on

    log = Console(stderr=True)
    sinks = (Board(path / "tensorboard"),) if tensorboard else ()
    outcome = run(config, path, progress_on(log), data_dir=data_dir, resume=resume, sinks=sinks)
    if outcome == "stopped":
        return STOPPED
    try:
        seen = config.summarise(path)
    except HyperfanError as error:  # as without matplotlib: the run itself is whole
        log.print(f"no figures: {error}", markup=False, highlight=False)
        seen = path
    print(f"{outcome}: {seen}")
    return 0


def _all(runs: dict[Path, Any], jobs: int | None, data_dir: Path | None, resume: bool) -> int:
    from hyperfan.experiments.sweep import sweep

    ended = sweep(runs, jobs, data_dir=data_dir, resume=resume)
    for outcome, times in Counter(run.outcome for run in ended).items():
        print(f"{outcome}: {times} of {len(runs)} runs")
    if len(ended) < len(runs) or any(run.outcome == "stopped" for run in ended):
        print("--resume goes on with the rest")
        return STOPPED
    return 2 if any(run.outcome.startswith("failed") for run in ended) else 0


def _profile(args: Sequence[str]) -> str:
    """The profile named in the arguments: the other options start from it, so it must be known before them."""
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == "--profile":
            chosen = value if equals else next(iter(args[i + 1 : i + 2]), "")
            if chosen not in PROFILES:
                raise HyperfanError(f"--profile '{chosen}' is not known: {nearest(chosen, PROFILES)}")
            return chosen
    return "paper"
