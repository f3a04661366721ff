"""``diagnose``: look into a hypernet before its first step, and say what is wrong with it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.codes.draw import preserved_random_state
from hyperfan.codes.embedding import Task
from hyperfan.errors import HyperfanError
from hyperfan.hypernet import HyperNet
from hyperfan.probe.checks import conditions, growth, mainnet, tensors, training
from hyperfan.probe.coordinates import CoordinateCheck, coordinate_check
from hyperfan.probe.diagnosis import Diagnosis
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.findings import worst_first
from hyperfan.probe.first_step import OptimiserName, first_step
from hyperfan.probe.foreign_subject import ForeignSubject, GenerateFunction
from hyperfan.probe.hypernet_subject import HyperNetSubject
from hyperfan.probe.losses import UserLoss
from hyperfan.probe.subject import Subject

CHECKS = (
    training.left_out,
    training.not_finite,
    training.flat_loss,
    tensors.wrong_scale,
    tensors.dead_heads,
    mainnet.inputs_off_scale,
    conditions.off_scale,
    conditions.not_standardised,
    conditions.alike,
    mainnet.norms,
    tensors.noise,
    mainnet.useless_units,
    mainnet.inputs_alike,
    growth.deviation_from_prediction,
    growth.deviation_from_target,
    training.targets_off_scale,
    training.loss,
    training.rate,
    training.below_epsilon,
    tensors.unrelated,
    conditions.without_effect,
    tensors.unpredicted,
)
"""All checks, in the order of their findings: causes first, then what follows from them."""


@overload
def diagnose(
    net: nn.Module,
    x: Any,
    y: Any = None,
    loss: UserLoss | None = None,
    *,
    generated: GenerateFunction | None = None,
    lr: float | None = None,
    optimiser: OptimiserName | torch.optim.Optimizer = "sgd",
    task: Task | None = None,
    embedding: Tensor | None = None,
    grouped: bool = False,
    shared: bool = False,
) -> Diagnosis: ...


@overload
def diagnose(
    net: Callable[..., Any],
    x: Any = None,
    y: Any = None,
    loss: UserLoss | None = None,
    *,
    generated: GenerateFunction | None = None,
    lr: float | None = None,
    optimiser: OptimiserName | torch.optim.Optimizer = "sgd",
    task: Task | None = None,
    embedding: Tensor | None = None,
    grouped: bool = False,
    shared: bool = False,
    widths: Sequence[int] = ...,
    depths: Sequence[int] = ...,
) -> CoordinateCheck: ...


def diagnose(
    net: nn.Module | Callable[..., Any],
    x: Any = None,
    y: Any = None,
    loss: UserLoss | None = None,
    *,
    generated: GenerateFunction | None = None,
    lr: float | None = None,
    optimiser: OptimiserName | torch.optim.Optimizer = "sgd",
    task: Task | None = None,
    embedding: Tensor | None = None,
    grouped: bool = False,
    shared: bool = False,
    widths: Sequence[int] = (),
    depths: Sequence[int] = (),
) -> Diagnosis | CoordinateCheck:
    """Look into a hypernet as it stands before its first step, and say what is wrong with it.

    Every layer's activations and gradients are compared with those of plain nets that have independent weights of the
    target variances, which is what the theory promises; every generated tensor with its target. The net is left as it
    is, and so are torch's random numbers; of a foreign hypernet that is a module, its buffers too.

    With ``widths`` or ``depths`` it is a coordinate check: a net of every size is made and looked at, and the scale of
    every layer, over that of plain nets, should depend on neither.

    Args:
        net: a :class:`HyperNet`; or any mainnet, with ``generated``. For a coordinate check a function of ``width=``
            and ``depth=``, of those that are varied, that returns such a net, (net, x, y), or a dict of arguments.
        x: inputs, as many as a training batch has: a tensor, a tuple of arguments, or a dict of keyword arguments.
        y: targets of the loss. Without it, gradients are those of the loss that the mainnet returns itself, a tensor of
            one value, or else of a random direction.
        loss: a function of the output and ``y`` that returns the mean loss; by default cross-entropy for classes, mean
            squared error for numbers.
        generated: for a foreign hypernet, a function without arguments that returns the tensors it generates, by their
            names in the mainnet. With a leading batch they are one net for each sample of ``x``, (n, …), or, with
            ``grouped=True``, for each of its groups, (n, batch, …).
        lr: a learning rate to be tried for one step of the optimiser, which is undone.
        optimiser: "sgd", "adam" or "adamw": the optimiser of that step and of the effective rates, with torch's
            defaults and without momentum of earlier steps or weight decay. Or the optimiser itself: then its learning
            rate is tried, and parameters that it does not hold are found.
        task: which row of a table of embeddings to look at, or a tensor with one for each input; the first by default.
        embedding: the embedding, where it is given at the call, or one for each input; by default they are drawn, one
            for each input if there is one for the net and it can run so, else one for all.
        grouped, shared: as at the call of the net: each of many codes has a batch of its own, (codes, batch, …), or all
            have the same inputs, (batch, …). Targets are as the outputs, (codes, batch, …).
        widths, depths: sizes of a coordinate check, which returns a :class:`~hyperfan.probe.CoordinateCheck`.

    >>> import torch, hyperfan as hf
    >>> _ = torch.manual_seed(0)
    >>> mainnet = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> net = hf.HyperNet(mainnet, embedding=16, init="kaiming-fan-in")
    >>> found = hf.diagnose(net, torch.randn(100, 64), torch.randint(10, (100,))).findings[0]
    >>> found.name, found.where
    ('wrong scale of a head', ('0.weight', '2.weight'))
    """
    if widths or depths:
        if isinstance(net, nn.Module):
            raise HyperfanError(
                f"widths= and depths= make nets of several sizes, and this {type(net).__name__} has one: pass a "
                "function, as diagnose(lambda width: HyperNet(mainnet(width), 50), x, y, widths=(64, 128, 256))"
            )
        same = {"x": x, "y": y, "loss": loss, "generated": generated, "lr": lr, "optimiser": optimiser}
        same |= {"task": task, "embedding": embedding, "grouped": grouped, "shared": shared}
        return coordinate_check(net, diagnose, same, widths, depths)
    if not isinstance(net, nn.Module):
        raise HyperfanError(
            f"a {type(net).__name__} is no module: pass a net, or, with a function that makes nets, their sizes, as in "
            "widths=(64, 128, 256)"
        )
    if x is None:
        raise HyperfanError("a diagnosis needs inputs, as many as a training batch has: diagnose(net, x, y)")
    step, built = first_step(optimiser), optimiser if isinstance(optimiser, torch.optim.Optimizer) else None
    if built is not None and lr is None and y is not None:
        lr = max(float(group["lr"]) for group in built.param_groups)
    if lr is not None and not 0 < lr < math.inf:
        raise HyperfanError(f"lr={lr:g}: a learning rate is positive and finite")
    if loss is not None and y is None:
        raise HyperfanError("loss= was given without y=: pass both, as diagnose(net, x, y, loss=…)")
    if torch.is_inference_mode_enabled():
        raise HyperfanError("a diagnosis needs gradients, which torch.inference_mode() rules out: call it outside")
    if shared and generated is not None:
        raise HyperfanError("shared=True is for a HyperNet: expand x, (n, batch, …), and pass grouped=True")
    if shared or (grouped and generated is None):
        x = _of_each_code(x, task if embedding is None else embedding, shared)
    with preserved_random_state():
        subject = _subject(net, x, generated, task, embedding, grouped or shared)
        evidence = Evidence(subject, y, loss, lr, step, built)
        findings = [f for check in CHECKS for f in check(evidence)]
    return replace(evidence.readings, findings=worst_first(findings))


def _of_each_code(x: Any, codes: Task | Tensor | None, shared: bool) -> Any:
    """The inputs of each code, (codes, batch, …)."""
    if not isinstance(codes, Tensor) or not codes.ndim:
        option = "shared" if shared else "grouped"
        raise HyperfanError(f"{option}=True is for many codes: pass embedding= or task= with one for each")
    return pytree.tree_map_only(Tensor, lambda t: t.expand(len(codes), *t.shape) if t.ndim else t, x) if shared else x


def _subject(
    net: nn.Module,
    example: Any,
    generated: GenerateFunction | None,
    task: Task | None,
    embedding: Tensor | None,
    grouped: bool,
) -> Subject:
    if isinstance(net, HyperNet):
        if generated is not None:
            raise HyperfanError("a HyperNet generates its own parameters: leave out generated=")
        return HyperNetSubject(net, example, task, embedding, grouped)
    inside = next((name for name, module in net.named_modules() if isinstance(module, HyperNet)), None)
    if generated is None and inside is not None:
        raise HyperfanError(
            f"{type(net).__name__} is no HyperNet, and holds one: diagnose(net.{inside}, x, y, embedding=…), with "
            "the very arguments that it is called with in there"
        )
    if generated is None:
        raise HyperfanError(
            f"{type(net).__name__} is no HyperNet: pass generated=, a function without arguments that returns the "
            "generated tensors by their names in the mainnet, or build one with hyperfan.HyperNet(mainnet, embedding=…)"
        )
    if not callable(generated):
        raise HyperfanError(f"generated= is a {type(generated).__name__}: pass a function that returns the tensors")
    if task is not None or embedding is not None:
        raise HyperfanError("task= and embedding= belong to a HyperNet; a callable generates what it generates")
    return ForeignSubject(net, example, generated, grouped)
