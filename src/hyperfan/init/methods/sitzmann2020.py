"""Sitzmann, Martel, Bergman, Lindell & Wetzstein, *Implicit Neural Representations with Periodic Activation
Functions*, NeurIPS 2020, and Sitzmann, Rezchikov, Freeman, Tenenbaum & Durand, *Light Field Networks*, NeurIPS 2021:
how their code starts hypernets whose mainnets are neural fields.

2020: Var(H) = 2/d_k · 0.01², Kaiming scaled by 1/100. The bias of a weight's head is U(±1/fan_in) of the *mainnet's*
layer, variance 1/(3·fan_in²), in every layer; that of a bias's head U(±1/d_k). So nearly all is common to all
conditions. In the first layer, which reads coordinates, that is SIREN's own start. In the others SIREN has
2/(fan_in·ω²), which for ω = 30 is the same at fan_in = 150: narrower layers start too large, and wider ones too
small.
2021: Var(H) = 2/d_k · 0.1², and biases as torch draws them, U(±1/√d_k), whatever the mainnet's layer is.

Use them to repeat those papers. ``HyperNet(siren, …, share=0.05, example=coordinates)`` starts every layer at SIREN's
scale, whatever its width, and a share of it is generated.

Both draw H from a normal distribution: ``distribution="normal"``; their biases are uniform. The variant of 2021 in
which the weight of a plain net is multiplied by a generated product of low rank is not here: ``base_op="multiply"``
has another start.
"""

from functools import partial

from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register

KAIMING_GAIN = 2.0


def hyper_init(read: Reading, factor: float = 0.01) -> Aim:
    """Kaiming times a small factor, beside a base that knows the mainnet's layer."""

    def base(fans: Fans) -> float:
        return 1 / (3 * (fans.fan_in if read.role == "bias" else read.fan_in) ** 2)

    equation = "Var(H) = 2·factor²/d_k, Var(β) = 1/(3·d_k²)" if read.role == "bias" else _EQUATION
    return Aim(equation, head=partial(_small, factor=factor), base=base)


def light_field(read: Reading, factor: float = 0.1) -> Aim:
    """Kaiming times a factor, beside a base as torch draws it."""
    equation = "Var(H) = 2·factor²/d_k, Var(β) = 1/(3·d_k)"
    return Aim(equation, head=partial(_small, factor=factor), base=lambda fans: 1 / (3 * fans.fan_in))


def _small(fans: Fans, factor: float) -> float:
    return KAIMING_GAIN * factor**2 / fans.fan_in


_EQUATION = "Var(H) = 2·factor²/d_k, Var(β) = 1/(3·fan_in²)"
for _name, _paper, _aim, _factor in (
    ("sitzmann2020", "Sitzmann et al. 2020", hyper_init, 0.01),
    ("sitzmann2021", "Sitzmann et al. 2021", light_field, 0.1),
):
    _summary = f"neural fields: Kaiming times {_factor:g}, beside the head's bias"
    register(Method(_name, _paper, _summary, _aim, {"factor": _factor}, needs_nonlinearity=False))
