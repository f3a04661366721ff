"""Rules of recurrent layers: written out as linear layers and functions of each element, which have rules of their own.

A cell takes what its input layer made, the state (h,) or (h, c), its weight and its bias, and returns the next state.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperfan.hypernet.batched.mode import Samples, refuse, rule

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State, Any, Any], State]


def lstm_cell(x: Tensor, state: State, weight: Any, bias: Any, projection: Any = None) -> State:
    """Gates for input, forgetting and output, and what is let in."""
    h, c = state
    i, f, g, o = (x + F.linear(h, weight, bias)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h if projection is None else F.linear(h, projection), c


def gru_cell(x: Tensor, state: State, weight: Any, bias: Any) -> State:
    """Gates for resetting and updating."""
    (h,) = state
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), F.linear(h, weight, bias).chunk(3, -1)
    new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return (new + torch.sigmoid(xz + hz) * (h - new),)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Cell:
    return lambda x, state, weight, bias: (activation(x + F.linear(state[0], weight, bias)),)


LAYERS: dict[Any, Callable[..., State]] = {
    torch.lstm: lstm_cell,
    torch.gru: gru_cell,
    torch.rnn_tanh: _plain_cell(torch.tanh),
    torch.rnn_relu: _plain_cell(torch.relu),
}
CELLS: dict[Any, Callable[..., State]] = {
    torch.lstm_cell: lstm_cell,
    torch.gru_cell: gru_cell,
    torch.rnn_tanh_cell: LAYERS[torch.rnn_tanh],
    torch.rnn_relu_cell: LAYERS[torch.rnn_relu],
}


def run_layer(cell: Callable[..., State], x: Tensor, state: State, weights: Sequence[Any], backward: bool) -> Any:
    """A layer over (time, batch, features): its outputs, and the last state."""
    input_weight, weight, *rest = weights
    input_bias, bias, *projection = rest if len(rest) > 1 else (None, None, *rest)
    steps = F.linear(x, input_weight, input_bias).unbind(0)
    made = []
    for step in reversed(steps) if backward else steps:
        state = cell(step, state, weight, bias, *projection)
        made.append(state[0])
    return torch.stack(made[::-1] if backward else made), state


@rule(*LAYERS)
def layers(s: Samples, func: Any, x: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any,
           training: Any, bidirectional: Any, batch_first: Any = None) -> Any:  # fmt: skip
    """Run all layers of a recurrent module, in one direction or both."""
    if batch_first is None or not isinstance(params, (list, tuple)):
        refuse(func)  # sequences that are packed
    states = hx if isinstance(hx, (list, tuple)) else (hx,)
    if not s.any((x, *states, *params)):
        return func(x, hx, params, has_biases, num_layers, dropout, training, bidirectional, batch_first)
    directions = 1 + bool(bidirectional)
    each = len(params) // (num_layers * directions)
    ends: list[State] = []
    with s:
        x = x.transpose(0, 1) if batch_first else x
        for layer in range(num_layers):
            made = []
            for i in range(layer * directions, (layer + 1) * directions):
                start = tuple(state[i] for state in states)
                out, end = run_layer(LAYERS[func], x, start, params[i * each : (i + 1) * each], i % directions == 1)
                made.append(out)
                ends.append(end)
            x = torch.cat(made, -1) if bidirectional else made[0]
            if dropout and training and layer < num_layers - 1:
                x = F.dropout(x, dropout)
        x = x.transpose(0, 1) if batch_first else x
        return x, *(torch.stack(parts) for parts in zip(*ends, strict=True))


@rule(*CELLS)
def one_step(s: Samples, func: Any, x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Run one step of a recurrent cell."""
    state = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    if not s.any((x, *state, w_ih, w_hh, b_ih, b_hh)):
        return func(x, hx, w_ih, w_hh, b_ih, b_hh)
    with s:
        made = CELLS[func](F.linear(x, w_ih, b_ih), state, w_hh, b_hh)
    return made if len(made) > 1 else made[0]
