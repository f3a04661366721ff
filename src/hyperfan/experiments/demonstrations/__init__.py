"""Continual learning from demonstration, the setting of Auddy et al. 2024: shapes to draw, learnt one after another."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import HYPERFANS, Experiment, TaskConfiguration

Biases = Literal["zero", "torch"]
"""How the hypernet's biases start: at zero, or as in torch's linear layers, uniform with variance 1/(3·fan_in)."""
KAIMING, THEIRS, OURS = "Kaiming, a = √5", "theirs, uniform", HYPERFANS
SETTINGS: dict[str, tuple[str, Biases]] = {
    KAIMING: ("auddy2024-kaiming", "torch"),
    THEIRS: ("auddy2024-uniform", "torch"),
    **{init: (init, "zero") for init in OURS},
    f"{KAIMING}, zero biases": ("auddy2024-kaiming", "zero"),
    f"{THEIRS}, zero biases": ("auddy2024-uniform", "zero"),
    "theirs, normal, zero biases": ("auddy2024-normal", "zero"),
}
"""Init method and biases, by what they are called on the page: as in their code, ours, and theirs without biases.

Their code draws biases as torch does whatever the init of the weights is. Its normal variant cannot be called there.
"""
COMPARED = (THEIRS, *OURS)
"""Settings that the claim is about."""
THEIR_RATE = 1e-4
WINDOW = 20
"""Points of a subsequence, over which training integrates."""
DEMONSTRATIONS = 7
"""Demonstrations of each shape."""
MAX_TASKS = {"drawn": 10, "lasa": 26}
"""The number of shapes that code draws, and of those that LASA recorded."""


@dataclass(frozen=True)
class Demonstrations(TaskConfiguration):
    """One init, at every learning rate with every seed: runs that are trained side by side, with Adam.

    Args:
        init: the init method ("hyperfan methods" lists them), at exact fidelity.
        biases: how the hypernet's biases start: at zero, or as in torch's linear layers.
        rates: learning rates of Adam, which starts anew in every task.
        seeds: how many seeds.
        seed: the first of them. It draws init, embeddings, the shapes' order and demonstrations, and the subsequences.
        tasks: shapes that are learnt one after another.
        iterations: steps on each task.
        points: points of a demonstration.
        curves: shapes drawn by code, or those that the LASA set recorded.
        beta: weight of the output regulariser.
        embedding: size of the embeddings.
        hidden: widths of the hypernet's hidden layers.
        target: widths of the mainnet's hidden layers.
        log_every: iterations between two measurements of the loss.
        checkpoint_every: iterations between checkpoints.
        threads: for torch. A second one gains little, and loses much where cores are busy.
    """

    experiment: ClassVar[str] = "demonstrations"
    UNTITLED: ClassVar = ("log_every", "checkpoint_every", "threads")
    MAY_BE_ZERO: ClassVar = ("seed", "beta")

    init: str = "hyperfan-in"
    biases: Biases = "zero"
    rates: tuple[float, ...] = (THEIR_RATE, 5e-4, 2e-3, 1e-2)
    seeds: int = 12
    seed: int = 0
    tasks: int = MAX_TASKS["drawn"]
    iterations: int = 15_000
    points: int = 100
    curves: Literal["drawn", "lasa"] = "drawn"
    beta: float = 0.005
    embedding: int = 256
    hidden: tuple[int, ...] = (300, 300, 300)
    target: tuple[int, ...] = (100, 100, 150)
    log_every: int = 250
    checkpoint_every: int = 2500
    threads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tasks > MAX_TASKS[self.curves]:
            raise RunError(f"--tasks {self.tasks} --curves {self.curves}: there are {MAX_TASKS[self.curves]} shapes")
        if self.points < WINDOW:
            raise RunError(f"--points {self.points}: a subsequence has {WINDOW}")
        for name, widths in (("hidden", self.hidden), ("target", self.target)):
            if not widths:
                raise RunError(f"--{name}: name the width of at least one layer")

    @property
    def total(self) -> int:
        """Iterations in all."""
        return self.tasks * self.iterations

    @property
    def title(self) -> str:
        """The init, and whatever is not as by default.

        >>> Demonstrations(rates=(1e-3, 1e-2), seeds=3).title
        'hyperfan-in rates-0.001+0.01 seeds-3'
        """
        return " ".join([self.init, *self.changes_as_text(omit=("init",))])


PROFILES = {
    "paper": Demonstrations(),
    "laptop": Demonstrations(
        tasks=3,
        iterations=600,
        embedding=64,
        hidden=(64, 64, 64),
        target=(32, 32, 48),
        log_every=30,
        checkpoint_every=150,
    ),
    "smoke": Demonstrations(
        seeds=2, tasks=2, iterations=6, points=25, embedding=4, hidden=(6, 6), target=(5, 4), log_every=3
    ),
}


def setting(base: Demonstrations, name: str) -> Demonstrations:
    """A setting of the page."""
    init, biases = SETTINGS[name]
    return replace(base, init=init, biases=biases)


def on_lasa(base: Demonstrations) -> Demonstrations:
    """The same on the shapes that LASA recorded."""
    return replace(base, curves="lasa")


def grid(base: Demonstrations) -> list[Demonstrations]:
    """Every setting, on the seeds that choose rates and on those that are compared; and the claim's on LASA."""
    every = [setting(base, name) for name in SETTINGS]
    recorded = [setting(on_lasa(base), name) for name in (KAIMING, *COMPARED)]
    both = every if base.curves == "lasa" else every + recorded
    return [config for one in both for config in (one.choosing(), one)]


EXPERIMENT = Experiment(
    config=Demonstrations,
    training="hyperfan.experiments.demonstrations.training:DemonstrationsTraining",
    run="hyperfan.experiments.demonstrations.results:DemonstrationsRun",
    results="hyperfan.experiments.demonstrations.results:DemonstrationsResults",
    heading="Learning from demonstration",
    summary=("Shapes to draw, one after another (the setting of Auddy et al. 2024): many runs at once."),
    example="--profile laptop --init auddy2024-uniform --seeds 3",
    profiles=PROFILES,
    grid=grid,
    varied=("init", "biases", "curves"),
)
