"""``calibrate_``: bring every layer to its scale by what it does on data, where the analysis does not fit.

After Mishkin & Matas, *All you need is a good init*, ICLR 2016: in forward order, each generated weight is scaled so
that its layer puts out the mean square that it should. The output itself is corrected on the way, so that the layers
behind it see what they will see, and one pass is enough.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, cast

import torch
from torch import Tensor, nn

from hyperfan.codes.draw import preserved_random_state
from hyperfan.errors import CallError, HyperfanError
from hyperfan.hypernet import HyperNet
from hyperfan.mainnet.replay import tensors
from hyperfan.mainnet.spec import qualified_name
from hyperfan.probe.checks.tensors import MAX_VARIANCE_RATIO
from hyperfan.probe.hypernet_subject import HyperNetSubject
from hyperfan.probe.layer_output import LayerOutput
from hyperfan.probe.moments import mean_square
from hyperfan.probe.recorder import layer_hooks
from hyperfan.text import number, table

TOLERANCE = 0.1
"""Within a tenth of its target, a layer is on target."""
MAX_ROUNDS = 4
"""Corrections of a random net: what is right for one draw is not for the next."""
CALIBRATION_TWINS = 20
"""Number of twins whose scatter shows what is chance, and what the analysis misses."""


@dataclass(frozen=True)
class Correction:
    """The correction of one layer.

    Args:
        layer: its path.
        weight: the generated tensor.
        target: mean square that its output should have.
        before, after: what it had and has.
        factor: by which the tensor was multiplied; 1 if it was left alone.
    """

    layer: str
    weight: str
    target: float
    before: float
    after: float
    factor: float


@dataclass(frozen=True)
class Calibration:
    """The result of ``calibrate_``, in forward order. Prints as a table.

    Args:
        corrections: one for each layer.
        skipped: generated weights that it cannot measure alone: tied ones, those of recurrent layers and of attentions
            with keys and values of other sizes, those that are used through functions or have no rule.
    """

    corrections: tuple[Correction, ...]
    skipped: tuple[str, ...] = ()

    @property
    def changed(self) -> tuple[str, ...]:
        """The tensors that were multiplied."""
        return tuple(c.weight for c in self.corrections if c.factor != 1)

    def __str__(self) -> str:
        rows = [[c.layer, c.weight, *map(number, (c.target, c.before, c.after, c.factor))] for c in self.corrections]
        summary = "nothing changed: on target, or off by chance"
        if self.changed:
            summary = f"{len(self.changed)} of {len(rows)} layers changed"
        skipped = f"\nnot measured: {', '.join(self.skipped)}" if self.skipped else ""
        return f"{summary}\n{table(['layer', 'weight', 'target', 'before', 'after', 'factor'], rows)}{skipped}"


def calibrate_(net: HyperNet, x: Any, *, task: int | None = None, embedding: Tensor | None = None) -> Calibration:
    """Scale generated weights so that every layer's output has the mean square it should have on these inputs.

    For nets whose analysis does not fit: residual streams without norms, attention, sums of branches, inputs that are
    not standardised. A net is left alone if all its layers are within a tenth of their targets; or, where the theory
    covers every layer, if they are off by no more than plain nets of these widths are by chance. Otherwise each layer
    that is further off is brought to its target, and ``net.plan`` has the new scales, which ``diagnose`` goes by from
    then on. Call it before training: see :meth:`HyperNet.rescale_`.

    Args:
        net: is changed.
        x: inputs like those to come: a tensor, a tuple of arguments, or a dict of keyword arguments.
        task: for which row of a table of embeddings; the first by default.
        embedding: for which embedding, where it is given at the call.

    >>> import torch, hyperfan as hf
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> net = hf.HyperNet(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)), embedding=16)
    >>> hf.calibrate_(net, torch.randn(100, 64)).changed
    ()
    >>> hf.calibrate_(net, 20 * torch.randn(100, 64)).changed
    ('0.weight',)
    """
    if not isinstance(net, HyperNet):
        raise HyperfanError(f"calibrate_ scales the heads of a HyperNet; this is a {type(net).__name__}")
    if net.embeddings.config.given and embedding is None:
        raise CallError("this net's embeddings are given at the call: pass embedding=, one like those to come")
    dimensions = 2 if net.embeddings.config.per == "tensor" else 1
    if embedding is not None and embedding.ndim > dimensions:
        raise CallError(f"calibrate_ looks at one net, and embedding= has {len(embedding)}: pass one of them")
    for tensor in tensors(x):
        if not tensor.numel() or tensor.isnan().any():
            raise CallError("x is empty, or holds what is not a number: give inputs like those to come")
    with preserved_random_state(), torch.no_grad():
        return _calibrate(net, lambda: HyperNetSubject(net, x, task, embedding))


def _calibrate(net: HyperNet, look: Callable[[], HyperNetSubject]) -> Calibration:
    """Correct the net until a look at it shows no layer that is off."""
    subject = look()
    generated = subject.generated.values()
    tied = {t.spec.name for t in generated if t.spec.aliases}  # these have several layers
    wanted = {t.spec.name: t.layer_output for t in generated if t.layer_output and t.spec.name not in tied}
    before = after = _measure(subject, wanted, subject.draws())
    _check(before)
    total: dict[str, float] = {}
    if not _on_target(subject, wanted, before):
        for _ in range(MAX_ROUNDS if subject.random else 1):
            factors = _correct_layers(subject, wanted)
            if not factors:
                break
            net.rescale_(factors)
            total = {name: total.get(name, 1.0) * factors.get(name, 1.0) for name in {**total, **factors}}
            subject = look()
            after = _measure(subject, wanted, subject.draws())
    measured = {weight for _, weight in before}
    return Calibration(
        tuple(
            Correction(*key, wanted[key[1]], before[key], after.get(key, math.nan), total.get(key[1], 1.0))
            for key in before
        ),
        tuple(n for n, t in subject.generated.items() if t.spec.role in ("weight", "other") and n not in measured),
    )


Outputs = Mapping[tuple[str, str], float]
"""Mean squares of layers' outputs, in forward order, by the layer's label and the name of its weight."""


def _measure(subject: HyperNetSubject, wanted: Mapping[str, float], draws: Iterable[Mapping[str, Tensor]]) -> Outputs:
    """The mean square that each layer puts out, over draws, where it can be calibrated."""
    found: dict[tuple[str, str], list[float]] = {}
    for generated in draws:
        for label, out in subject.run(generated)[1].outputs.items():
            weights = subject.weights_of(out)
            if len(weights) == 1 and weights[0] in wanted and out.sums:
                found.setdefault((label, weights[0]), []).append(mean_square(out.values))
    return {key: sum(squares) / len(squares) for key, squares in found.items()}


def _check(before: Outputs) -> None:
    if not before:
        raise CallError("no layer with a generated weight and a known target ran on these inputs: nothing to calibrate")
    for (label, _), value in before.items():
        if value == 0:
            raise CallError(f"'{label}' puts out zeros, which no factor mends: see hyperfan.diagnose(net, x)")
        if not math.isfinite(value):
            raise CallError(f"'{label}' overflows, so nothing can be measured: call net.reset_parameters() before")


def _on_target(subject: HyperNetSubject, wanted: Mapping[str, float], before: Outputs) -> bool:
    """Whether every layer is on target, or off by no more than plain nets of its widths are by chance."""
    if all(abs(value / wanted[weight] - 1) <= TOLERANCE for (_, weight), value in before.items()):
        return True
    generated = subject.generate()
    for _, weight in before:
        ratio = mean_square(generated[weight]) / (subject.generated[weight].target or 1.0)
        if subject.spec[weight].scale_assumed or not 1 / MAX_VARIANCE_RATIO <= ratio <= MAX_VARIANCE_RATIO:
            return False
    spread = max(t.spread for t in subject.generated.values())
    measured = [_measure(subject, wanted, [twin]) for twin in subject.twins(generated, CALIBRATION_TWINS)]
    for i, (key, value) in enumerate(before.items(), 1):
        # An expert may have nothing to do in a twin.
        each = [m[key] / wanted[key[1]] for m in measured if key in m]
        if len(each) < 2:
            return False
        ratios = torch.tensor(each, dtype=torch.float64)
        error = 3 * ratios.std().item() / math.sqrt(len(each))
        if abs(ratios.mean().item() - 1) > TOLERANCE + error:
            return False
        # Twice the 95 % reach, because there are many layers.
        # Chunks whose codes have unequal norms have unequal variances, which a nonlinearity feels to second order.
        reach = 4 * ratios.log().std().item() + (2 * math.sqrt(subject.code_scatter) + spread) * i
        if abs(math.log(value / wanted[key[1]]) - ratios.log().mean().item()) > reach:
            return False
    return True


def _correct_layers(subject: HyperNetSubject, targets: Mapping[str, float]) -> dict[str, float]:
    """The factor for each tensor that is off, over the draws in which its layer ran; on target it counts as 1."""
    each: dict[str, list[float]] = {}
    for generated in subject.draws():
        corrector = _Corrector(targets, generated.keys())
        with layer_hooks(subject.skeleton.module, corrector.correct, subject.layers, subject.found):
            subject.run(generated)
        for name, factor in corrector.factors.items():
            each.setdefault(name, []).append(factor)
    means = {name: geometric_mean(factors) for name, factors in each.items()}
    return {name: factor for name, factor in means.items() if factor != 1}


class _Corrector:
    """Corrects every layer before the next reads it, and has the factors that it found."""

    def __init__(self, targets: Mapping[str, float], generated: Collection[str]) -> None:
        self.factors: dict[str, float] = {}
        self._targets, self._generated = targets, generated

    def correct(self, out: LayerOutput) -> Tensor | None:
        """The corrected output of a layer; ``None`` where there is nothing to correct."""
        weight = qualified_name(out.path, out.weights[0]) if len(out.weights) == 1 and out.sums else ""
        if weight not in self._targets:
            return None
        beside = weight.removesuffix("weight") + "bias"
        owner = out.module.get_submodule(out.weights[0].rpartition(".")[0])
        bias = owner._parameters.get(beside.rpartition(".")[2])
        plain = torch.zeros((), dtype=out.values.dtype, device=out.values.device)
        if bias is not None and out.has_bias and beside not in self._generated:
            plain = bias.detach().reshape(-1, *[1] * out.kernel_dimensions)
        if weight not in self.factors:
            self.factors[weight] = _factor(weight, out.values - plain, plain, self._targets[weight])
            if beside in self._generated:  # it is scaled with the weight
                self.factors[beside] = self.factors[weight]
            if isinstance(owner, nn.MultiheadAttention):
                self._correct_projections(out.path, owner)
        return (out.values - plain) * self.factors[weight] + plain

    def _correct_projections(self, path: str, attention: nn.MultiheadAttention) -> None:
        """Scale the input projections of this pass, which are never put out; the skeleton puts the mainnet's back."""
        for local in ("in_proj_weight", "in_proj_bias"):
            factor, held = self.factors.get(qualified_name(path, local)), attention._parameters[local]
            if factor is not None and held is not None:
                attention._parameters[local] = cast(nn.Parameter, held * factor)


def _factor(weight: str, u: Tensor, bias: Tensor, target: float) -> float:
    """The f for which f·u + bias has the target as its mean square; 1 if it is near enough."""
    if abs(mean_square(u + bias) / target - 1) <= TOLERANCE:
        return 1.0
    v, b = u.double(), bias.double().expand_as(u)
    of_bias = b.square().mean().item()
    if of_bias >= target:
        raise CallError(
            f"the plain bias beside '{weight}' alone has a mean square of {of_bias:.3g}, and the layer should have "
            f"{target:.3g}: start the bias at 0"
        )
    a, cross = v.square().mean().item(), (v * b).mean().item()
    return (math.sqrt(cross**2 + a * (target - of_bias)) - cross) / a
