"""What the optimisers tell of themselves: their options, and the codes that heads have read."""

import inspect

import pytest
import torch
from torch import nn

import hyperfan as hf


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_options_are_in_the_signature(name):
    shown = inspect.signature(getattr(hf, name)).parameters
    theirs = inspect.signature(getattr(torch.optim, name)).parameters
    assert next(iter(shown)) == "net"
    assert {"params", *theirs} - {"capturable", "differentiable"} <= {*shown}
    for option, p in theirs.items():
        if option in shown and option != "params":
            assert shown[option].default == p.default


@pytest.mark.parametrize("order", ["weights", "codes"])
def test_codes_of_all_samples_count(order):
    net = hf.HyperNet(
        nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5)), hf.Embedding(9, given=True, per="net")
    )
    net.per_sample.choose = lambda sizes: order
    opt = hf.SGD(net, lr=0.1)
    saved = {}
    for samples in (1, 4, 6):
        for _ in range(2):
            net(torch.randn(samples, 6), embedding=torch.randn(samples, 9)).sum().backward()
        assert {row.codes for row in opt.plan.rows} == {samples}
        saved[samples] = sum(row.saved for row in opt.plan.rows)
    assert saved[1] > saved[4] > saved[6] > 0
