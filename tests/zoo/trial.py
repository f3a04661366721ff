"""The trial of one net: every check with its number, and the reason where it fails."""

import itertools
import math
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

import hyperfan as hf
from hyperfan.mainnet import TensorSpec, read
from hyperfan.probe.diagnosis import Diagnosis
from hyperfan.probe.evidence import Pass
from hyperfan.probe.hypernet_subject import HyperNetSubject
from hyperfan.probe.moments import mean_square
from zoo.net import Net, first_output

FACTOR = 2.0
"""What the mean square of a layer may be off by."""
DRAWS, MORE_DRAWS, MORE_TWINS = 3, 12, 3
"""Starts over which a layer's ratio is averaged, in logarithms: a layer of 32 units alone is off by chance. Where the
mean of three is off, twelve are taken, and for each of them the gradients of three other plain nets.
"""
EMBEDDING = 16
RATE = 1e-4
CHECKS = ("read", "whole", "pattern", "forward", "gradient", "diagnosis", "step", "freeze", "save")


@dataclass
class Result:
    """What was seen of one net.

    Args:
        passed: check → whether it holds.
        why: check → the reason where it does not, or what is worth to know where it does.
        numbers: worst factor forward and backward, before and after a calibration, and others.
        calibrated: whether forward and gradient hold only after one calibration.
        code: the fingerprint of the code that it was seen with.
    """

    name: str
    weights: int = 0
    generated: int = 0
    passed: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(CHECKS, False))
    why: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    calibrated: bool = False
    seconds: float = 0.0
    code: str = ""

    @property
    def holds(self) -> bool:
        """Whether all checks hold."""
        return all(self.passed.values())

    def to_dict(self) -> dict[str, Any]:
        """The result for a JSON file."""
        return asdict(self)


