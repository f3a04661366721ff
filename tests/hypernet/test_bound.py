"""The mainnet itself, called with generated weights; and its attributes, seen through the net."""

import copy
import pickle

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import assert_close


class Mainnet(nn.Module):
    """Has a method beside forward, a property, and names that a net has too."""

    temperature = 2.0
    share = "the mainnet's own"

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.second = self.b

    @property
    def width(self):
        return self.a.out_features

    @property
    def broken(self):
        return self.a.nothing

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))

    def generate(self, x, times):
        for _ in range(times):
            x = torch.cat([self.forward(x), x[..., :1]], -1)
        return x


@pytest.fixture
def net():
    torch.manual_seed(0)
    return hf.HyperNet(Mainnet().double(), hf.Embedding(4, tasks=3, trainable=True), nonlinearity="tanh")


X = torch.randn(5, 3, dtype=torch.float64)


def test_methods_of_the_mainnet_run_with_generated_weights(net):
    with net.bound(task=1) as model:
        assert model is net.mainnet
        out = model.generate(X, times=2)
    assert_close(out, net.freeze(task=1).generate(X, times=2))


def test_gradients_reach_the_hypernet(net):
    with net.bound(task=1) as model:
        model(X).square().sum().backward()
    ours = [p.grad for p in net.parameters()]
    net.zero_grad()
    net(X, task=1).square().sum().backward()
    for a, b in zip(ours, [p.grad for p in net.parameters()], strict=True):
        assert_close(a, b)


def test_nothing_is_changed_outside_of_it(net):
    before = net.state_dict()
    with net.bound(task=0):
        assert list(net.state_dict()) == list(before)
        assert_close(net(X, task=2), net.freeze(task=2)(X))
        with net.bound(task=1) as inner:
            assert_close(inner(X), net.freeze(task=1)(X))
        assert_close(net.mainnet(X), net.freeze(task=0)(X))
    with pytest.raises(TypeError, match="missing"), net.bound(task=0) as model:
        model.generate()
    assert net.mainnet.a.weight is None
    assert net.mainnet.second.weight is None
    assert list(net.state_dict()) == list(before)


def test_it_is_one_net(net):
    with pytest.raises(hf.HyperfanError, match="one task or one embedding"), net.bound(task=torch.tensor([0, 1])):
        pass


@pytest.mark.parametrize(
    ("embedding", "named"),
    [(4, ""), (hf.Embedding(4, given=True), "embedding=…"), (hf.Embedding(4, tasks=2), "task=…")],
)
def test_generate_names_the_condition_that_the_net_takes(embedding, named):
    with pytest.raises(hf.HyperfanError, match=rf"with net.bound\({named}\) as model"):
        hf.HyperNet(nn.Linear(3, 2), embedding).generate(X)


def test_generate_names_bound(net):
    for call in (lambda: net.generate(X, times=5), lambda: net.generate(times=5)):
        with pytest.raises(hf.HyperfanError, match=r"^net.generate\(\) makes weights .* with net.bound\(task=…\)"):
            call()


def test_attributes_that_do_not_clash_are_the_mainnets(net):
    assert (net.width, net.temperature, net.a) == (4, 2.0, net.mainnet.a)
    assert net.share == 1.0
    net = copy.deepcopy(pickle.loads(pickle.dumps(net)))
    assert net.width == 4
    with pytest.raises(AttributeError, match="has no attribute 'nothing', nor has its mainnet, a Mainnet"):
        _ = net.nothing
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nothing'"):
        _ = net.broken  # the property's own error
    with pytest.raises(AttributeError, match=r"'HyperNet' object has no attribute '_nothing'$"):
        _ = net._nothing
