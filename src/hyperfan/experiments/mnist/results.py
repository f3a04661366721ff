"""What is read from MNIST runs, drawn and published: loss, accuracy, how weights settle, and untrained nets."""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from hyperfan.data import MNIST, mnist, standardise
from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.mnist import CLOSE_SEEDS, HEADLINE, LAYERS, SEEDS, SHARING_SEEDS, TEST_IMAGES, Mnist
from hyperfan.experiments.mnist.claims import ACCURACY_MARGIN, CLAIMS, LOSS_FACTOR, SETTLED_WITHIN
from hyperfan.experiments.mnist.claims.starts import FORMULA_TOLERANCE
from hyperfan.experiments.mnist.training import build, probe_images
from hyperfan.experiments.results.classifier import ClassifierResults, mean_of
from hyperfan.experiments.results.runs import ClassifierRun, NamedFigure, Runs
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import Kind, Row, history
from hyperfan.probe.inside import layer_scales, outputs_of_layers
from hyperfan.report import Setting, evolution, loss_and_accuracy, ridges, settings

SUBJECTS = {
    "activations": "Mainnet Activations",
    "gradients": "Mainnet Gradients",
    "weights": "Hypernet Output Layer Activations",
    "weight gradients": "Hypernet Output Layer Gradients",
}
"""The paper's names for the probe's quantities: a hypernet's output layer makes the mainnet's weights."""
VARIANTS: dict[str, dict[str, Any]] = {
    "weights": {},
    "weights-and-biases": {"generate": "weights+biases"},
    "relu": {"activation": "relu"},
}
"""A folder of figures for each, and how its runs differ from the base."""
START_SEEDS = 10
"""Untrained nets of each setting: one costs a second, a run minutes."""


class MnistRun(ClassifierRun[Mnist]):
    """One run that is over."""

    def sentence(self) -> str:
        """How it ended, and of a run that did not diverge what it was."""
        c = self.config
        if self.diverged:
            return f"{self.outcome()}."
        net = "a plain net" if c.init == CLASSICAL else f"{c.generate} made by a hypernet"
        return f"{self.outcome()}; {net}, {c.init}, {c.activation}, {c.optimiser} at {c.rate:g}, seed {c.seed}."

    def figures(self) -> Iterator[NamedFigure]:
        """The paper's figures, of this run alone."""
        return paper_figures(settings({self.config.init: [self.rows]}), self.config)

    def undrawn(self) -> Self:
        """Without histograms, and without moments but those of weights, not of biases, which claims compare."""
        claimed = (None, "weights")
        rows = [r for r in self.rows if r["kind"] != Kind.HISTOGRAMS and r.get("of") in claimed]
        return replace(self, rows=[_without_biases(r) if "of" in r else r for r in rows])

    def test_loss(self) -> float:
        """Summed over the test images at the end; of a run that diverged, that of guessing."""
        last = self.last(Kind.TEST)
        return math.log(self.classes) * TEST_IMAGES if self.diverged or last is None else float(last["loss"])

    def settled(self, scale: "MnistRun | None" = None) -> float:
        """Batches after which the weights' deviations stay near their final value, averaged over layers.

        Near is a share of that value, or of another run's. At least the batches between two probes, since nothing
        finer is seen. A run that diverged never settles.
        """
        if self.diverged:
            return float(self.config.total)
        found = []
        for layer, moments in enumerate(self._weights):
            final, near = moments[-1][2], SETTLED_WITHIN * (scale or self).weight_deviation(layer)
            far = [i for i, (_, _, std) in enumerate(moments) if abs(std - final) > near]
            found.append(moments[max(far, default=0) + 1][0])
        return statistics.fmean(found)

    def restless(self, of: Literal["mean", "deviation"], relative: bool) -> float:
        """How far the weights' mean or deviation moves between two probes, over all layers and all of training.

        Relative to the deviation at the end, or as it is. A run that diverged has no such number.
        """
        if self.diverged:
            return math.nan
        moves = []
        for moments in self._weights:
            values = [mean if of == "mean" else std for _, mean, std in moments]
            scale = moments[-1][2] if relative else 1.0
            moves += [abs(b - a) / scale for a, b in itertools.pairwise(values)]
        return statistics.fmean(moves)

    def weight_deviation(self, layer: int) -> float:
        """The standard deviation of a layer's weights at the end; of a run that diverged there is none."""
        return math.nan if self.diverged else self._weights[layer][-1][2]

    @functools.cached_property
    def _weights(self) -> list[list[tuple[int, float, float]]]:
        """Steps, means and deviations of each layer's weights, where they are finite."""
        found = history(self.rows, "weights")
        return [[(s, m, d) for s, m, d in found[f"{p}.weight"] if m is not None and d is not None] for p in LAYERS]