@dataclass(frozen=True)
class Ratios:
    """The ratio of each layer's mean square to its target, forward, and to the prediction, backward."""

    forward: Mapping[str, float]
    backward: Mapping[str, float]
    alarms: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether every layer is within the factor."""
        return max(worst(self.forward)[1], worst(self.backward)[1]) <= FACTOR


def try_net(name: str, net: Net) -> Result:
    """Try a net; what fails does not keep the other checks from being tried."""
    result, start = Result(name), time.perf_counter()
    unknown: list[TensorSpec] = []
    made: list[hf.HyperNet] = []
    with _attempt(result, "read"):
        unknown = _read(net, result)
    with _attempt(result, "whole"):
        made.append(_whole(net, result, unknown))
    for check in (_pattern, _scales, _step, _freeze, _save) if made else ():
        with _attempt(result, check.__name__.strip("_")):
            check(net, made[0], result)
    result.seconds = time.perf_counter() - start
    return result


@contextmanager
def _attempt(result: Result, check: str) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # whatever a net raises is its result
        check = "forward" if check == "scales" else check
        result.why.setdefault(check, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _read(net: Net, result: Result) -> list[TensorSpec]:
    """The tensors of which it is not known what they do, or what they read."""
    spec = read(net.make(), net.example, warn=False)
    weights = [t for t in spec if t.role == "weight" and not t.hand_set]
    unknown = [t for t in weights if t.consumes is None or t.consumes.gains is None]
    unknown += [t for t in spec if t.role == "other" and t.may_be_weight and not t.hand_set]
    result.weights = len(weights)
    result.passed["read"] = not unknown
    return unknown


def _whole(net: Net, result: Result, unknown: list[TensorSpec]) -> hf.HyperNet:
    """The net, generated as a whole; where something is unknown, it is left out, as one clear line must advise."""
    options: dict[str, Any] = {"example": net.example, **net.declared}
    torch.manual_seed(1)
    message = ""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", hf.HyperfanWarning)
        try:
            made = hf.HyperNet(net.make(), EMBEDDING, **options)
        except hf.HyperfanError as error:
            message, left_out = str(error), {t.name for t in unknown}
            options["generate"] = lambda t: t.role == "weight" and not t.hand_set and t.name not in left_out
            made = hf.HyperNet(net.make(), EMBEDDING, **options)
        message = message or next((str(w.message) for w in raised if w.category is hf.HyperfanWarning), "")
    clear = "\n" not in message and any(t.name in message or t.layer in message for t in unknown)
    if unknown:
        names = ", ".join(t.name for t in unknown[:2]) + (f" and {len(unknown) - 2} more" if unknown[2:] else "")
        result.why["read"] = f"{names}: {message or 'not known, and nothing says so'}"
        result.passed["read"] = clear
        result.numbers["unknown"] = len(unknown)
    result.generated = len(made.generated)
    with torch.no_grad():
        output = first_output(net.call(made))
    result.passed["whole"] = bool(output.isfinite().all())
    return made


def _pattern(net: Net, made: hf.HyperNet, result: Result) -> None:
    pattern = net.pattern or _commonest_end([t.name for t in made.generated])
    some = hf.HyperNet(net.make(), EMBEDDING, generate=pattern, example=net.example).train(net.caches)
    output = net.call(some)
    first_output(output).square().mean().backward()
    moved = any(p.grad is not None and p.grad.abs().sum() > 0 for p in some.heads.parameters())
    result.passed["pattern"] = moved and bool(first_output(output).isfinite().all())
    result.why["pattern"] = f"{pattern} ({len(some.generated)} of {len(made.generated)})"


def _commonest_end(names: list[str]) -> str:
    """A pattern for the weights whose names end alike, most of them."""
    ends = Counter(".".join(name.rsplit(".", 2)[-2:]) for name in names)
    return f"*{ends.most_common(1)[0][0]}"


def _scales(net: Net, made: hf.HyperNet, result: Result) -> None:
    """Forward, gradient and diagnosis: as it starts, or after one calibration."""
    first, second = _looks(net, made, result, DRAWS, 0)
    if not first.within and not second.within:
        first, second = _looks(net, made, result, MORE_DRAWS, MORE_TWINS)
        result.numbers["starts"] = MORE_DRAWS
    result.calibrated = not first.within and second.within
    counted = second if result.calibrated else first
    result.numbers |= {"measured": len(first.forward), "measured gradients": len(first.backward)}
    for check, title in (("forward", "forward"), ("backward", "gradient")):
        (layer, factor), (_, later) = (worst(getattr(r, check)) for r in (first, second))
        result.numbers |= {f"{title} before": factor, f"{title} after": later}
        layer, factor = worst(getattr(counted, check))
        result.passed[title] = factor <= FACTOR
        if factor > FACTOR:
            result.why[title] = f"{layer} has {getattr(counted, check).get(layer, math.nan):.3g} of it"
    result.passed["diagnosis"] = not counted.alarms
    if counted.alarms:
        result.why["diagnosis"] = "; ".join(counted.alarms[:3])
    if not result.calibrated:
        made.reset_parameters()


def _looks(net: Net, made: hf.HyperNet, result: Result, draws: int, twins: int) -> tuple[Ratios, Ratios]:
    """What is seen of several starts, and of the same after a calibration."""
    before, after = [], []
    for seed in range(draws):
        torch.manual_seed(seed)
        made.reset_parameters()
        before.append((_diagnose(net, made), _gradients_of_twins(net, made, seed, twins)))
        with _attempt(result, "calibrate"):
            hf.calibrate_(made, net.example)
            after.append((_diagnose(net, made), _gradients_of_twins(net, made, seed, twins)))
    first = _ratios(made, before)
    return first, _ratios(made, after) if after else first


def _gradients_of_twins(net: Net, made: hf.HyperNet, seed: int, count: int) -> dict[str, float]:
    """The geometric mean of each layer's gradient over plain nets at the target variances, others for each seed."""
    if not count:
        return {}
    subject = HyperNetSubject(made, net.example, None, None)
    with torch.no_grad():
        y = net.targets(net.call(made))
    inputs, drawn = len(subject.inputs[0]), subject.twins(subject.generate(), (seed + 1) * count)
    found: dict[str, list[float]] = {}
    for twin in itertools.islice(drawn, seed * count, None):
        for layer, gradient in Pass(subject, twin, lambda out: net.mean_loss(out, y) * inputs).gradients.items():
            found.setdefault(layer, []).append(mean_square(gradient))
    return _means(found)


def _diagnose(net: Net, made: hf.HyperNet) -> Diagnosis:
    with torch.no_grad():
        y = net.targets(net.call(made))
    return hf.diagnose(made, net.example, y, net.mean_loss)


