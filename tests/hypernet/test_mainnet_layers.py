"""``net.mainnet``: the mainnet's own layers, to be changed as those of any module."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize

import hyperfan as hf


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def built(mainnet=None, embedding=4, **options):
    return hf.HyperNet(mainnet or normed(), embedding, **options)


X = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))


def test_modes_of_the_mainnet_can_be_set_alone():
    net = built().train()
    assert not torch.equal(net(X), net(X))
    net.mainnet.eval()
    before = net.mainnet[1].running_mean.clone()
    assert torch.equal(net(X), net(X))
    assert torch.equal(net.mainnet[1].running_mean, before)
    assert net.training
    assert net.heads.training
    assert not net.mainnet.training
    assert net.train().mainnet[3].training


def test_a_mainnet_in_evaluation_may_have_codes_for_each_sample():
    net = built(embedding=hf.Embedding(4, given=True, per="net")).train()
    codes = torch.randn(20, 4)
    with pytest.raises(hf.HyperfanError, match="batch norm in training mode"):
        net(X, embedding=codes)
    net.mainnet.eval()
    each = [net(x[None], embedding=code)[0] for x, code in zip(X, codes, strict=True)]
    assert torch.allclose(net(X, embedding=codes), torch.stack(each), atol=1e-6)


def test_layers_can_be_found_and_changed():
    net = built().train()
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    assert torch.equal(net(X), net(X))
    seen = []
    handle = net.mainnet[1].register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape))
    net(X)
    handle.remove()
    assert seen == [(20, 8)]
    assert net.mainnet[0].weight is None  # generated: it is there for the time of a call


@pytest.mark.parametrize("generate", ["weights", ["*"]], ids=str)
def test_batch_norms_can_be_converted(generate):
    net = built(generate=generate).eval()
    out, names = net(X), list(net.state_dict())
    nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(net.mainnet[1], nn.SyncBatchNorm)
    assert torch.equal(net(X), out)
    assert list(net.state_dict()) == names
    net.double()  # what is used is what the new layer holds
    net.mainnet[1].running_mean += 1
    assert not torch.allclose(net(X.double()).float(), out, atol=1e-3)
    assert torch.allclose(net.freeze()(X.double()), net(X.double()))


def test_a_kept_layer_may_be_parametrised_but_a_generated_one_is_no_longer_there():
    net = built(generate="0.weight").eval()
    out = net(X)
    parametrizations.weight_norm(net.mainnet[4])
    assert torch.allclose(net(X), out, atol=1e-6)
    assert torch.allclose(net.freeze()(X), out, atol=1e-6)
    with torch.no_grad():
        net.mainnet[4].parametrizations.weight.original0.mul_(2)
    assert not torch.allclose(net(X), out, atol=1e-3)
    net.mainnet[0] = nn.Linear(6, 8).requires_grad_(False)  # has a place of that name
    del net.mainnet[0].weight
    with pytest.raises(hf.HyperfanError, match=r"'0\.weight' is generated, but its layer .* was replaced"):
        net(X)


def test_another_mainnet_is_not_used_silently():
    net = built()
    net.mainnet = normed()
    with pytest.raises(hf.HyperfanError, match=r"net\.mainnet was replaced"):
        net(X)


class Tied(nn.Module):
    """A layer with two paths, a tied bias, and a buffer that is bound anew at every call."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.d = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.c, self.e, self.d.bias = self.b, self.a, self.b.bias
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        return self.e(torch.tanh(self.d(torch.tanh(self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))))))


KEYS = ["mainnet.calls", "mainnet.a.bias", "mainnet.b.weight", "mainnet.b.bias", "mainnet.d.weight"]


def test_what_is_tied_is_saved_once_and_stays_tied(tmp_path):
    net = built(Tied(), generate="a.weight", example=X)
    out = net(X)
    assert [key for key in net.state_dict() if key.startswith("mainnet.")] == KEYS
    assert [f"mainnet.{name}" for name, _ in net.mainnet.named_parameters()] == KEYS[1:]
    net.save_pretrained(tmp_path)
    others = [hf.HyperNet.from_pretrained(tmp_path, Tied(), example=X), copy.deepcopy(net)]
    others.append(pickle.loads(pickle.dumps(net)))
    others.append(built(Tied(), generate="a.weight", example=X))
    others[-1].load_state_dict(net.state_dict())
    for other in others:
        assert torch.equal(other(X), out)
        assert list(other.state_dict()) == list(net.state_dict())
        with torch.no_grad():
            other.mainnet.b.bias.add_(1)
        plain = other.freeze()
        assert [plain.c, plain.d.bias, plain.e] == [plain.b, plain.b.bias, plain.a]
        assert torch.allclose(plain(X), other(X), atol=1e-6)
        assert not torch.allclose(other(X), out, atol=1e-3)
    assert torch.equal(net(X), out)


