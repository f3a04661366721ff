"""Which share of a net's variance should be generated where there is a condition? Small jobs at every share."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from hyperfan.errors import RunError, nearest
from hyperfan.experiments.experiment import Experiment, SeedsConfiguration
from hyperfan.experiments.optimisers import SgdOrAdamW

SHARES = (1.0, 0.5, 0.2, 0.05, 0.01, 0.0)
"""Generated shares of the variance: 1 is hyperfan-in as published, 0 is Bias-HyperInit (Beck et al. 2022)."""
LINEAR = "nn.Linear"
"""The start of a hypernet written by hand: trunk and heads as ``nn.Linear`` draws them."""
CODE_SQUARES = {f"‖h‖² = {square:g}": square for square in (16.0, 4.0, 1.0)}
"""Starts with a trunk whose codes have this mean of ‖h‖². A trunk of width d_k that preserves variance makes d_k/2."""
LINEAR_TRUNK, WEIGHTS_ALONE = "nn.Linear's trunk", "weights alone"
"""The default but for a trunk as nn.Linear draws it; and with biases that are trained and not generated."""
SMALL_OUTPUTS, SMALL_OUTPUT_VARIANCE = "small outputs", 0.1
"""The default with a last layer that starts at this part of its variance."""
VARIANTS = (*CODE_SQUARES, LINEAR_TRUNK, WEIGHTS_ALONE, SMALL_OUTPUTS)
"""Starts that differ from the default in one thing at most."""
RATES: dict[SgdOrAdamW, tuple[float, ...]] = {
    "SGD": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
    "AdamW": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
}
"""Learning rates that every start is tried at."""


class JobEntry(NamedTuple):
    """What is known of a job before it is imported.

    Args:
        job: its class, as an entry point.
        tabled: whether its conditions are a table of trained embeddings; otherwise they are given.
        duration: how many times as long as the others it is trained.
        needs_data: whether it needs a data set.
    """

    job: str
    tabled: bool = False
    duration: int = 1
    needs_data: bool = False


JOB_TABLE = {
    "turned": JobEntry("hyperfan.experiments.conditions.jobs:Turned"),
    "projection": JobEntry("hyperfan.experiments.conditions.jobs:Projection"),
    "joint": JobEntry("hyperfan.experiments.conditions.jobs:Joint", duration=3),
    "preferences": JobEntry("hyperfan.experiments.conditions.jobs:Preferences"),
    "tasks": JobEntry("hyperfan.experiments.conditions.jobs:Tasks", tabled=True),
    "few-shot": JobEntry("hyperfan.experiments.conditions.jobs:FewShot"),
    "policy": JobEntry("hyperfan.experiments.conditions.jobs:Policy"),
    "field": JobEntry("hyperfan.experiments.conditions.pictures:Field", needs_data=True),
    "clients": JobEntry("hyperfan.experiments.conditions.pictures:Clients", tabled=True, needs_data=True),
    "sequence": JobEntry("hyperfan.experiments.conditions.jobs:Sequence", tabled=True),
    "remembered": JobEntry("hyperfan.experiments.conditions.jobs:Remembered", tabled=True),
}
"""All jobs by name, in the order of pages."""
JOBS = tuple(JOB_TABLE)
"""Names of the jobs."""
TABLED = tuple(name for name, entry in JOB_TABLE.items() if entry.tabled)
"""Jobs whose conditions are a table of trained embeddings."""
KINDS = {"given": tuple(job for job in JOBS if job not in TABLED), "tasks": TABLED}
"""Jobs by what their conditions are."""
STAGES = 4
"""Tasks of the jobs in which they come one after another."""


@dataclass(frozen=True)
class Conditions(SeedsConfiguration):
    """One job with one optimiser, from every start at every rate with every seed: runs that are trained side by side.

    Args:
        job: what is learnt.
        optimiser: SGD without momentum, or AdamW, as torch has it.
        shares: parts of the variance that hyperfan-in generates, from 0 to 1; the rest is in a base. Each is a start,
            and so are trunk and heads as nn.Linear draws them.
        variants: further starts, each at the first share with one thing changed.
        seeds: how many seeds.
        seed: the first of them. It draws init, data, conditions and batches.
        steps: batches; where tasks come one after another, all of them share these.
        width: of the mainnet's two hidden layers, of the trunk's, and so of the code.
        log_every: steps between two measurements of the loss.
        checkpoint_every: steps between checkpoints.
        threads: for torch.
    """

    experiment: ClassVar[str] = "conditions"
    UNTITLED: ClassVar = ("log_every", "checkpoint_every", "threads")
    MAY_BE_ZERO: ClassVar = ("seed", "shares")
    COMPARED_PER_CHOOSING: ClassVar = 3

    job: str = "turned"
    optimiser: SgdOrAdamW = "AdamW"
    shares: tuple[float, ...] = SHARES
    variants: tuple[str, ...] = ()
    seeds: int = 12
    seed: int = 0
    steps: int = 200
    width: int = 32
    log_every: int = 40
    checkpoint_every: int = 200
    threads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.job not in JOBS:
            raise RunError(f"--job {self.job} is not known: {nearest(self.job, JOBS)}")
        if not self.shares or max(self.shares) > 1 or len(set(self.shares)) < len(self.shares):
            raise RunError(f"--shares {' '.join(map(str, self.shares))}: name parts of 1, at least one, and each once")
        for name in (name for name in self.variants if name not in VARIANTS):
            raise RunError(f"--variants {name}: {nearest(name, VARIANTS)}")
        if self.steps % self.log_every or self.steps % STAGES:
            raise RunError(f"--steps {self.steps} is no multiple of --log-every {self.log_every} and of {STAGES} tasks")

    @property
    def starts(self) -> tuple[str, ...]:
        """What they are called: hyperfan-in by its share, its variants, and nn.Linear's."""
        return *map(start_name, self.shares), *self.variants, LINEAR

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried."""
        return RATES[self.optimiser]

    @property
    def total(self) -> int:
        """Batches in all."""
        return self.steps

    @property
    def stage(self) -> tuple[str, int]:
        """A batch."""
        return "batch", 1

    @property
    def title(self) -> str:
        """Job and optimiser, and whatever is not as by default.

        >>> Conditions("field", shares=(0.2, 0.0), seeds=3).title
        'field AdamW shares-0.2+0 seeds-3'
        """
        others = self.changes(omit=("job", "optimiser"))
        shares = {"shares": "+".join(f"{share:g}" for share in self.shares)} if "shares" in others else {}
        variants = {"variants": "+".join(str(VARIANTS.index(v)) for v in self.variants)} if self.variants else {}
        named = [f"{name}-{value}" for name, value in {**others, **shares, **variants}.items()]
        return " ".join([self.job, self.optimiser, *named])


def start_name(share: float) -> str:
    """What hyperfan-in with a share is called.

    >>> start_name(0.2)
    'ρ = 0.2'
    """
    return f"ρ = {share:g}"


PROFILES = {
    "paper": Conditions(),
    "laptop": Conditions(seeds=6, steps=100, log_every=20, width=16),
    "smoke": Conditions(shares=(1.0, 0.5, 0.01, 0.0), seeds=2, steps=8, log_every=4, width=5),
}


def setting(base: Conditions, job: str, optimiser: SgdOrAdamW) -> Conditions:
    """A job with an optimiser."""
    return replace(base, job=job, optimiser=optimiser, steps=base.steps * JOB_TABLE[job].duration)


def trunk_setting(base: Conditions, job: str, optimiser: SgdOrAdamW) -> Conditions:
    """The default of a job with its variants, on two thirds of the seeds."""
    share, seeds = 0.5 if job in TABLED else 0.01, math.ceil(2 * base.seeds / 3)
    return replace(setting(base, job, optimiser), shares=(share,), variants=VARIANTS, seeds=seeds)


def grid(base: Conditions) -> list[Conditions]:
    """Every job with both optimisers, on the seeds that choose rates and on those that are compared."""
    makers = (setting, trunk_setting)
    every = [make(base, job, optimiser) for make in makers for job in JOBS for optimiser in RATES]
    return [config for one in every for config in (one.choosing(), one)]


EXPERIMENT = Experiment(
    config=Conditions,
    training="hyperfan.experiments.conditions.training:ConditionsTraining",
    run="hyperfan.experiments.conditions.results:ConditionsRun",
    results="hyperfan.experiments.conditions.results:ConditionsResults",
    heading="Conditioned hypernets",
    summary="How much of the variance should be generated where there is a condition? Small jobs. Needs MNIST.",
    example="--job field --optimiser SGD",
    profiles=PROFILES,
    grid=grid,
    varied=("job", "optimiser"),
    help="All runs take about an hour on one core.",
)
