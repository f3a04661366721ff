"""What a run of the CIFAR-10 experiment depends on, and which runs the claim rests on."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.settings import CLASSICAL, Epochs, check_counts, check_rate, check_seed, title

if TYPE_CHECKING:
    from hyperfan.experiments.cifar10.training import Cifar10Training
    from hyperfan.experiments.loop import Summary

IMAGES, TEST_IMAGES = 50_000, 10_000


@dataclass(frozen=True)
class Cifar10(Epochs):
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
        check_counts(self, "epochs", "embedding", "batch", "images", "batches", "test_images", "test_every")
        check_counts(self, "log_every", "checkpoint_every", "threads")
        check_seed(self.seed)
        check_rate("lr", self.lr)
        for name, most in (("images", IMAGES), ("test_images", TEST_IMAGES)):
            if getattr(self, name) > most:
                raise RunError(f"--{name.replace('_', '-')} {getattr(self, name)}: CIFAR-10 has {most}")
        self.check_batch()
        if list(self.drops) != sorted(set(self.drops)) or any(drop < 1 for drop in self.drops):
            raise RunError(f"--drops {' '.join(map(str, self.drops))}: name epochs from 1 on, each later than the last")

    @property
    def rate(self) -> float:
        """The learning rate at the start."""
        usual = 0.01 if self.init == CLASSICAL else 0.0005
        return usual if self.lr is None else self.lr

    def rate_at(self, step: int) -> float:
        """The learning rate after so many batches."""
        past = sum(drop * self.epoch_batches <= step for drop in self.drops)
        return float(self.rate * 0.1**past)

    @property
    def title(self) -> str:
        """Its init and whatever is not as in the paper's profile, which also names its folder.

        >>> Cifar10(init="m2", seed=3, epochs=5).title
        'm2 seed-3 epochs-5'
        """
        return title(self, Cifar10(init=self.init), QUIET)

    def start(self, data_dir: Path | None) -> "Cifar10Training":
        """Build everything from the seed."""
        from hyperfan.experiments.cifar10.training import Cifar10Training

        return Cifar10Training(self, data_dir)

    def summarise(self, path: Path) -> "Summary":
        """Draw the run in this folder."""
        from hyperfan.experiments.cifar10.summary import write_summary

        return write_summary(path)


QUIET = ("test_images", "test_every", "log_every", "device")
"""Settings that say how a run is watched, or where it is, not what it does."""
CHOSEN = ("init", "lr")
"""Settings in which the runs of the grid differ."""

PROFILES = {
    "paper": Cifar10(),
    "laptop": Cifar10(
        batch=20,
        batches=500,
        test_images=1000,
        test_every=100,
        log_every=20,
        checkpoint_every=100,
        device="cpu",
    ),
    "smoke": Cifar10(
        lr=1e-5,
        epochs=1,
        batch=2,
        images=8,
        test_images=20,
        test_every=2,
        log_every=1,
        checkpoint_every=2,
        device="cpu",
    ),
}

HYPERFANS = ("hyperfan-in", "hyperfan-out")
BASELINES = ("kaiming-fan-in", "kaiming-fan-out")
SEEDS, MOST_SEEDS = 3, 8
OPEN = {"kaiming-fan-out": (5e-12, 5e-13)}
"""Rates at which three seeds left it open whether an init trains, so that they have more."""
_GOOD = (5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)
RATES = {
    "hyperfan-in": _GOOD,
    "hyperfan-out": _GOOD,
    # From the paper's rate down by tenths, until nothing moves any more.
    "kaiming-fan-out": tuple(float(f"5e-{k}") for k in range(4, 14)),
    "kaiming-fan-in": tuple(float(f"5e-{k}") for k in range(4, 18)),
    CLASSICAL: (1e-2,),
}
"""Which learning rates are tried for each init."""


def grid(base: Cifar10) -> list[Cifar10]:
    """Every run that the claim rests on: each init at each of its rates, seed by seed."""
    seeds = range(base.seed, base.seed + MOST_SEEDS)
    runs = [replace(base, init=init, seed=seed, lr=lr) for seed in seeds for init in RATES for lr in RATES[init]]
    return [run for run in runs if run.seed < base.seed + SEEDS or run.lr in OPEN.get(run.init, ())]
