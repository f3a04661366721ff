"""Recurrent layers put out states of the mean square that is predicted, and those that read them reckon with it."""

import pytest
import torch
from torch import nn

from hyperfan.mainnet import read
from hyperfan.mainnet.recurrent import state_moment

INPUTS, HIDDEN, STEPS, SETTLED = 64, 96, 24, 12
KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn_tanh": nn.RNN,
    "rnn_relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_state_has_the_mean_square_that_is_predicted(name):
    """The state is only nearly independent from step to step, which is worth a few per cent."""
    layer = KINDS[name](INPUTS, HIDDEN, bias=False, batch_first=True)
    for weight in layer.parameters():
        nn.init.normal_(weight, std=(INPUTS + HIDDEN) ** -0.5)
    with torch.no_grad():
        state = layer(torch.randn(64, STEPS, INPUTS))[0][:, SETTLED:]
    assert state.square().mean().item() == pytest.approx(state_moment(name, INPUTS, HIDDEN), rel=0.15)


class Stacked(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layer = nn.LSTM(INPUTS, HIDDEN, 2, **options)
        self.out = nn.Linear(options.get("proj_size", HIDDEN), 3)

    def forward(self, x):
        return self.out(self.layer(x)[0])


def test_what_reads_a_state_starts_larger():
    spec = read(Stacked(), torch.randn(4, 5, INPUTS))
    state = state_moment("lstm", INPUTS, HIDDEN)
    for name in ("out.weight", "layer.weight_ih_l1"):
        assert spec[name].consumes.gains.forward == pytest.approx(1 / state), name
    for name in ("layer.weight_ih_l0", "layer.weight_hh_l0", "layer.weight_hh_l1"):
        assert spec[name].consumes.gains.forward == pytest.approx(1), name


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_a_projection_reads_the_state_and_has_unit_scale():
    spec = read(Stacked(proj_size=16), torch.randn(4, 5, INPUTS))
    assert spec["layer.weight_hr_l0"].consumes.gains.forward > 10
    assert spec["out.weight"].consumes.gains.forward == pytest.approx(1)
