"""``hyperfan run``: a command for each experiment. A configuration's fields are the options."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from hyperfan.errors import HyperfanError, nearest
from hyperfan.experiments.experiment import Experiment
from hyperfan.experiments.registry import EXPERIMENTS, experiment
from hyperfan.metrics import Outcome

STOPPED = 130
"""The exit code of a program that Ctrl-C ended."""
Profile = Literal["paper", "laptop", "smoke"]
Flat = tyro.conf.arg(name="")
"""A dataclass whose fields are options without a prefix."""
HELP = """{summary}

Ctrl-C stops a run and --resume goes on from its last checkpoint, also after a kill, to bit-identical results.
{help}

Example: hyperfan run {name} {example}

Args:
    config: What to run.
    options: How.
"""


@dataclass(frozen=True)
class Options:
    """How an experiment is run.

    Args:
        profile: Where the other options start: the paper's full scale, some minutes, or some seconds.
        all: Run every setting that the results rest on, with the options given as their base; "hyperfan results" then
            compares them.
        jobs: How many runs at once with --all; by default as many as there are cores for.
        resume: Go on with the run in its folder, or start it if there is none.
        run_dir: Folder of the run; with --all, of all runs. By default under runs/, named after its options.
        data_dir: Where the data is, if it needs any. By default $HYPERFAN_DATA, then the user's cache.
        tensorboard: Write scalars for TensorBoard to the run folder as well.
    """

    profile: Profile = "paper"
    all: bool = False
    jobs: int | None = None
    resume: bool = False
    run_dir: Path | None = None
    data_dir: Path | None = None
    tensorboard: bool = False


DEFAULT_OPTIONS = Options()


def commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """A command for each experiment, its defaults those of the profile in the arguments."""
    profile = _profile(args)
    return {name: _command(experiment(name), profile) for name in EXPERIMENTS}


def _command(e: Experiment[Any], profile: str) -> Callable[..., int]:
    default = e.profiles[profile]

    def command(config: Any = default, options: Annotated[Options, Flat] = DEFAULT_OPTIONS) -> int:
        return _run(e, config, default, options)

    command.__annotations__["config"] = Annotated[e.config, Flat]  # which only this function knows
    command.__doc__ = HELP.format(summary=e.summary, help=e.help, name=e.name, example=e.example)
    return command


def _run(e: Experiment[Any], config: Any, default: Any, o: Options) -> int:
    root = Path("runs") / e.name
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and (o.all or not e.distributed):
        distributed = ", ".join(name for name in EXPERIMENTS if experiment(name).distributed)
        raise HyperfanError(f"torchrun is for a single run of {distributed}: start the others without it")
    if int(os.environ.get("RANK", "0")):
        from hyperfan.experiments.loop import follow
        from hyperfan.experiments.ranks import leave_process_group

        follow(config, o.data_dir)
        leave_process_group()
        return 0
    if o.jobs is not None and o.jobs < 1:
        raise HyperfanError(f"--jobs {o.jobs}: at least 1 is needed")
    if o.all:
        if o.tensorboard:
            raise HyperfanError("--tensorboard is for a single run")
        for name in e.varied:
            if getattr(config, name) != getattr(default, name):
                raise HyperfanError(f"--{name} is for a single run; --all sets it for each of its own")
        return _run_all({(o.run_dir or root) / c.folder: c for c in e.grid(config)}, o)
    if o.jobs is not None:
        raise HyperfanError("--jobs is for --all")
    return _run_one(config, o.run_dir or root / config.folder, o)


def _run_one(config: Any, path: Path, o: Options) -> int:
    from rich.console import Console

    from hyperfan.experiments.board import Board
    from hyperfan.experiments.loop import run
    from hyperfan.experiments.progress import progress_on
    from hyperfan.experiments.ranks import leave_process_group
    from hyperfan.experiments.results.write import write_summary

    log = Console(stderr=True)
    sinks = (Board(path / "tensorboard"),) if o.tensorboard else ()
    outcome = run(config, path, progress_on(log), data_dir=o.data_dir, resume=o.resume, sinks=sinks)
    leave_process_group()
    if outcome == Outcome.STOPPED:
        return STOPPED
    shown = path
    try:
        shown, text = write_summary(path)
        print(text)
    except HyperfanError as error:  # the run itself is complete
        log.print(f"no figures: {error}", markup=False, highlight=False)
    print(f"{outcome}: {shown}")
    return 0


def _run_all(runs: dict[Path, Any], o: Options) -> int:
    from hyperfan.experiments.sweep import FAILED, sweep

    ended = sweep(runs, o.jobs, data_dir=o.data_dir, resume=o.resume)
    for outcome, count in Counter(run.outcome for run in ended).items():
        print(f"{outcome}: {count} of {len(runs)} runs")
    if len(ended) < len(runs) or any(run.outcome == Outcome.STOPPED for run in ended):
        print("--resume goes on with the rest")
        return STOPPED
    return 2 if any(run.outcome.startswith(FAILED) for run in ended) else 0


def _profile(args: Sequence[str]) -> str:
    """The profile named in the arguments: the other options start from it, so it must be known before them."""
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == "--profile":
            chosen = value if equals else next(iter(args[i + 1 : i + 2]), "")
            if chosen not in get_args(Profile):
                raise HyperfanError(f"--profile '{chosen}' is not known: {nearest(chosen, get_args(Profile))}")
            return chosen
    return "paper"
