"""CIFAR-10, the paper's section 4.3: All-CNN, its weights generated in chunks."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import (
    CHOOSING_SEED,
    CLASSICAL,
    HYPERFANS,
    KAIMINGS,
    ClassifierConfiguration,
    Experiment,
)

IMAGES, TEST_IMAGES = 50_000, 10_000


@dataclass(frozen=True)
class Cifar10(ClassifierConfiguration):
    """A run: All-CNN-C on CIFAR-10, its weights made by Ha et al.'s hypernet in chunks of 96 channels.

    Args:
        init: an init method ("hyperfan methods" lists them), or "classical": the same net without a hypernet, with
            Kaiming init.
        seed: for init, embeddings, data order and augmentation.
        epochs: passes over the training images.
        lr: learning rate; without it the paper's, 0.0005, and 0.01 for the classical net.
        drops: epochs after which the learning rate is a tenth of what it was.
        augment: move the pictures by up to 4 pixels, and mirror half of them.
        fidelity: the paper's formulae to the letter, or exact moments.
        embedding: size of the embeddings, and of the codes.
        batch: images in a batch.
        images: how many training images to use, from the first.
        batches: end after so many batches.
        test_images: how many test images to use, from the first.
        test_every: batches between two tests; by default an epoch's.
        log_every: batches that a line of training loss averages over.
        checkpoint_every: batches between checkpoints.
        device: where to train, "cpu" or a GPU such as "cuda".
        threads: for torch. Two runs side by side get more done than one with two threads.
    """

    experiment: ClassVar[str] = "cifar10"
    UNTITLED: ClassVar = ("test_images", "test_every", "log_every", "device")
    AVAILABLE: ClassVar = {"images": IMAGES, "test_images": TEST_IMAGES}
    classes: ClassVar[int] = 10

    init: str = "hyperfan-in"
    seed: int = 0
    epochs: int = 500
    lr: float | None = None
    drops: tuple[int, ...] = (350, 450)
    augment: bool = False
    fidelity: Literal["paper", "exact"] = "paper"
    embedding: int = 50
    batch: int = 100
    images: int = IMAGES
    batches: int | None = None
    test_images: int = TEST_IMAGES
    test_every: int | None = None
    log_every: int = 50
    checkpoint_every: int = 500
    device: str = "cuda"
    threads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.drops) != sorted(set(self.drops)):
            raise RunError(f"--drops {' '.join(map(str, self.drops))}: name epochs, each later than the last")

    def rate_at(self, step: int) -> float:
        """The learning rate after so many batches."""
        past = sum(drop * self.epoch_batches <= step for drop in self.drops)
        return float(self.rate * 0.1**past)


ON_CPU = Cifar10(device="cpu")
PROFILES = {
    "paper": Cifar10(),
    "laptop": replace(ON_CPU, epochs=3, checkpoint_every=50),
    "smoke": replace(
        ON_CPU, lr=1e-5, epochs=1, batch=2, images=8, test_images=20, test_every=2, log_every=1, checkpoint_every=2
    ),
}

SEEDS, SHORT_RUN_SEEDS = 3, 8
"""With which inits train for longer, and with which further ones for some batches."""
SEARCH_BATCHES, SEARCH_TEST_IMAGES = 50, 1000
"""Batches and test images of short runs, which search for learning rates or show how training starts."""
SEARCHED = {
    **dict.fromkeys(HYPERFANS, tuple(float(f"5e-{k}") for k in range(2, 8))),
    "kaiming-fan-in": tuple(float(f"5e-{k}") for k in range(4, 18)),
    "kaiming-fan-out": tuple(float(f"5e-{k}") for k in range(4, 14)),
}
"""For each init, rates a tenth apart, from one at which it diverges to one at which nothing moves."""
BEST = {"kaiming-fan-in": 5e-15, "kaiming-fan-out": 5e-11}
"""Rates at which both train for longer, known from such a search with batches of 20."""
NEIGHBOUR = 10.0
"""The factor between a rate and its neighbours."""
LONG_EPOCHS = 12
"""Epochs of the one run that shows how training goes on."""


def _short(base: Cifar10) -> Cifar10:
    """The first batches of a run."""
    test_images = min(base.test_images, SEARCH_TEST_IMAGES)
    return replace(base, batches=min(base.total, SEARCH_BATCHES), test_images=test_images)


def search(base: Cifar10) -> list[Cifar10]:
    """The short runs that search the best rate of each init."""
    short = replace(_short(base), seed=base.seed + CHOOSING_SEED)
    return [replace(short, init=init, lr=lr) for init, rates in SEARCHED.items() for lr in rates]


def short_settings(base: Cifar10) -> list[Cifar10]:
    """Short runs at the rates that the claim is about, of one further seed: two of hyperfan, the best of Kaiming."""
    short = replace(_short(base), seed=base.seed + SEEDS)
    rates = {init: (replace(base, init=init).rate, replace(base, init=init).rate / NEIGHBOUR) for init in HYPERFANS}
    found = [replace(short, init=init, lr=float(f"{rate:g}")) for init, both in rates.items() for rate in both]
    return [*found, *(replace(short, init=init, lr=rate) for init, rate in BEST.items())]


def short_runs(base: Cifar10) -> list[Cifar10]:
    """Short runs at the rates that the claim is about, with all further seeds, seed by seed."""
    return [replace(run, seed=run.seed + i) for i in range(SHORT_RUN_SEEDS) for run in short_settings(base)]


def at_the_papers_rate(base: Cifar10) -> list[Cifar10]:
    """Hyperfan and the classical net at the paper's learning rates, seed by seed."""
    seeds = range(base.seed, base.seed + SEEDS)
    return [replace(base, init=init, seed=seed) for seed in seeds for init in (*HYPERFANS, CLASSICAL)]


