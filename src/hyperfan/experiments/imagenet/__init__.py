"""ImageNet, the paper's section 4.4: a Bayesian MobileNet on photographs."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import CLASSICAL, ClassifierConfiguration, Experiment


@dataclass(frozen=True)
class Imagenet(ClassifierConfiguration):
    """A run: MobileNet v1 on photographs in folders, its weights made by a linear hypernet from noisy embeddings.

    Args:
        init: an init method ("hyperfan methods" lists them).
        seed: for init, embeddings, noise, data order and crops.
        epochs: passes over the training pictures.
        lr: learning rate.
        weight_decay: of L2 regularisation, on all that is trained.
        last: whether the last layer is generated too, or plain.
        norm: whether the mainnet has batch norm.
        noise: half-width of the uniform noise on the embeddings, drawn anew for each batch.
        scope: what gets the same noise: a layer, a depthwise-separable block, or the network.
        samples: draws of the weights that a test averages over.
        fidelity: the paper's formulae to the letter, or exact moments.
        embedding: size of the embeddings.
        width: multiplies the channels of every layer.
        size: pixels of a picture's sides.
        held_out: how many classes, the last, are not trained on, to see what the net predicts for unknown classes.
        images: how many training pictures to use, spread over the classes.
        batch: pictures in a batch.
        batches: end after so many batches.
        test_images: how many pictures to test on, spread over the classes; by default all.
        test_every: batches between two tests; by default an epoch's.
        log_every: batches that a line of training loss averages over.
        checkpoint_every: batches between checkpoints.
        skip_bad: leave out, and count, pictures that do not decode, classes without pictures, and classes to test on
            that are not trained on; otherwise each is an error.
        workers: processes that decode pictures; 0 decodes in the run's process.
        device: where to train, "cpu" or a GPU such as "cuda".
        threads: for torch.
    """

    experiment: ClassVar[str] = "imagenet"
    UNTITLED: ClassVar = ("test_images", "test_every", "log_every", "device", "workers", "skip_bad")
    MAY_BE_ZERO: ClassVar = ("seed", "weight_decay", "noise", "held_out", "workers")

    init: str = "hyperfan-in"
    seed: int = 0
    epochs: int = 25
    lr: float = 0.1
    weight_decay: float = 0.0005
    last: Literal["generated", "plain"] = "generated"
    norm: bool = True
    noise: float = 0.1
    scope: Literal["layer", "block", "network"] = "block"
    samples: int = 10
    fidelity: Literal["paper", "exact"] = "paper"
    embedding: int = 32
    width: float = 1.0
    size: int = 224
    held_out: int = 0
    images: int = 1_281_167
    batch: int = 256
    batches: int | None = None
    test_images: int | None = None
    test_every: int | None = None
    log_every: int = 50
    checkpoint_every: int = 5000
    skip_bad: bool = False
    workers: int = 8
    device: str = "cuda"
    threads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init == CLASSICAL:
            raise RunError(f"--init {CLASSICAL}: this net is Bayesian by its hypernet, so it has an init method")
        if round(32 * self.width) < 1:
            raise RunError(f"--width {self.width:g}: no channels would be left")


SMALL_PICTURES = Imagenet(images=800, held_out=2, size=64, width=0.25, batch=32, workers=0, device="cpu")
LAPTOP_RATE = 0.1 * 32 / 256  # as the batch is smaller
LAPTOP = replace(
    SMALL_PICTURES, lr=LAPTOP_RATE, epochs=24, batches=600, test_every=600, log_every=1, checkpoint_every=100
)
PROFILES = {
    "paper": Imagenet(),
    "laptop": LAPTOP,
    "smoke": replace(LAPTOP, epochs=1, embedding=4, batches=4, test_every=2, test_images=20, checkpoint_every=2),
}

INITS = ("kaiming-fan-in", "kaiming-fan-out", "hyperfan-in", "hyperfan-out")
SEEDS = 3


def grid(base: Imagenet) -> list[Imagenet]:
    """Every run that the claims rest on: each init, with the last layer generated or not, with batch norm and without.

    Each seed is complete before the next.
    """
    lasts: tuple[Literal["generated", "plain"], ...] = ("generated", "plain")
    bases = [replace(base, last=last, norm=norm) for norm in (True, False) for last in lasts]
    seeds = range(base.seed, base.seed + SEEDS)
    return [replace(b, init=init, seed=seed) for seed in seeds for b in bases for init in INITS]


EXPERIMENT = Experiment(
    config=Imagenet,
    heading="Bayesian MobileNet",
    summary="A Bayesian MobileNet on photographs in folders (the paper's section 4.4). The paper's scale needs GPUs.",
    help=(
        "--data-dir is a folder with train/<class>/ and val/<class>/, as ImageNet has; by default it is Imagenette. "
        "Several GPUs share each batch under torchrun: torchrun --nproc-per-node 8 -m hyperfan.cli.main run imagenet."
    ),
    example="--profile laptop --init hyperfan-out --last plain",
    profiles=PROFILES,
    grid=grid,
    varied=("init", "last", "norm"),
    distributed=True,
)
