"""The variance ``v`` that a generated tensor should have: the one that a good classical init would give it.

Functions of weights take the gain as an argument, because the two readings of the theory place it differently:
the paper puts ReLU's 2 on the layer *before* the ReLU (``output`` = 2, ``consumed`` = 1), the exact reading puts
1/E[f²] on the layer that *consumes* f (``output`` = 1, ``consumed`` = 1/gain).
"""

import math


def fan_in_weight(fan_in: float, gain: float = 1.0, bias_share: float = 0.0) -> float:
    """Weight variance that keeps the forward pass: fan_in · v · E[x²] = 1 − bias_share.

    So v = gain·(1 − bias_share)/fan_in.
    """
    return gain * (1 - bias_share) / fan_in


def fan_in_bias(output: float = 1.0, bias_share: float = 0.5) -> float:
    """Bias variance that carries its share of the output's second moment."""
    return output * bias_share


def fan_out_weight(fan_out: float, gain: float = 1.0) -> float:
    """Weight variance that keeps the backward pass: fan_out · v · E[f′²] = 1, so v = gain/fan_out.

    Biases play no part in the mainnet's backward pass.
    """
    return gain / fan_out


def fan_out_bias(fan_in: float, weight: float, consumed: float = 1.0, output: float = 1.0) -> float:
    """Bias variance that fills up the output's second moment beside weights of variance ``weight``; never negative.

    With ``weight = 2^ReLU/fan_out`` this is the paper's 2^ReLU·(1 − d_j/d_i): the receptive field cancels.
    """
    left = output - fan_in * weight * consumed
    return left if left > 1e-9 * output else 0.0  # a rounding error is not a variance


def sine_entry(frequency: float, fan_in: float, reads_inputs: bool) -> float:
    """Second moment that a layer's output z should have beside sin(ω·z), as in SIREN (Sitzmann et al. 2020).

    Kept at q from layer to layer, it lets the gradient's second moment grow by s·coth(s), s = ω²·q, in each of them:
    900 times for ω = 30 and q = 1. So q = 1/ω², where that is 1.3; for the layer that reads the last sine too, so that
    all weights have one scale, and one learning rate of Adam suits them. The first layer reads coordinates, and its ω·z
    are the frequencies that the net begins with: its weights have the variance of U(−1/fan_in, 1/fan_in), and ω sets
    the range.

    >>> sine_entry(10, 256, reads_inputs=False), sine_entry(10, 2, reads_inputs=True) * 6, sine_entry(1, 2, True)
    (0.01, 1.0, 1.0)
    """
    return 1 / (3 * fan_in) if reads_inputs and frequency > 1 else frequency**-2


SINE_PHASES = "phases of a sine, 1/(3·fan_in)"
"""The equation of :func:`sine_phases`, in words."""


def sine_phases(fan_in: float) -> float:
    """Variance of the bias of a layer beside sin(ω·z), its phase: as torch draws it, and SIREN leaves it."""
    return 1 / (3 * fan_in)


def harmonic(a: float, b: float) -> float:
    """Harmonic mean 2/(1/a + 1/b); of 1/d_j and 1/d_i it is Glorot's 2/(d_j + d_i).

    >>> harmonic(1 / 300, 1 / 100) == 2 / 400
    True
    """
    return 2 * a * b / (a + b) if a and b else 0.0


def geometric(a: float, b: float) -> float:
    """Geometric mean √(a·b)."""
    return math.sqrt(a * b)


def arithmetic(a: float, b: float) -> float:
    """Arithmetic mean (a + b)/2."""
    return (a + b) / 2


def residual_share(blocks: int) -> float:
    """Branch variance s² for so many blocks y = x + F(x), or none: the total (1 + s²)^blocks stays below e.

    >>> residual_share(64), residual_share(0)
    (0.015625, 1.0)
    """
    return 1 / blocks if blocks else 1.0
