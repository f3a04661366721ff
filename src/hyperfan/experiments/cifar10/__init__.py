"""CIFAR-10, the paper's section 4.3: All-CNN, its weights generated in chunks."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import CLASSICAL, ClassifierConfiguration, Experiment

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
    "laptop": replace(
        ON_CPU, batch=20, batches=500, test_images=1000, test_every=100, log_every=20, checkpoint_every=100
    ),
    "smoke": replace(
        ON_CPU, lr=1e-5, epochs=1, batch=2, images=8, test_images=20, test_every=2, log_every=1, checkpoint_every=2
    ),
}

HYPERFANS = ("hyperfan-in", "hyperfan-out")
BASELINES = ("kaiming-fan-in", "kaiming-fan-out")
SEEDS, MAX_SEEDS = 3, 8
UNDECIDED_RATES = {"kaiming-fan-out": (5e-12, 5e-13)}
"""Rates at which three seeds left it open whether an init trains, so that they have more."""
RATES = {
    CLASSICAL: (1e-2,),
    # From the paper's rate down by tenths, until nothing moves any more.
    "kaiming-fan-in": tuple(float(f"5e-{k}") for k in range(4, 18)),
    "kaiming-fan-out": tuple(float(f"5e-{k}") for k in range(4, 14)),
    **dict.fromkeys(HYPERFANS, (5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)),
}
"""Which learning rates are tried for each init."""


def grid(base: Cifar10) -> list[Cifar10]:
    """Every run that the claim rests on: each init at each of its rates, seed by seed."""
    seeds = range(base.seed, base.seed + MAX_SEEDS)
    runs = [replace(base, init=init, seed=seed, lr=lr) for seed in seeds for init in RATES for lr in RATES[init]]
    return [run for run in runs if run.seed < base.seed + SEEDS or run.lr in UNDECIDED_RATES.get(run.init, ())]


EXPERIMENT = Experiment(
    config=Cifar10,
    heading="CIFAR-10",
    summary=(
        "All-CNN on CIFAR-10 (the paper's section 4.3), its weights made in chunks. The paper's scale needs a GPU."
    ),
    example="--profile laptop --init hyperfan-out --seed 3",
    profiles=PROFILES,
    grid=grid,
    varied=("init", "lr"),
)
