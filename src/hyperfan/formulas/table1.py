"""Table 1 of Chang, Flokas & Lipson (2020), one function per cell, to the letter.

``d_i`` and ``d_j`` are channel counts, ``d_k`` and ``d_l`` widths of the code, ``receptive`` the kernel's positions.
"""

from hyperfan.formulas import targets
from hyperfan.formulas.heads import head_variance


def hyperfan_in_weight(
    d_j: float, d_k: int, var_e: float = 1.0, *, relu: bool = False, hbias: bool = False, receptive: int = 1
) -> float:
    """2^ReLU / (2^HBias · d_j · d_k · Var(e)), over the receptive field.

    >>> hyperfan_in_weight(d_j=500, d_k=50)
    4e-05
    """
    share = 0.5 if hbias else 0.0
    return head_variance(targets.fan_in_weight(d_j * receptive, 2.0**relu, share), d_k * var_e)


def hyperfan_in_bias(d_l: int, var_e: float = 1.0, *, relu: bool = False) -> float:
    """2^ReLU / (2 · d_l · Var(e2))."""
    return head_variance(targets.fan_in_bias(2.0**relu), d_l * var_e)


def hyperfan_out_weight(d_i: float, d_k: int, var_e: float = 1.0, *, relu: bool = False, receptive: int = 1) -> float:
    """2^ReLU / (d_i · d_k · Var(e)), over the receptive field."""
    return head_variance(targets.fan_out_weight(d_i * receptive, 2.0**relu), d_k * var_e)


def hyperfan_out_bias(d_i: float, d_j: float, d_l: int, var_e: float = 1.0, *, relu: bool = False) -> float:
    """max(2^ReLU · (1 − d_j/d_i) / (d_l · Var(e2)), 0); the receptive field plays no part."""
    gain = 2.0**relu
    return head_variance(targets.fan_out_bias(d_j, gain / d_i, output=gain), d_l * var_e)
