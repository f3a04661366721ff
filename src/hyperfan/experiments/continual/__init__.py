"""Continual learning, the paper's section 4.2: three regression tasks, one after another."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import HYPERFANS, KAIMINGS, Experiment, TaskConfiguration

TASKS = 3
PAPER_INITS = (*KAIMINGS, *HYPERFANS)
ALL_INITS = (*PAPER_INITS, "hyperfan-in@exact", "hyperfan-out@exact", "m2", "m3", "m4")
ADAM_INITS = (*KAIMINGS, "hyperfan-in")


class GridRun(NamedTuple):
    """One run of a grid."""

    init: str
    lr: float
    seed: int


@dataclass(frozen=True)
class Continual(TaskConfiguration):
    """A grid of runs, trained side by side: every init at every learning rate with every seed.

    Args:
        inits: init methods ("hyperfan methods" lists them), at the paper's fidelity; "name@exact" has exact moments.
        rates: learning rates.
        seeds: how many seeds.
        seed: the first of them. It draws init, embeddings, the tasks' points and the order of batches.
        optimiser: plain SGD, or Adam with torch's defaults, anew in every task.
        iterations: steps on each task.
        batch: points in a batch.
        points: training points of each task.
        beta: weight of the output regulariser.
        embedding: size of the embeddings.
        precision: of all numbers.
        log_every: iterations between two measurements of the loss.
        checkpoint_every: iterations between checkpoints.
        threads: for torch. A second one gains little, and loses much where cores are busy.
    """

    experiment: ClassVar[str] = "continual"
    UNTITLED: ClassVar = ("log_every", "threads")
    MAY_BE_ZERO: ClassVar = ("seed", "beta")

    inits: tuple[str, ...] = PAPER_INITS
    rates: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    seeds: int = 240
    seed: int = 0
    optimiser: Literal["sgd", "adam"] = "sgd"
    iterations: int = 6000
    batch: int = 32
    points: int = 100
    beta: float = 0.005
    embedding: int = 2
    precision: Literal["float32", "float64"] = "float32"
    log_every: int = 100
    checkpoint_every: int = 500
    threads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch > self.points:
            raise RunError(f"--batch {self.batch}: a batch has no more than the {self.points} training points")
        self.check_each_once("inits")

    @property
    def runs(self) -> list[GridRun]:
        """All runs, in the order in which metrics list them."""
        return [GridRun(init, lr, seed) for init in self.inits for lr in self.rates for seed in self.seed_range]

    @property
    def total(self) -> int:
        """Iterations in all."""
        return TASKS * self.iterations

    @property
    def title(self) -> str:
        """The optimiser and whatever is not as in the paper, which also names its folder.

        >>> Continual(inits=ALL_INITS, seeds=3).title
        'sgd all-inits seeds-3'
        """
        inits = {PAPER_INITS: [], ALL_INITS: ["all-inits"]}.get(self.inits, ["+".join(self.inits)])
        return " ".join([self.optimiser, *inits, *self.changes_as_text(omit=("optimiser", "inits"))])


PROFILES = {
    "paper": Continual(),
    "laptop": Continual(seeds=5, iterations=2000),
    "smoke": Continual(seeds=2, iterations=100, log_every=10),
}


def grid(base: Continual) -> list[Continual]:
    """The grids that the claims rest on: every init with SGD, and some with Adam; each also to choose rates on."""
    compared = [replace(base, inits=ALL_INITS), replace(base, inits=ADAM_INITS, optimiser="adam")]
    return [config for each in compared for config in (each, each.choosing())]


EXPERIMENT = Experiment(
    config=Continual,
    training="hyperfan.experiments.continual.training:ContinualTraining",
    run="hyperfan.experiments.continual.results:ContinualRun",
    results="hyperfan.experiments.continual.results:ContinualResults",
    heading="Continual learning",
    summary="Three regression tasks, one after another (the paper's section 4.2): many runs at once. Needs no data.",
    example="--inits hyperfan-in m3 --seeds 5",
    profiles=PROFILES,
    grid=grid,
    varied=("inits", "optimiser"),
)
