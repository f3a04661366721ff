"""Table 1 of Chang, Flokas & Lipson (2020), one function per cell, to the letter.

``d_i`` and ``d_j`` are channel counts, ``d_k`` and ``d_l`` widths of the code, ``receptive`` the kernel's positions.
"""


def hyperfan_in_weight(
    d_j: float, d_k: int, var_e: float = 1.0, *, relu: bool = False, hbias: bool = False, receptive: int = 1
) -> float:
    """2^ReLU / (2^HBias · d_j · d_k · Var(e)), over the receptive field."""
    return 2**relu / (2**hbias * d_j * d_k * var_e) / receptive


def hyperfan_in_bias(d_l: int, var_e: float = 1.0, *, relu: bool = False) -> float:
    """2^ReLU / (2 · d_l · Var(e2))."""
    return 2**relu / (2 * d_l * var_e)


def hyperfan_out_weight(d_i: float, d_k: int, var_e: float = 1.0, *, relu: bool = False, receptive: int = 1) -> float:
    """2^ReLU / (d_i · d_k · Var(e)), over the receptive field."""
    return 2**relu / (d_i * d_k * var_e) / receptive


def hyperfan_out_bias(d_i: float, d_j: float, d_l: int, var_e: float = 1.0, *, relu: bool = False) -> float:
    """max(2^ReLU · (1 − d_j/d_i) / (d_l · Var(e2)), 0); the receptive field plays no part."""
    return max(2**relu * (1 - d_j / d_i) / (d_l * var_e), 0)
