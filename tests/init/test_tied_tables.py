"""A table that is also the last layer's weight has the scale of that weight, and so has what is added to its rows."""

import pytest
import torch
from torch import nn

import hyperfan as hf

WIDTH = 64


class Words(nn.Module):
    """Tokens, positions or none, a layer, and logits by the table of the tokens."""

    def __init__(self, positions):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(100, WIDTH), nn.Embedding(7, WIDTH) if positions else None
        self.kinds = nn.Embedding(2, WIDTH) if positions else None
        self.layer, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 100, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.kinds(ids % 2) + self.positions(torch.arange(ids.shape[1]))
            x = nn.functional.layer_norm(x, (WIDTH,))
        return self.out(torch.tanh(self.layer(x)))


IDS = torch.randint(0, 100, (8, 7), generator=torch.Generator().manual_seed(0))


def variances(positions, **options):
    net = hf.HyperNet(Words(positions), 16, example=IDS, **options)
    return {row.tensor: row.target for row in net.plan.rows if row.made_by == "head"}


def test_a_layer_that_reads_rows_of_a_tied_table_makes_up_for_their_scale():
    v = variances(positions=False)
    assert WIDTH * v["layer.weight"] * v["tokens.weight"] == pytest.approx(1, rel=1e-3)


def test_rows_that_are_added_have_the_scale_of_the_tied_table():
    """Of one unit each, positions would drown the tokens, the more the wider the net is."""
    v = variances(positions=True)
    assert v["positions.weight"] == v["kinds.weight"] == pytest.approx(v["tokens.weight"])
    assert v["tokens.weight"] < 0.1
    assert variances(positions=True, generate=["positions.weight"]) == {"positions.weight": pytest.approx(1)}
    assert variances(positions=True, fidelity="paper")["positions.weight"] == pytest.approx(1)