def _without_biases(moments: Row) -> Row:
    return {**moments, "layers": {name: v for name, v in moments["layers"].items() if name.endswith(".weight")}}


def paper_figures(compared: Sequence[Setting], config: Mnist) -> Iterator[NamedFigure]:
    """The thirteen figures of the paper's MNIST section under its titles, for the config's nonlinearity and targets."""
    note = " (weights and biases generated)" if config.generate == "weights+biases" else ""
    note += " (ReLU and Kaiming init)" if config.activation == "relu" else ""
    batches = config.epoch_batches
    yield "loss", loss_and_accuracy(compared, batches, f"Loss and Test Accuracy Plots on MNIST{note}")
    for quantity, subject in SUBJECTS.items():
        name = subject.lower().replace(" ", "-")
        panels = _panels(quantity, config.generate)
        before = f"{subject} before the Start of Training on MNIST{note}"
        yield f"{name}-before", ridges(compared, quantity, panels, before, last=False)
        during = f"Evolution of {subject} during Training on MNIST{note}"
        yield f"{name}-evolution", evolution(compared, quantity, panels, batches, during)
        after = f"{subject} at the End of Training on MNIST{note}"
        yield f"{name}-end", ridges(compared, quantity, panels, after, last=True)


def _panels(quantity: str, generate: str) -> list[tuple[str, str]]:
    if quantity in ("activations", "gradients"):
        return [(path, f"layer {i} ('{path}')") for i, path in enumerate(LAYERS, 1)]
    roles = ("weight", "bias") if generate == "weights+biases" else ("weight",)
    return [(f"{path}.{role}", f"layer {i}, {role}") for role in roles for i, path in enumerate(LAYERS, 1)]


@dataclass(frozen=True)
class UntrainedNet:
    """What is measured of one net before training.

    Args:
        activations: standard deviation of each layer's outputs, before the nonlinearity.
        gradients: standard deviation of the loss's gradient at those outputs.
        flow: for each generated weight, Var(∂L/∂h) over Var(∂L/∂W), the step of a gradient from mainnet to hypernet.
    """

    activations: tuple[float, ...]
    gradients: tuple[float, ...]
    flow: tuple[float, ...]


def measure_start(config: Mnist, test_x: Tensor, test_y: Tensor) -> UntrainedNet:
    """Build the net of a run and measure it on the images of its probe.

    ∂L/∂h = H·∂L/∂W is taken for each tensor by itself. Variances are second moments, since both have mean zero in
    expectation.
    """
    net, _ = build(config)
    measured = probe_images(config, len(test_x))
    x, y = test_x[measured], test_y[measured]
    plain = net.freeze() if isinstance(net, HyperNet) else net
    scales = layer_scales(plain, x, y)
    if not isinstance(net, HyperNet):
        return UntrainedNet(scales.preactivation, scales.gradient, ())
    _, loss = outputs_of_layers(plain, x, y)
    pairs = zip(net.generated, net.heads.names, strict=True)
    heads = {tensor.name: net.heads.head(head) for tensor, head in pairs if tensor.role == "weight"}
    grads = torch.autograd.grad(loss / len(x), [plain.get_parameter(name) for name in heads])
    flow = []
    for head, grad in zip(heads.values(), grads, strict=True):
        code_grad = head.weight.detach() @ grad.flatten()
        flow.append((code_grad.square().mean() / grad.square().mean()).item())
    return UntrainedNet(scales.preactivation, scales.gradient, tuple(flow))


