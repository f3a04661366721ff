"""The figures of the paper's MNIST section, under its titles: thirteen for what is generated."""

from collections.abc import Iterator, Sequence
from typing import Literal

from hyperfan.experiments.mnist.config import LAYERS
from hyperfan.report import Setting, evolution, loss_and_accuracy, ridges

SUBJECTS = {
    "activations": "Mainnet Activations",
    "gradients": "Mainnet Gradients",
    "weights": "Hypernet Output Layer Activations",
    "weight gradients": "Hypernet Output Layer Gradients",
}
"""What the paper calls the probe's quantities: a hypernet's output layer makes the mainnet's weights."""


def figures(
    settings: Sequence[Setting],
    epoch_batches: int,
    generate: Literal["weights", "weights+biases"] = "weights",
    activation: Literal["tanh", "relu"] = "tanh",
) -> Iterator[tuple[str, str]]:
    """Each figure with a name for its file."""
    note = " (weights and biases generated)" if generate == "weights+biases" else ""
    note += " (ReLU and Kaiming init)" if activation == "relu" else ""
    yield "loss", loss_and_accuracy(settings, epoch_batches, f"Loss and Test Accuracy Plots on MNIST{note}")
    for quantity, subject in SUBJECTS.items():
        name = subject.lower().replace(" ", "-")
        panels = _panels(quantity, generate)
        before = f"{subject} before the Start of Training on MNIST{note}"
        yield f"{name}-before", ridges(settings, quantity, panels, before, last=False)
        during = f"Evolution of {subject} during Training on MNIST{note}"
        yield f"{name}-evolution", evolution(settings, quantity, panels, epoch_batches, during)
        after = f"{subject} at the End of Training on MNIST{note}"
        yield f"{name}-end", ridges(settings, quantity, panels, after, last=True)


def _panels(quantity: str, generate: str) -> list[list[tuple[str, str]]]:
    if quantity in ("activations", "gradients"):
        return [[(path, f"layer {i} ('{path}')") for i, path in enumerate(LAYERS, 1)]]
    roles = ("weight", "bias") if generate == "weights+biases" else ("weight",)
    return [[(f"{path}.{role}", f"layer {i}, {role}") for i, path in enumerate(LAYERS, 1)] for role in roles]
