"""Weights that change at every time step: the example, beside a HyperLSTM written by hand."""

import importlib.util
import itertools
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from checks import assert_close

PATH = Path(__file__).parents[2] / "examples" / "hyperlstm.py"
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("hyperlstm", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ByHand(nn.Module):
    """The same, with batched products and the parameters of the other."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        model, heads, cell = self.model, self.model.net.heads, self.model.net.mainnet
        h = c = x.new_zeros(len(x), model.hidden)
        small, outputs = None, []
        for step in x.unbind(1):
            small = model.small(torch.cat([step, h], 1), small)
            gates = 0
            for name, value, bias in (("weight_ih", step, cell.bias_ih), ("weight_hh", h, cell.bias_hh)):
                head = heads.head(f"/{name}")
                weight = torch.addmm(head.bias, small[0], head.weight).view(len(x), 4 * model.hidden, -1)
                gates = gates + torch.baddbmm(bias, value.unsqueeze(1), weight.mT).squeeze(1)
            i, f, g, o = gates.chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


class Products(TorchDispatchMode):
    """Counts products of matrices."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in PRODUCTS
        return func(*args, **(kwargs or {}))


def saved_and_products(model, x):
    """Bytes that are kept for the backward pass beyond parameters, and products of matrices, of one forward pass."""
    saved = {}

    def note(t):
        saved[t.untyped_storage().data_ptr()] = t  # held, so that no two are at one address
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t), Products() as products:
        model(x)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    return sum(t.untyped_storage().nbytes() for at, t in saved.items() if at not in own), products.count


def test_equals_code_by_hand_with_gradients(example):
    torch.manual_seed(0)
    model = example.HyperLSTM(3, 5).double()
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    results = []
    for net in (model, ByHand(model)):
        out = net(x)
        results.append((out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))))
    for a, b in zip(*results, strict=True):
        assert_close(a, b)
    assert set(model.net.per_sample.mixing.values()) == {None}


@pytest.mark.parametrize("hidden", [5, 40])
def test_memory_and_products_are_those_of_code_by_hand(example, hidden):
    torch.manual_seed(0)
    model = example.HyperLSTM(3, hidden)
    model(torch.randn(4, 2, 3))  # learns the orders
    costs = {}
    for name, net in (("ours", model), ("by hand", ByHand(model))):
        each = [saved_and_products(net, torch.randn(4, steps, 3)) for steps in (4, 8, 12)]
        growth = [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(each)]
        assert growth[0] == growth[1]  # the same for every step
        costs[name] = growth[0]
    codes = 4 * 4 * 2 * 8 * 4  # bytes: steps, samples, tensors, code, each with its tensor's scale
    assert costs["ours"][0] <= costs["by hand"][0] + codes
    assert costs["ours"][1] <= costs["by hand"][1] + 4  # a head run from its codes needs one more, for the base


def test_the_example_learns(example):
    torch.manual_seed(0)
    losses = example.train(nn.Sequential(example.HyperLSTM(2, 8), nn.Linear(8, 2)), steps=50, lr=2e-2, length=4)
    assert len(losses) == 50
    assert sum(losses[-5:]) / 5 < 0.3 < 0.6 < losses[0]  # guessing has ln 2
