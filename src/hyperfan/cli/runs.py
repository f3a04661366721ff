"""Commands about runs of experiments: to make them, and what comes of them."""

import argparse
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from hyperfan.cli.nets import Flat
from hyperfan.cli.output import status
from hyperfan.errors import HyperfanError, RunError, nearest
from hyperfan.experiments.exit_codes import EXIT_CODES, FAILED
from hyperfan.experiments.experiment import EXPERIMENTS, Experiment, experiment, option
from hyperfan.experiments.launch import Launch
from hyperfan.metrics import UNDECIDED, Outcome

MAX_RUNS = 12
"""Runs on a page."""
LOCAL = "local"
"""A sweep on this machine."""
Profile = Literal["paper", "laptop", "smoke"]
RUN_HELP = """{summary}

Ctrl-C stops a run and --resume goes on from its last checkpoint, also after a kill, to bit-identical results.
{help}

Example: hyperfan run {name} {example}

Args:
    config: What to run.
    options: How.
"""
RESULTS_HELP = """Figures, summary and verdicts from the runs of "hyperfan run {name} --all".

Example: hyperfan results {name} --runs runs/{name} --out results/{name}

Args:
    runs: Where the runs are.
    out: Where the results go.
    profile: Of the runs: paper, laptop or smoke.
    data_dir: Where the data is, as for the runs, if untrained nets are measured too.
    overwrite: Replace results that are there.
    check: Write nothing: make the results in --out again from the metrics that they keep, and the table of all claims
        beside them, and say where they differ.
"""


@dataclass(frozen=True)
class Options:
    """How an experiment is run.

    Args:
        profile: Where the other options start: the paper's full scale, some minutes, or some seconds.
        all: Run every setting that the results rest on, with the options given as their base; "hyperfan results" then
            compares them.
        jobs: How many runs at once with --all; by default as many as there are cores for.
        on: Where to run with --all: "local", or the address of a Dask scheduler, as tcp://host:8786, whose workers
            share the folder of the runs.
        index: Of --all, make only the run of this number, from 0: for arrays of jobs.
        resume: Go on with the run in its folder, or start it if there is none.
        run_dir: Folder of the run; with --all, of all runs. By default under runs/, named after its options.
        data_dir: Where the data is, if it needs any. By default $HYPERFAN_DATA, then the user's cache.
        tensorboard: Write scalars for TensorBoard to the run folder as well.
    """

    profile: Profile = "paper"
    all: bool = False
    jobs: int | None = None
    on: str = LOCAL
    index: int | None = None
    resume: bool = False
    run_dir: Path | None = None
    data_dir: Path | None = None
    tensorboard: bool = False


DEFAULT_OPTIONS = Options()


def run_commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Run an experiment."""
    profile = _profile(args)
    return {name: _run_command(experiment(name), profile) for name in EXPERIMENTS}


def _profile(args: Sequence[str]) -> str:
    """The profile named in the arguments: the other options start from it, so it must be known before them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--profile", nargs="?", const="", default="paper")
    chosen: str = parser.parse_known_args(args)[0].profile
    if chosen not in get_args(Profile):
        raise HyperfanError(f"--profile '{chosen}' is not known: {nearest(chosen, get_args(Profile))}")
    return chosen


def _run_command(e: Experiment[Any], profile: str) -> Callable[..., int]:
    default = e.profiles[profile]

    def command(config: Any = default, options: Annotated[Options, Flat] = DEFAULT_OPTIONS) -> int:
        return _run(e, config, default, options)

    command.__annotations__["config"] = Annotated[e.config, Flat]  # which only this function knows
    command.__doc__ = RUN_HELP.format(summary=e.summary, help=e.help, name=e.name, example=e.example)
    return command


def _run(e: Experiment[Any], config: Any, default: Any, o: Options) -> int:
    root = Path("runs") / e.name
    launch = Launch.of_environment()
    if launch.world > 1 and o.all:
        raise HyperfanError("torchrun and srun are for a single run: start --all without them, with --on, or --index")
    if launch.world > 1:  # before torch is imported, whose warnings of a lost connection are more than a line
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if o.jobs is not None and o.jobs < 1:
        raise HyperfanError(f"--jobs {o.jobs}: at least 1 is needed")
    if not o.all:
        for name, given in (("--jobs", o.jobs is not None), ("--on", o.on != LOCAL), ("--index", o.index is not None)):
            if given:
                raise HyperfanError(f"{name} is for --all")
        if launch.rank:
            from hyperfan.experiments.loop import follow

            return _exit_code(follow(config, o.data_dir))
        return _run_one(config, o.run_dir or root / config.folder, o)
    changed = [option(name) for name in e.varied if getattr(config, name) != getattr(default, name)]
    for name in ["--tensorboard"] * o.tensorboard + changed:
        raise HyperfanError(f"{name} is for a single run, not for --all")
    root = o.run_dir or root
    if o.index is not None:
        return _run_numbered(e.grid(config), root, o)
    return _run_all({root / c.folder: c for c in _to_run(e, config, root, o.resume)}, o)


def _run_numbered(runs: Sequence[Any], root: Path, o: Options) -> int:
    """One run of a grid, as each job of an array makes one."""
    if o.jobs is not None or o.on != LOCAL:
        raise HyperfanError("--index makes one run, here: leave out --jobs and --on")
    if not 0 <= (number := o.index or 0) < len(runs):
        raise HyperfanError(f"--index {o.index}: there are {len(runs)} runs, 0 to {len(runs) - 1}")
    print(f"run {number} of {len(runs)}: {runs[number].title}")
    return _run_one(runs[number], root / runs[number].folder, o)


