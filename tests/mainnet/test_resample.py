"""What reading a mainnet holds in memory."""

import torch
from torch import nn

from hyperfan.mainnet import read
from hyperfan.mainnet.gains import grid
from hyperfan.mainnet.resample import Resampler


def made_in(monkeypatch, depth):
    """How many different tensors of samples are held while a net of so many blocks is read."""
    made = []
    apply = Resampler.apply

    def counted(self, *args, **kwargs):
        made.append(apply(self, *args, **kwargs))
        return made[-1]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            y = self.layer(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
            return y * torch.sigmoid(1.7 * y)

    monkeypatch.setattr(Resampler, "apply", counted)
    read(nn.Sequential(*[Block() for _ in range(depth)]), torch.randn(2, 8))
    monkeypatch.undo()
    assert all(x is None or x.shape == grid().shape for x in made)
    return len({id(x) for x in made})


def test_samples_do_not_grow_with_depth(monkeypatch):
    assert made_in(monkeypatch, 2) == made_in(monkeypatch, 6) > 3


def test_functions_that_differ_in_a_number_or_write_in_place_are_told_apart():
    resampler = Resampler()
    three = [resampler.apply(torch.mul, grid(), factor) for factor in (torch.tensor(2.0), 3.0, torch.tensor(2.0))]
    assert three[0] is three[2]
    assert torch.equal(three[1], grid() * 3)
    before = grid().detach().clone()
    assert torch.equal(resampler.apply(torch.Tensor.relu_, grid()), before.relu())
    assert torch.equal(grid(), before)
