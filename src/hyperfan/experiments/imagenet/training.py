"""Training of the Bayesian MobileNet: net, optimiser and photographs, all from one seed."""

import functools
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes import Embedding
from hyperfan.data import IMAGENET, standardise
from hyperfan.errors import DataError, RunError
from hyperfan.experiments import classifier
from hyperfan.experiments.classifier import Classifier, indices, join_ranks
from hyperfan.experiments.imagenet import DISAGREEMENT, SEPARATION, Imagenet
from hyperfan.experiments.imagenet.pictures import Batch, Crops, Files, evenly_spaced, loader, read_pictures
from hyperfan.experiments.ranks import Ranks
from hyperfan.experiments.scores import score, separation
from hyperfan.experiments.seeds import derived_seed, generator
from hyperfan.hypernet import HyperNet, predict
from hyperfan.mainnet.spec import TensorSpec
from hyperfan.metrics import Kind, Row
from hyperfan.models import mobilenet
from hyperfan.optim import SGD

SKIPPED, DATA = "skipped", "data"
"""Names of texts in a state."""
ENTROPY_BINS = 40
"""Bins of a histogram of entropies, from 0 to that of guessing."""


class ImagenetTraining(Classifier):
    """Trains on random crops, and tests on the middle of each picture with several draws of the weights."""

    config: Imagenet
    net: HyperNet

    def __init__(self, config: Imagenet, data_dir: Path | None) -> None:
        ranks, self.device = join_ranks(config.device)
        found = read_pictures(data_dir, config.held_out, config.skip_bad, config.first_classes)
        if len(found.train) < config.images:
            raise RunError(
                f"--images {config.images}: the {len(found.classes)} classes trained on have {len(found.train)} "
                f"pictures: pass --images {len(found.train)}"
            )
        if config.batch % ranks.world:
            raise RunError(f"--batch {config.batch} cannot be shared by {ranks.world} processes: use a multiple")
        if config.norm and config.batch // ranks.world < 2:
            raise RunError(f"--batch {config.batch}: batch norm needs at least 2 pictures in each process")
        self.classes = len(found.classes)
        self.train = Crops(evenly_spaced(found.train, config.images), config.size, config.seed)
        self.known, self.unknown = (evenly_spaced(files, config.test_images) for files in (found.test, found.unknown))
        self.skipped = set(found.left_out)
        """Pictures and classes that were left out so far."""
        self._stream: tuple[int, Iterator[Batch]] = (-1, iter(()))
        self.data = found.fingerprint
        net, plan = build(config, self.classes)
        data = {"name": found.name, "classes": found.classes, "held out": found.held_out}
        plan = {**plan, "data": {**data, "pictures": len(found.train), "sha256": self.data}}
        net.to(self.device)
        super().__init__(config, net, plan, SGD(net, lr=config.lr, weight_decay=config.weight_decay), ranks)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """This process's part of the batch after so many, standardised."""
        at, stream = self._stream
        if at != step:
            stream = self._load(range(step, self.config.total), self.ranks)
        self._stream = step + 1, stream
        return self._next(stream)

    def full_batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The batch after so many, of all processes, standardised."""
        return self._next(self._load(range(step, step + 1), replace(self.ranks, rank=0, world=1)))

    def _load(self, steps: range, ranks: Ranks) -> Iterator[Batch]:
        # Without a reference to this object, so that its workers end with it.
        keys = map(functools.partial(batch_keys, self.config, ranks), steps)
        return iter(loader(self.train, keys, self.config.workers))

    def _next(self, stream: Iterator[Batch]) -> tuple[Tensor, Tensor]:
        pictures, labels, bad = next(stream)
        self._skip(bad)
        if not len(labels):
            raise DataError(f"none of a batch of {len(bad)} pictures could be read: {next(iter(bad.values()))}")
        return self._ready(pictures), labels.to(self.device)

    def _skip(self, bad: dict[str, str]) -> None:
        if bad and not self.config.skip_bad:
            raise DataError(f"{next(iter(bad.values()))}; --skip-bad leaves such pictures out, and counts them")
        self.skipped.update(bad)

    def step(self, step: int) -> float:
        """Train on one batch, with noise that follows from seed and step, the same in all processes."""
        torch.manual_seed(derived_seed(self.config.seed, "noise", step))
        return super().step(step)

    def tests(self, step: int) -> Iterator[Row]:
        """Scores on the test pictures, every so often and at the end; at the end also the uncertainty about them."""
        if step == 0 or (step % self.config.tested_every and step != self.config.total):
            return
        seed = derived_seed(self.config.seed, "test", step)
        last = step == self.config.total
        known = self.known if last else evenly_spaced(self.known, self.config.interim_images)
        probabilities, labels, entropy, disagreement = self._predict(known, seed)
        scores = score(probabilities, labels)
        values = {**asdict(scores), "skipped": len(self.skipped)}
        reliability = values.pop("reliability")
        # Summed over as many pictures as at the end, so that one can be compared with another.
        total = scores.nll * len(labels) * len(self.known) / len(known)
        yield {"kind": Kind.TEST, "step": step, "loss": total, **values}
        if not last:
            return
        row: dict[str, Any] = {"kind": Kind.UNCERTAINTY, "step": step, "classes": self.classes}
        row["data"] = self.plan["data"]["name"]
        row["reliability"] = reliability
        row["known"] = _histograms(entropy, disagreement, self.classes)
        if self.unknown:
            _, _, other, other_disagreement = self._predict(self.unknown, seed)
            row["unknown"] = _histograms(other, other_disagreement, self.classes)
            row[SEPARATION] = separation(entropy, other)
            row["separation by disagreement"] = separation(disagreement, other_disagreement)
            means = {"known": disagreement, "unknown": other_disagreement}
            row[DISAGREEMENT] = {name: values.double().mean().item() for name, values in means.items()}
        yield row

    def state(self) -> dict[str, Tensor]:
        """Net and optimiser, the names of what was left out so far, and the fingerprint of the pictures."""
        names = "\n".join(sorted(self.skipped)).encode()
        added = {SKIPPED: names + b"\n", DATA: self.data.encode()}
        texts = {name: torch.frombuffer(bytearray(text), dtype=torch.uint8) for name, text in added.items()}
        return {**super().state(), **texts}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned, of a run on the same pictures."""
        names, data = (bytes(state[name].tolist()).decode() for name in (SKIPPED, DATA))
        if data != self.data:
            raise RunError("the pictures in --data-dir are not those that the run was started on: give it the same")
        self.skipped = {name for name in names.split("\n") if name}
        super().load({name: t for name, t in state.items() if name not in (SKIPPED, DATA)})

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The test pictures of the classes trained on."""
        return self._tested(self.known)

    def _tested(self, files: Files) -> Iterator[tuple[Tensor, Tensor]]:
        crops = Crops(files, self.config.size, None)
        keys = [(0, index) for index in range(len(files))]
        batches = (keys[i : i + self.TEST_BATCH] for i in range(0, len(keys), self.TEST_BATCH))
        for pictures, labels, bad in loader(crops, batches, self.config.workers):
            self._skip(bad)
            if len(labels):
                yield self._ready(pictures), labels.to(self.device)

    def _predict(self, files: Files, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Probabilities, labels, entropy and mutual information, batch by batch, all from the draws of a seed."""
        batches: list[tuple[Tensor, ...]] = []
        for x, y in self._tested(files):
            p = predict(self.net, x, self.config.samples if self.config.noise else 1, seed=seed)
            batches.append(tuple(t.cpu() for t in (p.probabilities, y, p.entropy, p.mutual_information)))
        if not batches:
            raise DataError(f"none of {len(files)} pictures to test on could be read")
        probabilities, labels, entropy, disagreement = (torch.cat(column) for column in zip(*batches, strict=True))
        return probabilities, labels, entropy, disagreement

    def _ready(self, pictures: Tensor) -> Tensor:
        return standardise(pictures.to(self.device), IMAGENET.mean, IMAGENET.std)


