"""All that one look at a net brings to light, before anyone judges it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError, HyperfanError
from hyperfan.probe.diagnosis import LayerReading, PartReading, TensorReading
from hyperfan.probe.readings import read_layers, read_parts, read_tensors
from hyperfan.probe.squares import square
from hyperfan.probe.subject import SEED, Subject
from hyperfan.probe.theory import (
    Glimpse,
    Loss,
    Pass,
    Target,
    first_tensor,
    float_tensors,
    glimpse,
    one_pass,
    targets,
    twin,
)
from hyperfan.probe.trial import Trial, try_step

TWINS = 5
GivenLoss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Evidence:
    """What the checks look at.

    Args:
        subject: the net.
        wanted: what each generated tensor should be.
        made: what it is.
        seen, twins: a pass of the net, and what plain nets at the target variances do.
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
    twins: tuple[Glimpse, ...]
    layers: tuple[LayerReading, ...]
    tensors: tuple[TensorReading, ...]
    parts: tuple[PartReading, ...]
    inputs: int
    input_scale: float | None
    loss: float | None
    expected_loss: float | None
    constant: tuple[str, ...]
    noise: Mapping[str, float]
    trial: Trial | None


def gather(subject: Subject, y: Any, loss: GivenLoss | None, lr: float | None) -> Evidence:
    """Look at a net, and at its twins."""
    wanted = targets(subject)
    made = subject.generate()
    parts = {part: ps for part, ps in {**subject.trained(made), "plain": subject.plain()}.items() if ps}
    inputs = [t for t in pytree.tree_leaves((subject.args, subject.kwargs)) if isinstance(t, Tensor)]
    count = len(inputs[0]) if inputs and inputs[0].ndim else 1
    if not count:
        raise CallError("x is empty: give as many inputs as a training batch has")
    summed, expected = _loss(y, loss, count, subject, made)
    seen = one_pass(subject, made, summed, [p for ps in parts.values() for p in ps.values()])
    own = torch.Generator().manual_seed(SEED)
    twins = [glimpse(one_pass(subject, twin(subject, wanted, made, own), summed)) for _ in range(TWINS)]
    numbers = [t for t in inputs if t.is_floating_point()]
    return Evidence(
        subject,
        wanted,
        made,
        seen,
        tuple(twins),
        read_layers(subject, wanted, seen, twins),
        read_tensors(subject, wanted, made, seen, count),
        read_parts(subject, parts, seen, count),
        count,
        square(numbers[0]) if numbers else None,
        None if seen.loss is None or y is None else seen.loss / count,
        expected,
        tuple(name for name in subject.constant() if wanted[name].variance),
        _noise(subject) if subject.random else {},
        None if lr is None else try_step(subject, summed, count, lr),
    )


def _loss(
    y: Any, given: GivenLoss | None, count: int, subject: Subject, made: Mapping[str, Tensor]
) -> tuple[Loss, float | None]:
    """The loss summed over inputs, and what guessing has."""
    with torch.no_grad():
        output, _ = subject.run({n: t.detach() for n, t in made.items()})
    first, *rest = float_tensors(output)
    if y is None:
        if given is not None:
            raise HyperfanError("loss= was given without y=: pass both, as diagnose(net, x, y, loss=…)")
        # Without a loss, what goes backward is a random direction.
        own = torch.Generator().manual_seed(SEED + 1)
        ways = [torch.randn(t.shape, generator=own).to(t) for t in (first, *rest)]
        return lambda out: torch.stack(
            [(t * w).sum() for t, w in zip(float_tensors(out), ways, strict=True)]
        ).sum(), None
    whole = isinstance(y, Tensor) and not y.is_floating_point()
    in_second = whole and first.ndim > 1 and y.shape == first.shape[:1] + first.shape[2:]
    in_last = whole and first.ndim > 2 and y.shape == first.shape[:-1]
    if given is not None:
        entropy = given is cross_entropy or isinstance(given, nn.CrossEntropyLoss)
        return lambda out: _scalar(given(out, y)) * count, math.log(first.shape[1]) if in_second and entropy else None
    if rest:
        raise HyperfanError(
            f"the mainnet puts out {1 + len(rest)} tensors: pass loss=, a function of all of them and y"
        )
    if in_last and not in_second:  # as language models have it
        return lambda out: cross_entropy(first_tensor(out).flatten(0, -2), y.flatten()) * count, math.log(
            first.shape[-1]
        )
    if in_second and not in_last:
        return lambda out: cross_entropy(first_tensor(out), y) * count, math.log(first.shape[1])
    if isinstance(y, Tensor) and y.is_floating_point() and y.shape == first.shape:
        return lambda out: mse_loss(first_tensor(out), y.to(first)) * count, None
    raise HyperfanError(
        f"the loss is not known for an output of shape {tuple(first.shape)} and this y: pass loss=, a function of the "
        "output and y that returns the mean loss"
    )


def _scalar(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        seen = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise HyperfanError(f"loss= returned {seen}: it should return one tensor, the mean loss over the inputs")
    return loss.reshape(())


def _noise(subject: Subject) -> dict[str, float]:
    """The share of noise in each tensor's mean square, from two draws."""
    torch.manual_seed(SEED + 2)
    with torch.no_grad():
        a, b = subject.generate(noise=True), subject.generate(noise=True)
    shares = {}
    for name in a:
        noise, both = square(a[name] - b[name]) / 2, (square(a[name]) + square(b[name])) / 2
        if 0 < noise < math.inf:
            shares[name] = noise / both
    return shares
