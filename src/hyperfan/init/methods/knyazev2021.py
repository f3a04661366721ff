"""Knyazev, Drozdzal, Taylor & Romero Soriano, *Parameter Prediction for Unseen Deep Architectures*, NeurIPS 2021
(GHN-2), and Knyazev, Hwang & Lacoste-Julien, *Can We Scale Transformers to Predict Parameters of Diverse ImageNet
Models?*, ICML 2023 (GHN-3): the normalisation of predicted parameters by fan-in.

One decoder makes the tensors of all layers, p, and each weight is W = √(2/fan_in)·p: a fixed factor that belongs to
the tensor, during training too, so that a step on the decoder moves every layer in proportion to its scale. That is
what hyperfan's shared heads do with their ``scale``. What differs is the variance of p. GHN-2 leaves its decoder as
torch draws it, Var(H) = 1/(3·d_k), so that Var(W) = 2/fan_in · ‖h‖²/(3·d_k), and GHN-3 divides the decoder's last
layer by 5, against losses that are not a number; hyperfan-in divides by the ‖h‖² that codes have. A predicted bias is
tanh(0.2·p), which is 0.2·p at the start.

Use them to repeat those papers; hyperfan-in with shared heads has the same structure at the right scale.

Left out: their factor 1 in place of 2 for depthwise convolutions and for kernels that are wider than high, the bounds
that tanh sets, and the scales of norms, 2·sigmoid(p/2), which start at 1 here as there.
"""

import math

from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register

BIAS_SLOPE = 0.2
"""The slope of tanh(0.2·p) at 0."""


def normalised(read: Reading, factor: float = 1.0) -> Aim:
    """A head as torch draws it, times a factor, and each tensor divided by its fan-in."""
    scale = BIAS_SLOPE if read.role == "bias" else math.sqrt(2 / read.fan_in)
    equation = "Var(H) = factor²/(3·d_k), W = " + ("0.2·p" if read.role == "bias" else "√(2/fan_in)·p")
    return Aim(equation, head=lambda fans: factor**2 / (3 * fans.fan_in), factor=scale)


for _name, _paper, _factor in (
    ("knyazev2021", "Knyazev, Drozdzal, Taylor & Romero Soriano 2021", 1.0),
    ("knyazev2023", "Knyazev, Hwang & Lacoste-Julien 2023", 0.2),
):
    _summary = f"GHN-{2 if _factor == 1 else 3}: torch's default times {_factor:g}, each weight times √(2/fan_in)"
    register(Method(_name, _paper, _summary, normalised, {"factor": _factor}, needs_nonlinearity=False))
