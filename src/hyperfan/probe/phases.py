"""Generated biases beside a sine, which are phases: SIREN leaves them as torch draws them, and weights carry all."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from hyperfan.formulas.targets import SINE_PHASES, sine_phases
from hyperfan.probe.moments import mean_square

if TYPE_CHECKING:
    from hyperfan.probe.subject import GeneratedTensor

    Tensors = Mapping[str, GeneratedTensor]


def with_phases(tensors: "Tensors", share: float, made: Mapping[str, Tensor]) -> "Tensors":
    """Give layers beside sin(ω·z) that start as in SIREN its targets, in place of a bias' share of the variance."""
    changed = {}
    for bias in tensors.values() if 0 < share < 1 else ():
        if bias.spec.role != "bias" or bias.reading is None or bias.reading.entry == 1:
            continue  # no sine with a frequency of its own follows
        for name in bias.spec.weights:
            weight = tensors.get(name)
            if weight is None or not weight.target or isinstance(weight.mean, Tensor):
                continue
            total, realised = weight.target / (1 - share), mean_square(made[name].detach())
            if realised > math.sqrt(weight.target * total):  # nearer to all of it
                phases = sine_phases(bias.reading.fan_in)
                output = None if weight.layer_output is None else weight.layer_output + phases
                changed[name] = replace(weight, target=total, layer_output=output, equation="v = gain/fan_in·entry")
                changed[bias.spec.name] = replace(bias, target=phases, equation=SINE_PHASES)
    return {**tensors, **changed}