def test_nothing_generated_stays_in_the_mainnet_after_a_call():
    net = built(Tied(), generate="*", example=X)
    net(X)
    with pytest.raises(RuntimeError):
        net(X[:, :3])
    net.freeze()
    assert not list(net.mainnet.parameters())


def test_a_buffer_that_is_bound_anew_keeps_its_value():
    net = built(Tied(), generate="a.weight", example=X)
    net(X)
    net(X)
    assert net.mainnet.calls == 2
    assert net.freeze().calls == 2


# ── parametrised heads ─────────────────────────────────────────────────────────────────────────────────────────────


def with_norms(norm=parametrizations.weight_norm, embedding=4):
    torch.manual_seed(0)
    net = built(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).double(), embedding, heads="separate")
    for name in net.heads.layouts:
        norm(net.heads.head(name))
    return net


@pytest.mark.parametrize(("ours", "theirs"), [(hf.SGD, torch.optim.SGD), (hf.AdamW, torch.optim.AdamW)])
def test_parametrised_heads_train_as_with_torch(ours, theirs):
    nets = [with_norms() for _ in range(2)]
    for net, optimiser in zip(nets, (ours, theirs), strict=True):
        opt = optimiser(net if optimiser is ours else net.parameters(), lr=0.01)
        for _ in range(3):
            opt.zero_grad()
            net(X.double()).square().sum().backward()
            opt.step()
    states = [net.state_dict() for net in nets]
    assert all(torch.allclose(t, states[1][name], rtol=1e-9) for name, t in states[0].items())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_heads_whose_weight_a_hook_computes_serve_each_sample():
    net = with_norms(nn.utils.weight_norm, hf.Embedding(4, given=True, per="net"))
    codes = torch.randn(20, 4, dtype=torch.float64)
    for _ in range(2):
        out = net(X.double(), embedding=codes)
        out.sum().backward()
        with torch.no_grad():
            net.heads.head("0/weight").weight_g.mul_(2)
    tensors = net.generate(embedding=codes)
    each = [functional_call(net.freeze(embedding=c), {n: t[i] for n, t in tensors.items()}, x[None])[0]
            for i, (x, c) in enumerate(zip(X.double(), codes, strict=True))]  # fmt: skip
    assert torch.allclose(net(X.double(), embedding=codes), torch.stack(each))
    assert hf.diagnose(net, X.double()).layers


def test_what_would_miss_a_parametrised_head_is_refused(tmp_path):
    net = with_norms()
    before = copy.deepcopy(net.state_dict())
    for do in (net.reset_parameters, lambda: net.rescale_({"0.weight": 2.0}), lambda: net.save_pretrained(tmp_path)):
        with pytest.raises(hf.HyperfanError, match=r"heads\.0/weight\.weight is not the parameter .* built with"):
            do()
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert not list(tmp_path.iterdir())
    for name in net.heads.layouts:
        parametrize.remove_parametrizations(net.heads.head(name), "weight")
    net.save_pretrained(tmp_path)


# ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tasks_of_every_integer_type_are_rows_and_never_a_mask():
    net = built(embedding=hf.Embedding(4, tasks=3)).eval()
    wanted = net(X, task=2)
    assert torch.equal(net(X, task=np.int64(2)), wanted)
    each = torch.stack([net(x[None], task=t)[0] for x, t in zip(X[:3], (1, 0, 1), strict=True)])
    for dtype in (torch.uint8, torch.int16, torch.int64):
        assert torch.allclose(net(X[:3], task=torch.tensor([1, 0, 1], dtype=dtype)), each, atol=1e-6)
    with pytest.raises(hf.HyperfanError, match="holds -1 to 0"):
        net(X[:2], task=torch.tensor([0, -1]))
    compiled = torch.compile(net, backend="eager")
    with pytest.raises((RuntimeError, IndexError)):
        compiled(X[:2], task=torch.tensor([0, -1]))


class LastState(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0][:, -1]


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_layer_keeps_nothing_of_what_it_ran_with(kind):
    """Torch's lists its weights at each run; generated ones have a graph, which no copy can have."""
    x = torch.randn(5, 7, 3)
    net = hf.HyperNet(LastState(kind(3, 4, batch_first=True)), 6, example=x)
    first = net(x)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(copied(x), first)
    net.reset_parameters()
    assert not torch.equal(net(x), first)
    net.eval()
    with torch.no_grad():  # where the very tensors of the last call are run with again
        torch.testing.assert_close(net(x), net(x), rtol=0, atol=0)