def _to_run(e: Experiment[Any], base: Any, root: Path, resume: bool) -> list[Any]:
    """The runs of the grid, to resume those without the ones whose metrics a record in the folder has."""
    runs = e.grid(base)
    if not resume:
        return runs
    from hyperfan.experiments.results.runs import recorded_titles

    recorded = recorded_titles(root, e.name)
    if recorded:
        print(f"{len(recorded)} runs are in the record of {root}")
    return [c for c in runs if c.title not in recorded]


def _run_one(config: Any, path: Path, o: Options) -> int:
    from rich.console import Console

    from hyperfan.experiments.loop import run
    from hyperfan.experiments.progress import Board, Progress
    from hyperfan.experiments.results.write import write_summary

    progress = Progress(Console(stderr=True))
    sinks = [Board(path / "tensorboard").record] if o.tensorboard else []
    outcome = run(config, path, progress, data_dir=o.data_dir, resume=o.resume, sinks=sinks)
    if outcome in UNDECIDED:
        return _exit_code(outcome)
    shown = path
    try:
        shown, text = write_summary(path)
        print(text)
    except HyperfanError as error:  # the run itself is complete
        progress.note(f"no figures: {error}")
    print(f"{outcome}: {shown}")
    return 0


def _exit_code(outcome: Outcome) -> int:
    """The exit code of a command whose one run ended so; divergence is a result, not an error."""
    return EXIT_CODES[outcome] if outcome in UNDECIDED else 0


def _run_all(runs: dict[Path, Any], o: Options) -> int:
    from hyperfan.experiments.sweep import sweep

    on = None if o.on == LOCAL else o.on
    if on and o.jobs is not None:
        raise HyperfanError("--jobs is for this machine: on a cluster, its workers say how many runs there are at once")
    counts = Counter(sweep(runs, o.jobs, data_dir=o.data_dir, resume=o.resume, on=on).values())
    for outcome, count in counts.items():
        print(f"{outcome}: {count} of {len(runs)} runs")
    stopped = [EXIT_CODES[outcome] for outcome in UNDECIDED if counts[outcome]]
    if stopped or counts.total() < len(runs):
        print("--resume goes on with the rest")
        return stopped[0] if stopped else EXIT_CODES[Outcome.STOPPED]
    return 2 if counts[FAILED] else 0


def results_commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Figures, claims and verdicts from finished runs."""
    return {name: _results_command(name) for name in EXPERIMENTS}


def _results_command(name: str) -> Callable[..., int]:
    def command(
        runs: Path = Path("runs") / name,
        out: Path = Path("results") / name,
        profile: Profile = "paper",
        data_dir: Path | None = None,
        overwrite: bool = False,
        check: bool = False,
    ) -> int:
        from hyperfan.experiments.results.write import (
            README_FILE,
            check_index,
            check_results,
            write_index,
            write_results,
        )

        e = experiment(name)
        with status("reading runs") as log:
            if check:
                found = check_results(e, out, log, data_dir=data_dir) + check_index(out.parent)
                print("\n".join(found) if found else f"{out} follows from its runs")
                return 1 if found else 0
            write_results(e, runs, out, e.profiles[profile], log, data_dir=data_dir, overwrite=overwrite)
            write_index(out.parent)
        print(out / README_FILE)
        return 0

    command.__doc__ = RESULTS_HELP.format(name=name)
    return command


def report(
    runs: tyro.conf.Positional[tuple[Path, ...]], out: Path = Path("report.html"), overwrite: bool = False
) -> None:
    """One self-contained HTML page of a run, or of several side by side: what came out, curves, settings.

    Runs that are not over are shown as far as they have come.

    Example: hyperfan report runs/mnist/hyperfan-in_seed-0 runs/mnist/xavier-fan-in_seed-0

    Args:
        runs: Folders of runs, or folders that hold them.
        out: Where the page goes.
        overwrite: Replace a page that is there.
    """
    from hyperfan.experiments.results.runs import read_data
    from hyperfan.files import explain_write_errors, write_text
    from hyperfan.report import run_page

    if out.is_dir():
        raise RunError(f"{out} is a folder: name a file with --out, such as {out / 'report.html'}")
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists: --overwrite replaces it, --out writes elsewhere")
    folders = _folders(runs)
    try:
        found = [read_data(folder) for folder in folders]
        names = Counter(run.name for run in found)
        page = run_page(
            [
                replace(run, name=str(folder)) if names[run.name] > 1 else run
                for folder, run in zip(folders, found, strict=True)
            ]
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        named = ", ".join(map(str, folders))
        raise RunError(f"{named}: not the metrics of a run, {type(error).__name__} {error}") from error
    with explain_write_errors(str(out), "Choose another place with --out"):
        write_text(out, page)
    print(out)


def _folders(paths: Sequence[Path]) -> list[Path]:
    """The folders of runs that the paths are or hold, each once."""
    from hyperfan.experiments.folder import CONFIG_FILE

    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is no folder; a run is one: 'hyperfan run' says where it puts it")
        inside = [path] if (path / CONFIG_FILE).exists() else sorted(f.parent for f in path.glob(f"*/{CONFIG_FILE}"))
        if not inside:
            raise RunError(f"{path} holds no {CONFIG_FILE}, so it is no run")
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    if not found:
        raise RunError("name at least one run: hyperfan report runs/mnist/hyperfan-in_seed-0")
    if len(found) > MAX_RUNS:
        raise RunError(f"{len(found)} runs are too many for a page: name up to {MAX_RUNS} of them")
    return list(found.values())
