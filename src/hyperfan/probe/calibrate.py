"""``calibrate_``: bring every layer to its scale by what it does on data, where the analysis does not fit.

After Mishkin & Matas, *All you need is a good init*, ICLR 2016: layer by layer in forward order, each generated weight
is scaled so that its layer puts out the mean square that it should. What a layer puts out is corrected on the way, so
that the layers behind it see what they will see, and one pass is enough.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError, HyperfanError
from hyperfan.hypernet import HyperNet
from hyperfan.probe.checks.scale import OFF
from hyperfan.probe.squares import square
from hyperfan.probe.subject import SEED, OurNet, undisturbed
from hyperfan.probe.theory import Target, targets, twin
from hyperfan.probe.watch import Watch, named, projections, weights_of
from hyperfan.text import number, table

NEAR = 0.1
"""Within a tenth of its target, a layer is on target."""
ROUNDS = 4
"""How often a random net is gone through: what is right for one draw is not for the next."""
DRAWS = 20
"""Plain nets that tell chance from what the analysis misses."""


@dataclass(frozen=True)
class Correction:
    """What was done about one layer.

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
    """What ``calibrate_`` found and changed, in forward order. Prints as a table.

    Args:
        corrections: what was done about each layer.
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
        told = (
            f"{len(self.changed)} of {len(rows)} layers changed"
            if self.changed
            else "nothing changed: on target, or off by chance"
        )
        skipped = f"\nnot measured: {', '.join(self.skipped)}" if self.skipped else ""
        return f"{told}\n{table(['layer', 'weight', 'target', 'before', 'after', 'factor'], rows)}{skipped}"


def calibrate_(net: HyperNet, x: Any, *, task: int | None = None, embedding: Tensor | None = None) -> Calibration:
    """Scale generated weights so that every layer's output has the mean square it should have on these inputs.

    For nets whose analysis does not fit: residual streams without norms, attention, sums of branches, inputs that are
    not standardised. A net is left alone if all its layers are within a tenth of their targets; or, where the theory
    covers every layer, if they are off by no more than plain nets of these widths are by chance. Otherwise each layer
    that is further off is brought to its target, and ``net.plan`` tells the new scales, which ``diagnose`` goes by from
    then on. Call it before training: see :meth:`HyperNet.rescale_`.

    Args:
        net: is changed.
        x: inputs like those to come: a tensor, a tuple of arguments, or a dict of keyword arguments.
        task: for which row of a table of embeddings; the first by default.
        embedding: for which embedding, where it is given at the call.

    >>> import torch, hyperfan as hf
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
    for tensor in pytree.tree_leaves(x):
        if isinstance(tensor, Tensor) and (not tensor.numel() or tensor.isnan().any()):
            raise CallError("x is empty, or holds what is not a number: give inputs like those to come")
    with undisturbed(x), torch.no_grad():
        return _calibrate(net, OurNet(net, x, task, embedding))


def _calibrate(net: HyperNet, subject: OurNet) -> Calibration:
    wanted, made = targets(subject), subject.generate()
    before = after = _measured(subject, wanted, subject.draws())
    _check(before)
    total: dict[str, float] = {}
    if not _fits(subject, wanted, made, before):
        for _ in range(ROUNDS if subject.random else 1):
            factors = _factors(subject, wanted)
            if not factors:
                break
            net.rescale_(factors)
            total = {name: total.get(name, 1.0) * factors.get(name, 1.0) for name in {**total, **factors}}
            subject = subject.renewed(net)
            after = _measured(subject, wanted, subject.draws())
    looked_at = {r.weight for r in before}
    return Calibration(
        tuple(Correction(r.label, r.weight, r.target, before[r], after[r], total.get(r.weight, 1.0)) for r in before),
        tuple(t.name for t in subject.generated if t.role in ("weight", "other") and t.name not in looked_at),
    )


@dataclass(frozen=True)
class _Layer:
    label: str
    weight: str
    target: float


def _measured(
    subject: OurNet, wanted: Mapping[str, Target], draws: Iterable[Mapping[str, Tensor]]
) -> dict[_Layer, float]:
    """The layers that can be calibrated, in forward order, and the mean square that each puts out, over draws."""
    tied = {t.name for t in subject.generated if t.aliases}
    found: dict[_Layer, list[float]] = {}
    for made in draws:
        for label, out in subject.run(made)[1].outputs.items():
            weights = subject.weights_of(out)
            target = wanted[weights[0]].output if len(weights) == 1 and weights[0] in wanted else None
            if target and out.sums and weights[0] not in tied:
                found.setdefault(_Layer(label, weights[0], target), []).append(square(out.values))
    return {layer: sum(squares) / len(squares) for layer, squares in found.items()}


def _check(before: Mapping[_Layer, float]) -> None:
    if not before:
        raise CallError("no layer with a generated weight and a known target ran on these inputs: nothing to calibrate")
    for layer, value in before.items():
        if value == 0:
            raise CallError(f"'{layer.label}' puts out zeros, which no factor mends: see hyperfan.diagnose(net, x)")
        if not math.isfinite(value):
            raise CallError(
                f"'{layer.label}' overflows, so nothing can be measured: call net.reset_parameters() before"
            )


