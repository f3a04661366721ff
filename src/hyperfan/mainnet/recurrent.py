"""Recurrent layers: the mean square of the state that they put out, once it has settled.

With gates σ and a candidate tanh, all of pre-activations z ~ N(0, q) that are independent from step to step,

    GRU   h ← (1 − σ)·h̃ + σ·h                     E[h²] = E[σ²]·E[tanh²] / (1 − E[σ²])
    LSTM  c ← σ·c + σ·tanh,   h = σ·tanh(c)        E[c²] likewise, and E[h²] = E[σ²]·E[tanh(c)²]

The pre-activation sums inputs of unit mean square, and the state, by weights of variance 1/(inputs + hidden), so q is
less than 1: q = (inputs + hidden·E[h²]) / (inputs + hidden). Both hold at once; for an LSTM E[h²] is near 0.02.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from hyperfan.mainnet.gains import ACTIVATION_FUNCTIONS, grid, named_curve
from hyperfan.mainnet.resample import Resampler
from hyperfan.mainnet.trails import Trail, layer_output

_ROUNDS = 50
"""Rounds of a fixed-point iteration that halves its error, or better, in each."""


def state_trail(node: int, name: str, weights: Mapping[str, Sequence[int]], read: Trail) -> Trail:
    """The state of a recurrent function of torch, as a tanh (or ReLU) with the mean square that gates leave of it.

    Args:
        node: of the trail.
        name: of the function.
        weights: the shapes of its weights.
        read: what it reads.
    """
    inputs, hidden = (next((s[1] for w, s in weights.items() if key in w), 1) for key in ("weight_ih", "weight_hh"))
    inner = _inner_function(name)
    scale = math.sqrt(state_moment(name, inputs, hidden) / _moment(inner, 1.0))
    resampler = Resampler()
    samples = resampler.apply(torch.mul, resampler.apply(ACTIVATION_FUNCTIONS[inner], grid()), scale)
    out = replace(layer_output(node, "", [read]), sources=frozenset(weights), has_source_scale=False)
    return out.apply(inner, samples)


def state_moment(name: str, inputs: int, hidden: int) -> float:
    """The mean square of the state of a recurrent function of torch, with so many inputs and hidden units."""
    q = 1.0
    for _ in range(_ROUNDS):
        q = (inputs + hidden * _state_at(name, q)) / (inputs + hidden)
    return _state_at(name, q)


def _inner_function(name: str) -> str:
    """The function that makes the state's candidate, or the state itself."""
    return "relu" if "relu" in name else "tanh"


def _state_at(name: str, q: float) -> float:
    candidate = _moment(_inner_function(name), q)
    if name.startswith("rnn"):
        return candidate
    gate = _moment("sigmoid", q)
    settled = gate * candidate / (1 - gate)
    return settled if name.startswith("gru") else gate * _moment("tanh", settled)


def _moment(name: str, q: float) -> float:
    """E[f(z)²] for z ~ N(0, q)."""
    return 1 / named_curve(name).at(q).forward
