"""LoRA from a task's description: a hypernet on a small language model, started in four ways."""

from dataclasses import dataclass, replace
from typing import ClassVar

from hyperfan.errors import RunError, nearest
from hyperfan.experiments.experiment import CHOOSING_SEED, Configuration, Experiment
from hyperfan.experiments.launch import even_parts

OURS, T2L, D2L, TORCH, PER_TASK = "ours", "t2l", "d2l", "torch", "per-task"
STARTS = {
    OURS: "hyperfan, B = 0",
    T2L: "Text-to-LoRA",
    D2L: "Doc-to-LoRA",
    TORCH: "nn.Linear",
    PER_TASK: "a LoRA per task",
}
"""How a hypernet starts, and what it is called on the page; the last is no hypernet, but what it is measured by."""
RATES = {
    OURS: (3e-4, 6e-4, 1.2e-3, 2.4e-3),
    T2L: (3e-4, 6e-4, 1.2e-3, 2.4e-3),
    D2L: (3e-3, 6e-3, 1.2e-2, 2.4e-2),
    TORCH: (6e-4, 1.2e-3, 2.4e-3),
    PER_TASK: (3e-3, 6e-3, 1.2e-2),
}
"""Learning rates for each start, around the best one of a first trial; where codes are small, larger ones are best."""
RIVALS = (T2L, D2L, TORCH)
"""Starts that ours is compared with."""
PLACES = ("reverse", "rotate by 1", "rotate by 2", "swap pairs")
"""Transforms that reorder a string."""
SHIFTS = (0, 1, 2, 3)
"""Transforms that replace each letter by the one so many further on in the alphabet."""
TASKS = tuple((place, shift) for place in range(len(PLACES)) for shift in range(len(SHIFTS)))
"""A task is one of each: the numbers of its two transforms."""
SEEDS, CHOOSING_SEEDS = 8, 2
"""Seeds that are compared, and others that choose learning rates."""


@dataclass(frozen=True)
class Lora(Configuration):
    """A seed: a language model is pretrained, and hypernets for it are trained from every start at every rate.

    Args:
        starts: how hypernets start: as hyperfan's LoRA, as Text-to-LoRA, as Doc-to-LoRA, with heads as nn.Linear draws
            them; and "per-task", a LoRA for each trained task without a hypernet.
        rates: learning rates of AdamW that each is trained at, from which it falls to zero; by default three or four
            around the best of each start.
        seed: draws the language model, task vectors, which tasks are held out, the start and all strings.
        pretraining: batches on which the language model is trained.
        steps: batches on which hypernets are trained.
        strings: of each task in a batch of hypernets.
        pretraining_strings: in a batch of the language model.
        test_strings: of each task.
        letters: in the alphabet.
        length: of strings; even.
        width: of the language model.
        blocks: of the language model.
        heads: of its attention.
        rank: of the updates; α is twice that.
        embedding: size of task vectors.
        code: width of the trunk's hidden layer, and so of the code.
        log_every: batches that a line of training loss averages over.
        test_every: batches between two tests of hypernets.
        checkpoint_every: batches between checkpoints.
        threads: for torch.
    """

    experiment: ClassVar[str] = "lora"
    UNTITLED: ClassVar = ("test_strings", "log_every", "test_every", "checkpoint_every", "threads")

    starts: tuple[str, ...] = tuple(STARTS)
    rates: tuple[float, ...] = ()
    seed: int = 0
    pretraining: int = 800
    steps: int = 120
    strings: int = 4
    pretraining_strings: int = 64
    test_strings: int = 64
    letters: int = 8
    length: int = 6
    width: int = 64
    blocks: int = 2
    heads: int = 4
    rank: int = 4
    embedding: int = 16
    code: int = 64
    log_every: int = 10
    test_every: int = 120
    checkpoint_every: int = 200
    threads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for start in self.starts:
            if start not in STARTS:
                raise RunError(f"--starts {start} is not known: {nearest(start, STARTS)}")
        for name in ("starts", "rates") if self.rates else ("starts",):
            self.check_each_once(name)
        for name, value in (("pretraining", self.pretraining), ("steps", self.steps)):
            if value % self.log_every:
                raise RunError(f"--{name} {value} is no multiple of --log-every {self.log_every}")
        if self.length % 2 or self.length < 4:
            raise RunError(f"--length {self.length}: pairs of letters are swapped, and some rotated, so 4, 6, 8 …")
        if self.width % (2 * self.heads):
            raise RunError(f"--width {self.width}: each of {self.heads} heads has an even part of it")

    def share(self, ranks: int) -> list[tuple[Configuration, int]]:
        """Each process has some of the starts, all on the same language model, which it pretrains too."""
        count = len(self.starts)
        parts = [replace(self, starts=self.starts[part]) for part in even_parts(count, ranks, f"{count} --starts")]
        return [(part, len(part.members)) for part in parts]

    @property
    def total(self) -> int:
        """Batches in all."""
        return self.pretraining + self.steps

    @property
    def stage(self) -> tuple[str, int]:
        """A batch."""
        return "batch", 1

    @property
    def alpha(self) -> int:
        """α of the updates."""
        return 2 * self.rank

    @property
    def members(self) -> list[tuple[str, float]]:
        """Start and rate of everything that is trained on the language model."""
        return [(start, rate) for start in self.starts for rate in self.rates or RATES[start]]

    @property
    def title(self) -> str:
        """The seed, and whatever is not as by default.

        >>> Lora(rates=(1e-3, 1e-2), seed=3).title
        'seed-3 rates-0.001+0.01'
        """
        return " ".join([f"seed-{self.seed}", *self.changes_as_text(omit=("seed",))])


PROFILES = {
    "paper": Lora(),
    "laptop": Lora(pretraining=400, steps=80, width=32, code=32, test_strings=32),
    "smoke": Lora(
        rates=(1e-3, 1e-2), pretraining=4, steps=4, strings=2, pretraining_strings=8, test_strings=2, letters=4,
        length=4, width=16, blocks=1, heads=2, rank=2, embedding=4, code=8, log_every=2, test_every=2,
        checkpoint_every=2,
    ),
}  # fmt: skip


def compared(base: Lora) -> list[Lora]:
    """The seeds that claims are decided on."""
    return [replace(base, seed=base.seed + i) for i in range(SEEDS)]


def choosing(base: Lora) -> list[Lora]:
    """The seeds that learning rates are chosen on."""
    return [replace(base, seed=base.seed + CHOOSING_SEED + i) for i in range(CHOOSING_SEEDS)]


def grid(base: Lora) -> list[Lora]:
    """Every seed, first those that choose."""
    return [*choosing(base), *compared(base)]


EXPERIMENT = Experiment(
    config=Lora,
    training="hyperfan.experiments.lora.training:LoraTraining",
    run="hyperfan.experiments.lora.results:LoraRun",
    results="hyperfan.experiments.lora.results:LoraResults",
    heading="LoRA from a condition",
    summary="A hypernet from task vectors to LoRA of a small language model, which it pretrains. Needs no data.",
    example="--profile laptop --starts ours t2l",
    profiles=PROFILES,
    grid=grid,
    varied=("seed",),
    help="A seed takes about a minute and a half on one core, all of them a quarter of an hour.",
)