class MnistResults(ClassifierResults[Mnist, MnistRun]):
    """Three variants of the paper's figures, the accuracy of every setting, and ten claims."""

    claims = CLAIMS
    data_set = "mnist"
    columns = (
        ("setting", "setting", ""),
        ("epochs", "epochs", ".2g"),
        ("seeds", "seeds", ""),
        ("accuracy [95 % interval]", "accuracy", ".2%"),
        ("diverged", "diverged", ""),
    )

    def __init__(
        self,
        runs: Runs[MnistRun],
        base: Mnist,
        data_dir: Path | None = None,
        log: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(runs, base, data_dir, log)
        self._untrained = functools.cache(self._measure_starts)  # which the halves of the seeds share

    def check(self) -> None:
        """The four headline settings must be there. Variants without their runs are not drawn."""
        for config in headline(self.base):
            self.runs.need(config)

    def starts(self, **changes: Any) -> Sequence[UntrainedNet]:
        """Untrained nets of a setting, measured on the images of its probe."""
        return self._untrained(replace(self.base, **changes))[self.part]

    def _measure_starts(self, config: Mnist) -> Sequence[UntrainedNet]:
        """Untrained nets of a setting, one for each seed from its own."""
        self.log(f"measuring {START_SEEDS} untrained nets: {_without_seed(config)}")
        seeds = [replace(config, seed=config.seed + i) for i in range(START_SEEDS)]
        return [measure_start(c, *self._test_images) for c in seeds]

    @functools.cached_property
    def _test_images(self) -> tuple[Tensor, Tensor]:
        test = mnist(self.data_dir).test
        return standardise(test.images, MNIST.mean, MNIST.std).flatten(1), test.labels

    def after(self, epochs: int, **changes: Any) -> list[MnistRun]:
        """The runs of a setting that were tested after so many epochs, of whatever length, one for each seed."""
        full, short = (replace(self.base, **changes, epochs=length) for length in (self.base.epochs, epochs))
        found = {run.config.seed: run for config in (short, full) for run in self.runs.seeds(config)}
        return [found[seed] for seed in sorted(found)] or [self.runs.one(short)]

    def variants(self) -> dict[str, Mnist]:
        """The variants that have runs of all of their settings."""
        bases = {name: replace(self.base, **changes) for name, changes in VARIANTS.items()}
        return {name: c for name, c in bases.items() if all(map(self.runs.seeds, headline(c)))}

    def figures(self) -> Iterator[NamedFigure]:
        """The paper's figures for each variant."""
        for variant, base in self.variants().items():
            found = {c.init: [r.rows for r in self.runs.need(c)] for c in headline(base)}
            for name, figure in paper_figures(settings(found), base):
                yield f"{variant}/{name}", figure

    def numbers(self, runs: Sequence[MnistRun]) -> dict[str, Any]:
        """Accuracy, losses and settling of a setting."""
        config = runs[0].config
        return {
            "setting": _without_seed(config),
            "epochs": config.total / config.epoch_batches,
            "accuracy": mean_of([r.accuracy() for r in runs], Estimate.mean_share),
            "accuracy after one epoch": [r.accuracy(1) for r in runs] if config.total >= config.epoch_batches else None,
            "final training loss": [r.training_loss() for r in runs],
            "final test loss": [r.test_loss() for r in runs],
            "batches until settled": None if any(r.diverged for r in runs) else [r.settled() for r in runs],
        }

    def fields(self) -> dict[str, Any]:
        """Accuracies, and the folders of figures."""
        figures = "\n".join(f"- [{v.replace('-', ' ')}](figures/{v})" for v in self.variants())
        return {
            "accuracies": self.table(),
            "figures": figures,
            "tested": TEST_IMAGES,
            "probed": self.base.probe_images,
            "rate": self.base.rate,
            "classical_rate": replace(self.base, init=CLASSICAL).rate,
            "margin": ACCURACY_MARGIN,
            "factor": LOSS_FACTOR,
            "tolerance": FORMULA_TOLERANCE,
            "settled": SETTLED_WITHIN,
            "starts": START_SEEDS,
            "seeds": SEEDS,
            "close": CLOSE_SEEDS,
            "sharing": SHARING_SEEDS,
            "time": "some hours on 2 cores, and 130 MB for each run",
        }


def headline(base: Mnist) -> list[Mnist]:
    """The four settings of the paper's figures. The classical net generates nothing."""
    names = [i.replace("xavier", "kaiming") if base.activation == "relu" else i for i in HEADLINE]
    return [replace(base, init=i, generate="weights" if i == CLASSICAL else base.generate) for i in names]


def _without_seed(config: Mnist) -> str:
    return config.title.replace(f" seed-{config.seed}", "")
