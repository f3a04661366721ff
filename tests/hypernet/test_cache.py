"""In evaluation without gradients the weights are generated once, and anew whenever something changes."""

import copy
import pickle

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import assert_close


def build(embedding=6, **kwargs):
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.BatchNorm1d(4)).double()
    return hf.HyperNet(mainnet, embedding, trunk=(8,), **kwargs).eval()


@pytest.fixture
def x():
    return torch.randn(5, 3, dtype=torch.float64)


def count(net, monkeypatch):
    """How often the heads are asked."""
    calls = []
    forward = net.heads.forward
    monkeypatch.setattr(net.heads, "forward", lambda *a, **k: (calls.append(1), forward(*a, **k))[1])
    return calls


def test_generated_once(monkeypatch, x):
    net = build()
    calls = count(net, monkeypatch)
    with torch.no_grad():
        outs = [net(x) for _ in range(3)]
    assert len(calls) == 1
    assert torch.equal(outs[0], outs[2])
    net(x)  # with gradients
    net.train()(x)
    assert len(calls) == 3


CHANGES = {
    "head": lambda net: net.heads.head("4x3").weight.mul_(1.1),
    "head's bias": lambda net: net.heads.head("4x4").bias.add_(0.1),
    "head through .data": lambda net: net.heads.head("4x3").weight.data.mul_(1.1),
    "new data": lambda net: setattr(net.heads.head("4x3").weight, "data", net.heads.head("4x3").weight * 1.1),
    "trunk": lambda net: net.trunk[0].weight.mul_(1.1),
    "embeddings": lambda net: net.embeddings.weight.mul_(1.1),
    "embeddings through .data": lambda net: net.embeddings.weight.data.mul_(1.1),
    "code scale": lambda net: net.code_scale.mul_(1.1),
    "state_dict": lambda net: net.load_state_dict({k: 1.1 * v if v.is_floating_point() else v
                                                   for k, v in net.state_dict().items()}),
    "reset": lambda net: net.reset_parameters(),
    "a plain parameter": lambda net: net.mainnet.get_parameter("0.bias").add_(1.0),
    "a buffer": lambda net: net.mainnet.get_buffer("3.running_mean").add_(1.0),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_generated_anew_when_something_changes(change, x):
    net = build()
    before = net(x)
    CHANGES[change](net)
    after = net(x)
    with torch.enable_grad():
        expected = net(x).detach()
    assert_close(after, expected)
    assert not torch.allclose(after, before)


@torch.no_grad()
def test_each_task_has_its_own(x):
    net = build(hf.Embedding(6, tasks=2))
    outs = [net(x, task=t) for t in (0, 1, 0)]
    assert torch.equal(outs[0], outs[2])
    assert not torch.allclose(outs[0], outs[1])


@torch.no_grad()
def test_noise_is_not_reused(x):
    net = build(hf.Embedding(6, noise=0.5))
    assert not torch.allclose(net(x, noise=True), net(x, noise=True))
    assert torch.equal(net(x), net(x))


@torch.no_grad()
def test_codes_given_at_the_call_are_not_reused(x):
    net = build(hf.Embedding(6, given=True, per="net"))
    assert not torch.allclose(net(x, embedding=torch.ones(6).double()), net(x, embedding=-torch.ones(6).double()))


def test_training_steps_show(x):
    net = build()
    for opt in (hf.SGD(net, lr=0.1), torch.optim.SGD(net.parameters(), lr=0.1)):
        seen = []
        for _ in range(3):
            with torch.no_grad():
                seen.append(net(x))
            opt.zero_grad()
            net(x).square().sum().backward()
            opt.step()
        assert not torch.allclose(seen[0], seen[1])
        assert not torch.allclose(seen[1], seen[2])


def test_collapsed_training_steps_show(x):
    net = build()
    net.trunk.requires_grad_(False)
    opt = hf.SGD(net, lr=0.1)
    assert opt.plan.rows[0].kind == "collapsed"
    seen = []
    for _ in range(3):
        with torch.no_grad():
            seen.append((net(x), copy.deepcopy(net)(x)))
        opt.zero_grad()
        net(x).square().sum().backward()
        opt.step()
    for now, fresh in seen:
        assert_close(now, fresh)
    assert not torch.allclose(seen[1][0], seen[2][0])


@torch.no_grad()
def test_copies_start_without(x):
    net = build()
    out = net(x)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(x), out)
        twin.embeddings.weight.mul_(2.0)
        assert not torch.allclose(twin(x), out)
    assert torch.equal(net(x), out)


def test_two_sets_of_weights_are_never_held(x):
    net = build()
    with torch.no_grad():
        net(x)
        assert net._cache._made is not None
        net.train()
        assert net._cache._made is None