def batch_keys(config: Imagenet, ranks: Ranks, step: int) -> list[tuple[int, int]]:
    """Epoch and number of the pictures in this process's part of the batch after so many."""
    epoch = step // config.epoch_batches
    return [(epoch, index) for index in indices(config, step).tolist()[ranks.rank :: ranks.world]]


def build(config: Imagenet, classes: int) -> tuple[HyperNet, Any]:
    """The net of a run, and what was written into it, as JSON. A plain last layer starts the same under every init."""
    mainnet, settings = parts(config, classes)
    net, plan = classifier.build(mainnet, config, **settings)
    assert isinstance(net, HyperNet)
    if config.last == "plain":
        last = net.mainnet.get_parameter(f"{len(mainnet) - 1}.weight")
        nn.init.kaiming_uniform_(last, nonlinearity="linear", generator=generator(config.seed, "last"))
    return net, plan


def parts(config: Imagenet, classes: int) -> tuple[nn.Sequential, dict[str, Any]]:
    """The mainnet of a run on the meta device, and the settings of its hypernet."""
    with torch.device("meta"):
        mainnet = mobilenet(classes, config.width, config.norm)
    embedding = Embedding(config.embedding, noise=config.noise, scope=config.scope if config.noise else "embedding")

    def generated(t: TensorSpec) -> bool:
        return t.role == "weight" and (config.last == "generated" or t.kind != "Linear")

    return mainnet, {"embedding": embedding, "heads": "separate", "generate": generated}


def _histograms(entropy: Tensor, disagreement: Tensor, classes: int) -> dict[str, list[int]]:
    """How many pictures have which entropy and mutual information, from 0 to ln(classes)."""
    most, found = math.log(classes), {"entropy": entropy, "disagreement": disagreement}
    counts = {name: torch.histc(v.double().clamp(max=most), ENTROPY_BINS, 0.0, most) for name, v in found.items()}
    return {name: [int(n) for n in values] for name, values in counts.items()}
