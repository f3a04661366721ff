"""In evaluation without gradients the weights are generated once, and anew whenever something changes."""

import copy
import pickle
import weakref

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
    "code scale": lambda net: net.heads.scale.mul_(1.1),
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


def test_training_frees_the_weights(x):
    net = build()
    with torch.no_grad():
        net(x)
    made = weakref.ref(next(iter(net._cache._entry.tensors.values())))
    assert made() is not None
    net.train()
    assert made() is None


@torch.no_grad()
def test_parts_in_training_mode_are_not_reused(x):
    """Dropout for Monte Carlo, or noise, in a net that is otherwise in evaluation."""
    trunk = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5)).double()
    mainnet = nn.Sequential(nn.Linear(3, 4)).double()
    net = hf.HyperNet(mainnet, hf.Embedding(6, noise=0.5), trunk=trunk).eval()
    for part in (net.trunk, net.embeddings):
        part.train()
        assert not torch.allclose(net(x), net(x))
        part.eval()
    assert torch.equal(net(x), net(x))


@torch.no_grad()
def test_hooks_are_not_skipped(x):
    net = build()
    before = net(x)
    net.heads.head("4x3").register_forward_hook(lambda head, args, out: 2 * out)
    assert not torch.allclose(net(x), before)


@torch.no_grad()
def test_a_mainnet_that_writes_to_its_weights(x):
    class Doubling(nn.Linear):
        def forward(self, x):
            self.weight.mul_(2)
            return super().forward(x)

    net = hf.HyperNet(nn.Sequential(Doubling(3, 4)).double(), 6, nonlinearity="linear").eval()
    assert torch.equal(net(x), net(x))


def test_finite_differences_through_functional_call(x):
    """Each call comes with parameters of its own, which may lie where the last ones lay."""
    net = build()
    name = "heads.4x3.weight"
    parameters = {k: v.detach() for k, v in net.named_parameters()}

    @torch.no_grad()
    def at(j, shift):
        moved = parameters[name].clone()
        moved[0, j] += shift
        return torch.func.functional_call(net, {**parameters, name: moved}, (x,)).square().sum()

    net(x).square().sum().backward()
    exact = net.get_parameter(name).grad[0]
    for j in range(12):
        slope = (at(j, 1e-5) - at(j, -1e-5)) / 2e-5
        torch.testing.assert_close(slope, exact[j], rtol=1e-5, atol=1e-7)


@torch.no_grad()
def test_sparse_writes_that_autograd_sees(x):
    net = build()
    before = net(x)
    net.heads.head("4x3").weight[3, 5] += 1.0
    assert not torch.allclose(net(x), before)
