"""ImageNet, the paper's section 4.4: a Bayesian MobileNet on photographs."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import CLASSICAL, HYPERFANS, KAIMINGS, ClassifierConfiguration, Experiment

Last = Literal["generated", "plain"]
SEPARATION, DISAGREEMENT = "separation by entropy", "mean disagreement"
"""Keys of the line about uncertainty that claims read."""


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
        first_classes: how many classes to use, the first in the order of wnids.txt if the data has it, or by name;
            by default all.
        held_out: how many of these, the last, are not trained on, to see what the net predicts for unknown classes.
        images: how many training pictures to use, spread over the classes.
        batch: pictures in a batch.
        batches: end after so many batches.
        test_images: how many pictures to test on, spread over the classes; by default all.
        interim_images: how many of these the tests before the end use; by default all.
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
    UNTITLED: ClassVar = ("test_images", "interim_images", "test_every", "log_every", "device", "workers", "skip_bad")
    MAY_BE_ZERO: ClassVar = ("seed", "weight_decay", "noise", "held_out", "workers")

    init: str = "hyperfan-in"
    seed: int = 0
    epochs: int = 25
    lr: float = 0.1
    weight_decay: float = 0.0005
    last: Last = "generated"
    norm: bool = True
    noise: float = 0.1
    scope: Literal["layer", "block", "network"] = "block"
    samples: int = 10
    fidelity: Literal["paper", "exact"] = "paper"
    embedding: int = 32
    width: float = 1.0
    size: int = 224
    first_classes: int | None = None
    held_out: int = 0
    images: int = 1_281_167
    batch: int = 256
    batches: int | None = None
    test_images: int | None = None
    interim_images: int | None = None
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


LAPTOP = Imagenet(
    lr=0.1 * 64 / 256,  # as the batch is smaller
    epochs=2, width=0.5, size=64, first_classes=60, held_out=10, images=25_000, batch=64, interim_images=250,
    test_every=100, log_every=1, checkpoint_every=100, workers=0, device="cpu",
)  # fmt: skip
"""Tiny ImageNet: all pictures of 50 classes to train on, 10 classes held out."""
PROFILES = {
    "paper": Imagenet(),
    "laptop": LAPTOP,
    "smoke": replace(LAPTOP, epochs=1, embedding=4, batches=4, test_every=2, test_images=20, checkpoint_every=2),
}

INITS = (*KAIMINGS, *HYPERFANS)
LASTS: tuple[Last, ...] = ("generated", "plain")
SEEDS, FEWER_SEEDS = 8, 3
"""With which inits are compared, and with which the other noises and nets without batch norm."""
PLAIN_SEEDS, PLAIN_INITS = 16, ("kaiming-fan-out", "hyperfan-in")
"""With which two inits are compared further with a plain last layer, since fewer left open whether they are equal."""
NOISES = (0.0, 0.1, 0.3, 0.5)
"""Half-widths of the noise at which it is asked whether the entropy tells unknown classes apart."""
NOISE_INIT = "hyperfan-in"
BARE_BATCHES = 100
"""Batches of a run without batch norm, of which only the start is compared."""


def grid(base: Imagenet) -> list[Imagenet]:
    """Every run that the claims rest on, the most important first; of each part, each seed is complete before the next.

    Each init with the last layer generated or not, two of them with further seeds; one init at each noise; each init at
    full width, with one seed; and the start of each init without batch norm.
    """
    seeds = [replace(base, seed=seed) for seed in range(base.seed, base.seed + PLAIN_SEEDS)]
    runs = [run for b in seeds[:SEEDS] for run in every_init(b)]
    runs += [replace(b, init=init, last="plain") for b in seeds[SEEDS:] for init in PLAIN_INITS]
    runs += [replace(b, init=NOISE_INIT, noise=noise) for b in seeds[:FEWER_SEEDS] for noise in NOISES]
    runs += every_init(full_width(base))
    runs += [run for b in seeds[:FEWER_SEEDS] for run in every_init(without_norm(b))]
    return list(dict.fromkeys(runs))


def every_init(base: Imagenet) -> list[Imagenet]:
    """Each init with the last layer generated, and each with a plain one."""
    return [replace(base, init=init, last=last) for last in LASTS for init in INITS]


def full_width(base: Imagenet) -> Imagenet:
    """The configuration with as many channels as the paper's net."""
    return replace(base, width=1.0)


def without_norm(base: Imagenet) -> Imagenet:
    """The first batches of the same without batch norm."""
    tested = base.test_images or base.interim_images
    return replace(base, norm=False, batches=min(base.total, BARE_BATCHES), test_images=tested)


EXPERIMENT = Experiment(
    config=Imagenet,
    training="hyperfan.experiments.imagenet.training:ImagenetTraining",
    run="hyperfan.experiments.imagenet.results:ImagenetRun",
    results="hyperfan.experiments.imagenet.results:ImagenetResults",
    heading="Bayesian MobileNet",
    summary="A Bayesian MobileNet on photographs in folders (the paper's section 4.4). The paper's scale needs GPUs.",
    help=(
        "--data-dir is a folder with train/<class>/ and val/<class>/, as ImageNet has, or with Tiny ImageNet, which is "
        "the default. "
        "Several GPUs share each batch under torchrun: torchrun --nproc-per-node 8 -m hyperfan.cli.main run imagenet."
    ),
    example="--profile laptop --init hyperfan-out --last plain",
    profiles=PROFILES,
    grid=grid,
    varied=("init", "last", "norm", "noise", "width"),
)
