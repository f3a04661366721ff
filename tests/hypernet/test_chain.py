"""A mainnet that is a chain of torch's layers runs without its modules, and notices whatever makes it another."""

import contextlib

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import hyperfan as hf
from checks import assert_close
from hyperfan.mainnet.chain import ELEMENTWISE, Chain, read_chain

N = 3


def build(mainnet=None, **kwargs):
    torch.manual_seed(0)
    mainnet = mainnet or nn.Sequential(
        nn.Linear(6, 5), nn.Sequential(nn.Tanh(), nn.Linear(5, 6, bias=False)), nn.GELU()
    )
    net = hf.HyperNet(
        mainnet.double(), hf.Embedding(4, given=True, per="net"), nonlinearity="tanh", trunk=(8,), **kwargs
    )
    return net, torch.randn(N, 2, 6).double(), torch.randn(N, 4).double()


@pytest.fixture
def runs(monkeypatch):
    """How often a chain was run."""
    seen = []
    run = Chain.run
    monkeypatch.setattr(Chain, "run", lambda *args: (seen.append(args), run(*args))[1])
    return seen


def outputs(net, x, e):
    """With one code, and with one for each sample, in three kinds."""
    one = net(x[0], embedding=e[0])
    each = net(x, embedding=e), net(x[:, 0], embedding=e), net(x, embedding=e, grouped=True)
    return [one, *each, net(x[0], embedding=e, shared=True)]


def by_modules(net, x, e):
    """The same by an ordinary module for each code."""
    frozen = [net.freeze(embedding=code) for code in e]
    each = torch.stack([f(part) for f, part in zip(frozen, x, strict=True)])
    rows = torch.stack([f(part[:1]).squeeze(0) for f, part in zip(frozen, x, strict=True)])
    return [each[0], each, rows, each, torch.stack([f(x[0]) for f in frozen])]


@pytest.mark.parametrize("generate", ["weights", "weights+biases", ["0.*"], ["1.*"], ["0.bias"]])
@pytest.mark.parametrize("heads", ["separate", hf.LowRank(2)], ids=str)
def test_a_chain_equals_its_modules(runs, generate, heads):
    net, x, e = build(generate=generate, heads=heads)
    for _ in range(2):
        for seen, expected in zip(outputs(net, x, e), by_modules(net, x, e), strict=True):
            assert_close(seen, expected)
    assert len(runs) == 10


def test_gradients_of_a_chain_are_those_of_its_modules(runs):
    net, x, e = build(generate="weights+biases")
    x.requires_grad_(), e.requires_grad_()
    sources = [x, e, *net.parameters()]
    fast = torch.autograd.grad(sum(out.square().sum() for out in outputs(net, x, e)), sources)
    assert len(runs) == 5
    net.mainnet[1].register_forward_hook(lambda *_: None)
    slow = torch.autograd.grad(sum(out.square().sum() for out in outputs(net, x, e)), sources)
    assert len(runs) == 5
    for a, b in zip(fast, slow, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("kind", ELEMENTWISE, ids=lambda kind: kind.__name__)
def test_layers_that_are_called_elementwise_are(kind):
    torch.manual_seed(0)
    layer, x = kind().double(), 3 * torch.randn(4, 5).double()
    assert_close(layer(x), torch.stack([layer(v) for v in x.flatten()]).view(4, 5))


class Other(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def patch(layer, forward):
    layer.forward = forward


CHANGES = {
    "a replaced layer": lambda net: net.mainnet.__setitem__(2, nn.Softmax(-1)),
    "an added layer": lambda net: net.mainnet.append(nn.Softmax(-1)),
    "an added layer inside": lambda net: net.mainnet[1].append(nn.Softmax(-1)),
    "a layer less": lambda net: net.mainnet.__delitem__(2),
    "another forward": lambda net: patch(net.mainnet[2], lambda x: x.softmax(-1)),
    "another forward of a holder": lambda net: patch(net.mainnet[1], lambda x: x.repeat(*(1,) * (x.dim() - 1), 2)),
    "a hook": lambda net: net.mainnet[1][0].register_forward_hook(lambda m, args, out: 2 * out),
    "a hook before": lambda net: net.mainnet.register_forward_pre_hook(lambda m, args: 2 * args[0]),
    "another class": lambda net: setattr(net.mainnet[0], "__class__", Other),
    "a global hook": lambda net: nn.modules.module.register_module_forward_hook(
        lambda m, args, out: 2 * out if isinstance(m, nn.GELU) else None
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(runs, name):
    net, x, e = build()
    before = outputs(net, x, e)
    runs.clear()
    handle = CHANGES[name](net)
    with contextlib.ExitStack() as stack:
        if isinstance(handle, RemovableHandle):
            stack.callback(handle.remove)
        for _ in range(2):
            seen, expected = outputs(net, x, e), by_modules(net, x, e)
            for a, b, was in zip(seen, expected, before, strict=True):
                assert_close(a, b)
                assert a.shape != was.shape or not torch.allclose(a, was)
    assert bool(runs) == (name == "a layer less")


@pytest.mark.parametrize(
    "mainnet",
    [
        nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Linear(6, 6), nn.Dropout()),
        nn.Sequential(nn.Linear(6, 6), nn.Softmax(-1)),
        nn.Sequential(Other(6, 6)),
        nn.ModuleList([nn.Linear(6, 6)]),
    ],
    ids=str,
)
def test_anything_else_is_no_chain(mainnet):
    assert read_chain(mainnet, []) is None


def test_tied_layers_are_no_chain(runs):
    layer = nn.Linear(6, 6)
    net, x, e = build(nn.Sequential(layer, nn.Tanh(), layer))
    for seen, expected in zip(outputs(net, x, e), by_modules(net, x, e), strict=True):
        assert_close(seen, expected)
    assert not runs


def test_samples_without_rows_are_not_taken_for_features():
    net, _, e = build(nn.Sequential(nn.Linear(N, 2), nn.Tanh(), nn.Linear(2, 1)), generate=["2.weight"])
    with pytest.raises(RuntimeError):
        net(torch.randn(N).double(), embedding=e)