def baselines(base: Cifar10) -> list[Cifar10]:
    """Both Kaiming inits for an epoch, seed by seed."""
    short = replace(base, epochs=1)
    seeds = range(base.seed, base.seed + SEEDS)
    return [replace(short, init=init, lr=BEST[init], seed=seed) for seed in seeds for init in KAIMINGS]


def neighbours(base: Cifar10) -> list[Cifar10]:
    """Hyperfan and the classical net at rates around the paper's."""
    runs = at_the_papers_rate(base)
    return [replace(run, lr=float(f"{run.rate * factor:g}")) for run in runs for factor in (1 / NEIGHBOUR, NEIGHBOUR)]


def long_run(base: Cifar10) -> list[Cifar10]:
    """The first seed of hyperfan-in at a tenth of the paper's rate, for longer; none where all train as long.

    Nor in a smoke test, of one epoch.
    """
    first = min(neighbours(base), key=lambda c: (c.init != HYPERFANS[0], c.seed, c.rate))
    return [replace(first, epochs=LONG_EPOCHS)] if base.batches is None and 1 < base.epochs < LONG_EPOCHS else []


def grid(base: Cifar10) -> list[Cifar10]:
    """Every run of the page: those that the claim rests on, the most important first, and one that is longer."""
    trained = at_the_papers_rate(base)
    longer = [*trained[:3], *baselines(base), *trained[3:], *neighbours(base), *long_run(base)]
    return [*search(base), *short_runs(base), *longer]


EXPERIMENT = Experiment(
    config=Cifar10,
    training="hyperfan.experiments.cifar10.training:Cifar10Training",
    run="hyperfan.experiments.cifar10.results:Cifar10Run",
    results="hyperfan.experiments.cifar10.results:Cifar10Results",
    heading="CIFAR-10",
    summary=(
        "All-CNN on CIFAR-10 (the paper's section 4.3), its weights made in chunks. The paper's scale needs a GPU."
    ),
    example="--profile laptop --init hyperfan-out --seed 3",
    profiles=PROFILES,
    grid=grid,
    varied=("init", "lr"),
)