def _fits(
    subject: OurNet,
    wanted: Mapping[str, Target],
    made: Mapping[str, Tensor],
    before: Mapping[_Layer, float],
) -> bool:
    """Whether every layer is on target, or off by no more than plain nets of its widths are by chance."""
    if all(abs(value / r.target - 1) <= NEAR for r, value in before.items()):
        return True
    if any(subject.spec[r.weight].assumed for r in before):
        return False
    for r in before:
        ratio = square(made[r.weight]) / (wanted[r.weight].variance or 1.0)
        if not 1 / OFF <= ratio <= OFF:
            return False
    own = torch.Generator().manual_seed(SEED)
    draws = [_measured(subject, wanted, [twin(subject, wanted, made, own)]) for _ in range(DRAWS)]
    for i, r in enumerate(before, 1):
        ratios = torch.tensor([d[r] / r.target for d in draws], dtype=torch.float64)
        error = 3 * ratios.std().item() / math.sqrt(DRAWS)
        if abs(ratios.mean().item() - 1) > NEAR + error:
            return False
        # Twice the 95 % reach, because there are many layers.
        reach = 4 * ratios.log().std().item() + 2 * math.sqrt(subject.scatter) * i
        if abs(math.log(before[r] / r.target) - ratios.log().mean().item()) > reach:
            return False
    return True


def _factors(subject: OurNet, wanted: Mapping[str, Target]) -> dict[str, float]:
    """For each tensor that is off, over draws; those of a draw that is on target count as 1."""
    each = [_corrected(subject, wanted, made) for made in subject.draws()]
    means = {n: math.exp(sum(math.log(f[n]) for f in each) / len(each)) for n in each[0]}
    return {name: f for name, f in means.items() if f != 1}


def _corrected(subject: OurNet, wanted: Mapping[str, Target], made: Mapping[str, Tensor]) -> dict[str, float]:
    """A pass in which every layer is corrected before the next reads it."""
    pass_ = _Pass(subject, wanted)
    handles = []
    for path, module in subject.module.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            handles.append(module.register_forward_pre_hook(pass_.before_attention(path), with_kwargs=True))
            name = named(path, "out_proj.weight")
            handles.append(module.register_forward_hook(pass_.after(module.out_proj, name)))
        elif len(weights_of(module)) == 1 and Watch.sums(module):
            name = named(path, weights_of(module)[0])
            handles.append(module.register_forward_hook(pass_.after(module, name)))
    try:
        subject.run(made)
    finally:
        for handle in handles:
            handle.remove()
    return pass_.factors


class _Pass:
    """The hooks, and the factors they find."""

    def __init__(self, subject: OurNet, wanted: Mapping[str, Target]) -> None:
        self.factors: dict[str, float] = {}
        tied = {t.name for t in subject.generated if t.aliases}
        self._wanted = {n: t.output for n, t in wanted.items() if t.output and n not in tied}
        self._made = set(wanted)

    def after(self, layer: nn.Module, weight: str) -> Any:
        """Correct what a layer puts out."""

        def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            if weight not in self._wanted:
                return None
            first = output[0] if isinstance(output, tuple) else output
            bias = self._bias(layer._parameters.get("bias"), layer, weight, first)
            if weight not in self.factors:
                self._choose(weight, first, bias)
            corrected = (first - bias) * self.factors[weight] + bias
            return (corrected, *output[1:]) if isinstance(output, tuple) else corrected

        return hook

    def before_attention(self, path: str) -> Any:
        """Correct the input projections of an attention, which are never put out."""

        def hook(module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            made, names = projections(module, args, kwargs)
            weight = named(path, names[0])
            if len(names) > 1 or weight not in self._wanted:
                return
            if weight not in self.factors:
                self._choose(weight, made, self._bias(module.in_proj_bias, module, weight, made))
                # In place of the tensors of this pass; the skeleton puts the mainnet's own back.
                for local in ("in_proj_weight", "in_proj_bias"):
                    factor, held = self.factors.get(named(path, local)), module._parameters[local]
                    if factor is not None and held is not None:
                        module._parameters[local] = cast(nn.Parameter, held * factor)

        return hook

    def _bias(self, bias: Tensor | None, layer: nn.Module, weight: str, output: Tensor) -> Tensor:
        """The layer's plain bias, shaped like its output. One that is generated goes with the weight."""
        if bias is None or weight.removesuffix("weight") + "bias" in self._made:
            return torch.zeros((), dtype=output.dtype, device=output.device)
        places = len(layer.kernel_size) if isinstance(layer, nn.modules.conv._ConvNd) else 0
        return bias.detach().reshape(-1, *[1] * places)

    def _choose(self, weight: str, output: Tensor, bias: Tensor) -> None:
        """The factor that brings the output to its target, or 1 if it is there."""
        target = self._wanted[weight]
        near = abs(square(output) / target - 1) <= NEAR
        self.factors[weight] = 1.0 if near else _factor(weight, output - bias, bias, target)
        beside = weight.removesuffix("weight") + "bias"
        if beside in self._made:
            self.factors[beside] = self.factors[weight]


def _factor(weight: str, u: Tensor, bias: Tensor, target: float) -> float:
    """The f for which f·u + bias has the target as its mean square."""
    v, b = u.double(), bias.double().expand_as(u)
    own = b.square().mean().item()
    if own >= target:
        raise CallError(
            f"the plain bias beside '{weight}' alone has a mean square of {own:.3g}, and the layer should have "
            f"{target:.3g}: start the bias at 0"
        )
    a, cross = v.square().mean().item(), (v * b).mean().item()
    return (math.sqrt(cross**2 + a * (target - own)) - cross) / a