def _ratios(made: hf.HyperNet, seen: list[tuple[Diagnosis, dict[str, float]]]) -> Ratios:
    """The geometric mean over starts of each layer's ratios, and the findings that are more than notes."""
    forward: dict[str, list[float]] = {}
    backward: dict[str, list[float]] = {}
    alarms: dict[str, None] = {}
    for i, (diagnosis, predicted) in enumerate(seen):
        variances = {t.tensor: t.target for t in diagnosis.tensors}
        for r in diagnosis.layers:
            if not r.generated:
                continue
            target = _target(made, r.layer.partition(" (call")[0], r.weights, r.target, variances)
            if target:
                forward.setdefault(r.layer, []).append(r.measured.value / target)
            wanted = predicted.get(r.layer, r.predicted_gradient.value if r.predicted_gradient else 0.0)
            if r.measured_gradient and wanted > 0:
                backward.setdefault(r.layer, []).append(r.measured_gradient.value / wanted)
        for f in diagnosis.findings:
            if f.severity != "note" and i < DRAWS:
                alarms[f"{f.name}: {f.evidence}"] = None
    return Ratios(_means(forward), _means(backward), tuple(alarms))


def _target(
    made: hf.HyperNet, layer: str, weights: tuple[str, ...], target: float | None, variances: Mapping[str, float | None]
) -> float | None:
    """Of a tied table that a layer uses as its weight, the look-up has the variance of that weight."""
    t = made.spec[weights[0]] if len(weights) == 1 else None
    if t is not None and t.aliases and layer != t.layer and isinstance(_module(made, layer), nn.Embedding):
        return variances.get(t.name)
    return target


def _module(made: hf.HyperNet, path: str) -> nn.Module | None:
    try:
        return made.mainnet.get_submodule(path)
    except AttributeError:
        return None


def _means(ratios: Mapping[str, list[float]]) -> dict[str, float]:
    def mean(values: list[float]) -> float:
        logs = [math.log(v) if 0 < v < math.inf else math.inf for v in values]
        total = sum(logs) / len(logs)
        return math.exp(total) if total < 700 else math.inf

    return {layer: mean(values) for layer, values in ratios.items()}


def worst(ratios: Mapping[str, float]) -> tuple[str, float]:
    """The layer that is furthest off, and its factor; infinite if there is no layer."""

    def factor(layer: str) -> float:
        return max(ratios[layer], 1 / ratios[layer]) if ratios[layer] else math.inf

    layer = max(ratios, key=factor, default="no layer")
    return (layer, factor(layer)) if ratios else (layer, math.inf)


def _step(net: Net, made: hf.HyperNet, result: Result) -> None:
    """One step of AdamW, norms with the statistics of the batch, no dropout."""
    made.train(net.caches)
    for module in made.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase):
            module.train()
    with torch.no_grad():
        y = net.targets(net.call(made))
    optimiser = hf.AdamW(made, lr=RATE)
    losses = []
    for _ in range(2):
        loss = net.mean_loss(net.call(made), y)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        if len(losses) == 1:
            optimiser.step()
    made.eval()
    result.numbers |= {"loss before": losses[0], "loss after": losses[1]}
    result.passed["step"] = losses[1] < losses[0]
    if not result.passed["step"]:
        result.why["step"] = f"{losses[0]:.5g} became {losses[1]:.5g}"


@torch.no_grad()
def _freeze(net: Net, made: hf.HyperNet, result: Result) -> None:
    _equal("freeze", net, made, made.freeze, result)


@torch.no_grad()
def _save(net: Net, made: hf.HyperNet, result: Result) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder, overwrite=True)
        _equal("save", net, made, lambda: hf.HyperNet.from_pretrained(folder, net.make()).eval(), result)


def _equal(check: str, net: Net, made: hf.HyperNet, other: Callable[[], nn.Module], result: Result) -> None:
    """Whether another module puts out the same, to the rounding of a float."""
    wanted, found = first_output(net.call(made)), first_output(net.call(other()))
    off = ((wanted - found).abs().max() / wanted.abs().max()).item()
    result.passed[check] = off <= 1e-5
    if off > 1e-5:
        result.why[check] = f"off by {off:.2g} of the largest value"
