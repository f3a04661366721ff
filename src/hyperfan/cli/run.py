"""``hyperfan run``: the experiments of the paper. A configuration's fields are the options."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from hyperfan.errors import HyperfanError, nearest
from hyperfan.experiments.cifar10 import config as cifar10
from hyperfan.experiments.continual import config as continual
from hyperfan.experiments.imagenet import config as imagenet
from hyperfan.experiments.mnist import config as mnist

STOPPED = 130
Profile = Literal["paper", "laptop", "smoke"]
Bare = tyro.conf.arg(name="")
"""A dataclass whose fields are options without a prefix."""


def commands(args: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """A command for each experiment, its defaults those of the profile asked for."""
    profile = _profile(args)
    return {
        "mnist": _mnist(mnist.PROFILES[profile]),
        "continual": _continual(continual.PROFILES[profile]),
        "cifar10": _cifar10(cifar10.PROFILES[profile]),
        "imagenet": _imagenet(imagenet.PROFILES[profile]),
    }


@dataclass(frozen=True)
class Options:
    """How an experiment is run that trains one net after another.

    Args:
        profile: Where the other options start: the paper's full scale, some minutes, or some seconds.
        all: Run every setting that the results rest on, with the options given as their base; "hyperfan results" then
            compares them.
        jobs: How many runs at once with --all; by default as many as there are cores for.
        resume: Go on with the run in its folder, or start it if there is none.
        run_dir: Folder of the run; with --all, of all runs. By default under runs/, named after its options.
        data_dir: Where the data is. By default $HYPERFAN_DATA, then the user's cache.
        tensorboard: Write scalars for TensorBoard to the run folder as well.
    """

    profile: Profile = "paper"
    all: bool = False
    jobs: int | None = None
    resume: bool = False
    run_dir: Path | None = None
    data_dir: Path | None = None
    tensorboard: bool = False


HOW = Options()


def _mnist(default: mnist.Mnist) -> Callable[..., int]:
    def run_mnist(config: Annotated[mnist.Mnist, Bare] = default, options: Annotated[Options, Bare] = HOW) -> int:
        """A feedforward net on MNIST (the paper's section 4.1), plain or generated.

        Ctrl-C stops a run and --resume goes on from its last checkpoint, also after a kill, to bit-identical results.

        Example: hyperfan run mnist --init hyperfan-in --seed 3 --epochs 5

        Args:
            config: What to run.
            options: How.
        """
        return _one_or_all("mnist", mnist, config, default, options)

    return run_mnist


def _cifar10(default: cifar10.Cifar10) -> Callable[..., int]:
    def run_cifar10(config: Annotated[cifar10.Cifar10, Bare] = default, options: Annotated[Options, Bare] = HOW) -> int:
        """All-CNN on CIFAR-10 (the paper's section 4.3), its weights made in chunks. The paper's scale needs a GPU.

        Ctrl-C stops a run and --resume goes on from its last checkpoint, also after a kill, to bit-identical results.

        Example: hyperfan run cifar10 --profile laptop --init hyperfan-out --seed 3

        Args:
            config: What to run.
            options: How.
        """
        return _one_or_all("cifar10", cifar10, config, default, options)

    return run_cifar10


def _imagenet(default: imagenet.Imagenet) -> Callable[..., int]:
    def run_imagenet(
        config: Annotated[imagenet.Imagenet, Bare] = default, options: Annotated[Options, Bare] = HOW
    ) -> int:
        """A Bayesian MobileNet on photographs in folders (the paper's section 4.4). The paper's scale needs GPUs.

        --data-dir is a folder with train/<class>/ and val/<class>/, as ImageNet has; by default it is Imagenette.
        Several GPUs share each batch under torchrun: torchrun --nproc-per-node 8 -m hyperfan.cli.main run imagenet.
        Ctrl-C stops a run and --resume goes on from its last checkpoint, also after a kill.

        Example: hyperfan run imagenet --profile laptop --init hyperfan-out --last plain

        Args:
            config: What to run.
            options: How.
        """
        return _one_or_all("imagenet", imagenet, config, default, options)

    return run_imagenet


def _one_or_all(name: str, experiment: Any, config: Any, default: Any, o: Options) -> int:
    root = Path("runs") / name
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and (o.all or name != "imagenet"):
        raise HyperfanError("torchrun is for a single run of imagenet: start the others without it")
    if int(os.environ.get("RANK", "0")):
        from hyperfan.experiments.loop import follow
        from hyperfan.experiments.ranks import leave

        follow(config, o.data_dir)
        leave()
        return 0
    if o.jobs is not None and o.jobs < 1:
        raise HyperfanError(f"--jobs {o.jobs}: at least 1 is needed")
    if o.all:
        if o.tensorboard:
            raise HyperfanError("--tensorboard is for a single run")
        _leave_to_all(config, default, experiment.CHOSEN)
        runs = {(o.run_dir or root) / c.folder: c for c in experiment.grid(config)}
        return _all(runs, o.jobs, o.data_dir, o.resume)
    if o.jobs is not None:
        raise HyperfanError("--jobs is for --all")
    return _one(config, o.run_dir or root / config.folder, o.data_dir, o.resume, o.tensorboard)


def _continual(default: continual.Continual) -> Callable[..., int]:
    def run_continual(
        config: Annotated[continual.Continual, Bare] = default,
        profile: Profile = "paper",
        all: bool = False,
        resume: bool = False,
        run_dir: Path | None = None,
    ) -> int:
        """Three regression tasks, one after another (the paper's section 4.2): many runs at once. Needs no data.

        Ctrl-C stops and --resume goes on from the last checkpoint, also after a kill, to bit-identical results.

        Example: hyperfan run continual --inits hyperfan-in m3 --seeds 5

        Args:
            config: What to run.
            profile: Where the other options start: the paper's full scale, under a minute, or some seconds.
            all: Run every init that the results rest on, with SGD and with Adam; "hyperfan results" then compares them.
            resume: Go on with the runs in their folder, or start them if there is none.
            run_dir: Folder of the runs; with --all, of both optimisers' folders. By default under runs/continual.
        """
        root = Path("runs") / "continual"
        if all:
            _leave_to_all(config, default, continual.CHOSEN)
            return _all({(run_dir or root) / c.folder: c for c in continual.grid(config)}, None, None, resume)
        return _one(config, run_dir or root / config.folder, None, resume, tensorboard=False)

    return run_continual


def _leave_to_all(config: Any, default: Any, chosen: Sequence[str]) -> None:
    for name in chosen:
        if getattr(config, name) != getattr(default, name):
            raise HyperfanError(f"--{name} is for a single run; --all sets it for each of its own")


def _one(config: Any, path: Path, data_dir: Path | None, resume: bool, tensorboard: bool) -> int:
    from rich.console import Console

    from hyperfan.experiments.board import Board
    from hyperfan.experiments.loop import run
    from hyperfan.experiments.progress import progress_on
    from hyperfan.experiments.ranks import leave

    log = Console(stderr=True)
    sinks = (Board(path / "tensorboard"),) if tensorboard else ()
    outcome = run(config, path, progress_on(log), data_dir=data_dir, resume=resume, sinks=sinks)
    leave()
    if outcome == "stopped":
        return STOPPED
    seen = path
    try:
        seen, says = config.summarise(path)
        print(says)
    except HyperfanError as error:  # the run itself is complete
        log.print(f"no figures: {error}", markup=False, highlight=False)
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
            if chosen not in get_args(Profile):
                raise HyperfanError(f"--profile '{chosen}' is not known: {nearest(chosen, get_args(Profile))}")
            return chosen
    return "paper"
