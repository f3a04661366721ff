"""All that one look at a net brings to light, before anyone judges it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from hyperfan.errors import HyperfanError
from hyperfan.probe.diagnosis import LayerReading, PartReading, TensorReading
from hyperfan.probe.readings import read_layers, read_parts, read_tensors, square, sum_of_squares
from hyperfan.probe.subject import Subject
from hyperfan.probe.theory import SEED, Loss, Pass, Target, first_tensor, one_pass, targets, twin

TWINS = 5
GivenLoss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Evidence:
    """What the checks look at.

    Args:
        subject: the net.
        wanted: what each generated tensor should be.
        made: what it is.
        seen, twins: a pass of the net, and of plain nets at the target variances.
        layers, tensors, parts: readings.
        inputs: how many.
        input_scale: mean square of the inputs, if they are numbers.
        loss, expected_loss: mean over inputs; that of a net which knows nothing.
        constant: tensors that do not change with the embedding.
        noise: share of noise in the mean square of each tensor, where it has any.
        trial: what one step of plain SGD did, if a learning rate was given.
    """

    subject: Subject
    wanted: Mapping[str, Target]
    made: Mapping[str, Tensor]
    seen: Pass
    twins: tuple[Pass, ...]
    layers: tuple[LayerReading, ...]
    tensors: tuple[TensorReading, ...]
    parts: tuple[PartReading, ...]
    inputs: int
    input_scale: float | None
    loss: float | None
    expected_loss: float | None
    constant: tuple[str, ...]
    noise: Mapping[str, float]
    trial: "Trial | None"


@dataclass(frozen=True)
class Trial:
    """One step of plain SGD on everything that is trained.

    Args:
        lr: its learning rate.
        before, after: the loss.
        stable: beyond which rate the step would raise the loss, were the loss the parabola that this step shows.
    """

    lr: float
    before: float
    after: float
    stable: float


def gather(subject: Subject, y: Any, loss: GivenLoss | None, lr: float | None) -> Evidence:
    """Look at a net, and at its twins."""
    wanted = targets(subject)
    made = subject.generate()
    inputs = [t for t in (*subject.args, *subject.kwargs.values()) if isinstance(t, Tensor)]
    count = len(inputs[0]) if inputs and inputs[0].ndim else 1
    summed, expected = _loss(y, loss, count, subject, made)
    seen = one_pass(subject, made, summed)
    own = torch.Generator().manual_seed(SEED)
    twins = tuple(one_pass(subject, twin(subject, wanted, made, own), summed) for _ in range(TWINS))
    numbers = [t for t in inputs if t.is_floating_point()]
    mean = None if seen.loss is None or y is None else seen.loss / count
    return Evidence(
        subject,
        wanted,
        made,
        seen,
        twins,
        read_layers(subject, wanted, seen, twins),
        read_tensors(subject, wanted, made, seen, count),
        read_parts(subject, made, summed, count),
        count,
        numbers[0].double().square().mean().item() if numbers else None,
        mean,
        expected,
        tuple(subject.constant()),
        _noise(subject) if subject.random else {},
        _trial(subject, summed, count, lr) if lr is not None and y is not None else None,
    )


def _loss(
    y: Any, given: GivenLoss | None, count: int, subject: Subject, made: Mapping[str, Tensor]
) -> tuple[Loss, float | None]:
    """The loss summed over inputs, and what guessing has."""
    with torch.no_grad():
        output, _ = subject.run({n: t.detach() for n, t in made.items()})
    first = first_tensor(output)
    if y is None:
        if given is not None:
            raise HyperfanError("loss= was given without y=: pass both, as diagnose(net, x, y, loss=…)")
        # Without a loss, what goes backward is a random direction.
        direction = torch.randn(first.shape, generator=torch.Generator().manual_seed(SEED + 1)).to(first)
        return lambda out: (first_tensor(out) * direction).sum(), None
    classes = isinstance(y, Tensor) and not y.is_floating_point() and first.ndim > 1 and y.ndim == first.ndim - 1
    entropy = given is None or given is cross_entropy or isinstance(given, nn.CrossEntropyLoss)
    if given is not None:
        return lambda out: given(out, y) * count, math.log(first.shape[1]) if classes and entropy else None
    if classes:
        return lambda out: cross_entropy(first_tensor(out), y) * count, math.log(first.shape[1])
    if isinstance(y, Tensor) and y.shape == first.shape:
        return lambda out: mse_loss(first_tensor(out), y.to(first)) * count, None
    raise HyperfanError(
        f"the loss is not known for an output of shape {tuple(first.shape)} and this y: pass loss=, a function of the "
        "output and y that returns the mean loss"
    )


def _noise(subject: Subject) -> dict[str, float]:
    """The share of noise in each tensor's mean square, from two draws."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED + 2)
        a, b = subject.generate(noise=True), subject.generate(noise=True)
    shares = {}
    for name in a:
        noise, both = square(a[name] - b[name]) / 2, (square(a[name]) + square(b[name])) / 2
        if 0 < noise < math.inf:
            shares[name] = noise / both
    return shares


def _trial(subject: Subject, loss: Loss, count: int, lr: float) -> Trial | None:
    """Take the step, look at the loss, and take it back."""
    made = subject.generate()
    trained = [p for ps in subject.trained(made).values() for p in ps.values()] + list(subject.plain().values())
    with torch.enable_grad():
        before = loss(subject.run(made)[0]) / count
    if not trained or not torch.isfinite(before) or not before.requires_grad:
        return None
    grads = [
        torch.zeros_like(p) if g is None else g
        for p, g in zip(trained, torch.autograd.grad(before, trained, allow_unused=True), strict=True)
    ]
    saved = [p.detach().clone() for p in trained]
    try:
        with torch.no_grad():
            for p, g in zip(trained, grads, strict=True):
                p.add_(g, alpha=-lr)
            after = loss(subject.run({n: t.detach() for n, t in subject.generate().items()})[0]).item() / count
    finally:
        with torch.no_grad():
            for p, old in zip(trained, saved, strict=True):
                p.copy_(old)
    slope = sum(sum_of_squares(g) for g in grads)
    if not math.isfinite(after):
        return Trial(lr, before.item(), after, 0.0)
    bend = 2 * (after - before.item() + lr * slope) / lr**2
    return Trial(lr, before.item(), after, 2 * slope / bend if bend > 0 else math.inf)
