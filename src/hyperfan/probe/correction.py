"""The factors that bring every layer to its target, found layer by layer.

After Mishkin & Matas, *All you need is a good init*, ICLR 2016: in forward order, each generated weight is scaled so
that its layer puts out the mean square that it should. The output itself is corrected on the way, so that the layers
behind it see what they will see, and one pass is enough.
"""

import math
from collections.abc import Collection, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from hyperfan.errors import CallError
from hyperfan.mainnet.spec import qualified_name
from hyperfan.probe.hypernet_subject import HyperNetSubject
from hyperfan.probe.moments import mean_square
from hyperfan.probe.recorder import LayerOutput, layer_hooks

TOLERANCE = 0.1
"""Within a tenth of its target, a layer is on target."""


def correct_layers(subject: HyperNetSubject, targets: Mapping[str, float]) -> dict[str, float]:
    """The factor for each tensor that is off, over draws; in a draw that is on target it counts as 1.

    Args:
        subject: the net.
        targets: the mean square that the layer of each generated weight should put out.
    """
    each = []
    for generated in subject.draws():
        corrector = _Corrector(targets, generated.keys())
        with layer_hooks(subject.skeleton.module, corrector.correct):
            subject.run(generated)
        each.append(corrector.factors)
    means = {n: math.exp(sum(math.log(f[n]) for f in each) / len(each)) for n in each[0]}
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
        if bias is not None and beside not in self._generated:
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
