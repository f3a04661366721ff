"""The factors that bring every layer to its target, found layer by layer.

After Mishkin & Matas, *All you need is a good init*, ICLR 2016: in forward order, each generated weight is scaled so
that its layer puts out the mean square that it should. The output itself is corrected on the way, so that the layers
behind it see what they will see, and one pass is enough.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from hyperfan.errors import CallError
from hyperfan.mainnet.spec import qualified_name
from hyperfan.probe.hypernet_subject import HyperNetSubject
from hyperfan.probe.moments import mean_square
from hyperfan.probe.recorder import bias_shape, layer_hooks, layers_with_weights, projections, puts_out_sums, weights_of
from hyperfan.probe.targets import Targets

TOLERANCE = 0.1
"""Within a tenth of its target, a layer is on target."""


def output_targets(subject: HyperNetSubject, targets: Targets) -> dict[str, float]:
    """The mean square that the layer of each generated weight should put out; tied weights have several layers."""
    tied = {t.name for t in subject.generated if t.aliases}
    return {name: t.layer_output for name, t in targets.items() if t.layer_output and name not in tied}


def correct_layers(subject: HyperNetSubject, targets: Targets) -> dict[str, float]:
    """The factor for each tensor that is off, over draws; in a draw that is on target it counts as 1."""
    each = [_correct_draw(subject, targets, generated) for generated in subject.draws()]
    means = {n: math.exp(sum(math.log(f[n]) for f in each) / len(each)) for n in each[0]}
    return {name: factor for name, factor in means.items() if factor != 1}


def _correct_draw(subject: HyperNetSubject, targets: Targets, generated: Mapping[str, Tensor]) -> dict[str, float]:
    """Run a pass in which every layer is corrected before the next reads it."""
    corrector = _Corrector(output_targets(subject, targets), set(targets))
    with layer_hooks(layers_with_weights(subject.module), corrector.after, corrector.before_attention):
        subject.run(generated)
    return corrector.factors


class _Corrector:
    """Hooks that correct layers, and the factors they find."""

    def __init__(self, targets: Mapping[str, float], generated: set[str]) -> None:
        self.factors: dict[str, float] = {}
        self._targets, self._generated = targets, generated

    def after(self, path: str, module: nn.Module, _inputs: Any, output: Any) -> Any:
        """Correct what a layer puts out."""
        layer, weights = module, weights_of(module)
        if isinstance(module, nn.MultiheadAttention):
            layer, weights = module.out_proj, ("out_proj.weight",)
        if len(weights) != 1 or not puts_out_sums(module):
            return None
        weight = qualified_name(path, weights[0])
        if weight not in self._targets:
            return None
        values = output[0] if isinstance(output, tuple) else output
        bias = self._plain_bias(layer._parameters.get("bias"), layer, weight, values)
        if weight not in self.factors:
            self._choose_factor(weight, values, bias)
        corrected = (values - bias) * self.factors[weight] + bias
        return (corrected, *output[1:]) if isinstance(output, tuple) else corrected

    def before_attention(
        self, path: str, module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Correct the input projections of an attention, which are never put out."""
        values, names = projections(module, args, kwargs)
        weight = qualified_name(path, names[0])
        if len(names) > 1 or weight not in self._targets or weight in self.factors:
            return
        self._choose_factor(weight, values, self._plain_bias(module.in_proj_bias, module, weight, values))
        # In place of the tensors of this pass; the skeleton puts the mainnet's own back.
        for local in ("in_proj_weight", "in_proj_bias"):
            factor, held = self.factors.get(qualified_name(path, local)), module._parameters[local]
            if factor is not None and held is not None:
                module._parameters[local] = cast(nn.Parameter, held * factor)

    def _plain_bias(self, bias: Tensor | None, layer: nn.Module, weight: str, output: Tensor) -> Tensor:
        """The layer's plain bias, shaped to fit its output; zero where it is generated, and scaled with the weight."""
        if bias is None or _bias_beside(weight) in self._generated:
            return torch.zeros((), dtype=output.dtype, device=output.device)
        return bias.detach().reshape(bias_shape(layer))

    def _choose_factor(self, weight: str, output: Tensor, bias: Tensor) -> None:
        """Choose the factor that brings the output to its target, or 1 if it is there."""
        target = self._targets[weight]
        on_target = abs(mean_square(output) / target - 1) <= TOLERANCE
        self.factors[weight] = 1.0 if on_target else _solve(weight, output - bias, bias, target)
        if _bias_beside(weight) in self._generated:
            self.factors[_bias_beside(weight)] = self.factors[weight]


def _bias_beside(weight: str) -> str:
    return weight.removesuffix("weight") + "bias"


def _solve(weight: str, u: Tensor, bias: Tensor, target: float) -> float:
    """The f for which f·u + bias has the target as its mean square."""
    v, b = u.double(), bias.double().expand_as(u)
    of_bias = b.square().mean().item()
    if of_bias >= target:
        raise CallError(
            f"the plain bias beside '{weight}' alone has a mean square of {of_bias:.3g}, and the layer should have "
            f"{target:.3g}: start the bias at 0"
        )
    a, cross = v.square().mean().item(), (v * b).mean().item()
    return (math.sqrt(cross**2 + a * (target - of_bias)) - cross) / a
