"""Many samples in one run without vmap: equal to a loop where it is taken, and not taken where samples would meet."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hyperfan as hf
from checks import assert_close
from hyperfan.errors import CallError
from hyperfan.hypernet.per_sample import PerSample
from products import covered

N = 3
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's, for attention under vmap


class Net(nn.Module):
    """A linear layer, and what is to be tried on what it makes."""

    def __init__(self, then, features=6, made=4):
        super().__init__()
        self.layer, self.then = nn.Linear(features, made), then
        self.scale = nn.Parameter(torch.randn(made))
        self.register_buffer("table", torch.randn(5, made))

    def forward(self, x):
        return self.then(self, self.layer(x))


@hf.rule(Net)
def _(module):
    return {"scale": hf.Use("weight", hf.Fans(4, 4))}


def gate(self, z):
    a, b = z.chunk(2, -1)
    return torch.cat([a * torch.sigmoid(b), z[..., :1], z.narrow(-1, 0, 1)], dim=-1)


def heads(self, z):
    q = z.view(len(z), -1, 2, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, 2 * q, is_causal=True).transpose(1, 2).flatten(2)


def statistics(self, z):
    by_row = z.sum(1, keepdim=True) + z.amax(-1, keepdim=True) + z.var(dim=-1, keepdim=True)
    return (z - z.mean()) / z.std() + by_row + z.norm()


def in_place(self, z):
    z = z.clone()
    z += 1
    z.mul_(self.scale).clamp_(min=-1)
    return F.relu(z, inplace=True)


def lookup(self, z):
    index = z.argmax(-1)
    return F.embedding(index, self.table) + self.table[index] + z.softmax(-1)


BATCHED = {
    "arithmetic": lambda self, z: 2 - z * self.scale + 1 / (z**2 + 1) - (3 - z) ** 2 + self.table[0] @ self.table[1],
    "gate": gate,
    "attention": heads,
    "statistics": statistics,
    "in place": in_place,
    "lookup": lookup,
    "einsum": lambda self, z: torch.einsum("bsi,bti,i->bst", z, z, self.scale),
    "products": lambda self, z: z @ z.mT @ z + torch.bmm(z, z.transpose(1, 2)) @ z,
    "matrix": lambda self, z: z @ torch.eye(4).to(z) + self.table[:3, :3] @ z + z.matmul(self.table.T[:, :4]),
    "shapes": lambda self, z: z.unsqueeze(0).squeeze(0).permute(1, 0, 2).movedim(0, 1).reshape(1, -1, 2),
    "split dimension": lambda self, z: z.unflatten(-1, (2, -1)).flatten(1, 2).view_as(z.repeat(1, 1, 1)),
    "joined": lambda self, z: torch.stack([z, torch.zeros(1, 3, 4).to(z), z.flip(1).roll(1, 2)], 1).sum(1),
    "unbound": lambda self, z: sum(t.cumsum(-1) for t in z.unbind(1)),
    "iterated": lambda self, z: torch.stack(list(z)),
    "picked": lambda self, z: z[:, torch.tensor([2, 0])][..., None, :].expand(1, 2, 5, 4) + z[:, :1, None, 0:1],
    "where": lambda self, z: torch.where(z > 0, z, 0 * z).masked_fill(z < -1, 0.5) + z.maximum(self.scale),
    "differences": lambda self, z: z.diff(dim=1, prepend=z[:, :1] - 1) + torch.diff(z, append=self.scale.view(1, 1, 4)[
        ..., :1].expand(1, 3, 1)) + self.table.diff(2, 0).sum(),
    "norms": lambda self, z: F.layer_norm(z, (4,), self.scale, self.scale) + F.normalize(z, dim=-1),
    "norms with an eps": lambda self, z: F.layer_norm(z, (4,), self.scale, eps=0.3) + F.rms_norm(
        z, (4,), self.scale, eps=0.3) + F.group_norm(z, 3, eps=0.3) + F.batch_norm(
        z, self.table[:3, 0], self.table[:3, 1].square(), eps=0.3) + F.normalize(z, dim=-1, eps=3.0),
    "pools": lambda self, z: F.avg_pool1d(z, 2) + F.max_pool1d(z, 2) + F.pad(z, (1, 1))[..., :2],
    "own size": lambda self, z: z / z.shape[0] + z.size(1) + z.numel() + len(z) + z.dim(),
    "constants": lambda self, z: z + torch.arange(4.0).to(z).view(1, 1, 4) * self.table.mean(0),
    "a number": lambda self, z: z.sum(),
    "the same for all": lambda self, z: self.table.sum(0, keepdim=True),
    "the larger": lambda self, z: torch.max(self.table[:3], other=z) + torch.min(z, other=self.scale),
    "without gradient": lambda self, z: z * z.detach().abs().double(),
    "several indices": lambda self, z: z[:, torch.tensor([0, 1]), torch.tensor([0, 1])],
    "transposed weights": lambda self, z: torch.addmm(self.scale, z[0], self.table[:4].mT * z[0, :1].mT),
    "an empty one joined": lambda self, z: torch.cat([torch.tensor([]), z, z[:, :0]], -2),
    "asked for a value": lambda self, z: z / 2 if z.sum() > 0 else z * 3 if (z[:, 0] > 0).any() else z,
    "asked for a number": lambda self, z: z * int(z.detach().abs().sum()) if not torch.equal(z, 2 * z) else z.abs(),
    "a loss": lambda self, z: F.cross_entropy(z[0], torch.tensor([2, -100, 0])) + F.cross_entropy(
        z[0], z[0].argmax(-1), reduction="sum"),
    "losses": lambda self, z: F.cross_entropy(z[0], z[0].argmax(-1), reduction="none") + F.cross_entropy(
        self.table[:3], torch.tensor([0, 1, 2])),
    "own temporary in place": lambda self, z: z + self.table[:3].clone().mul_(2).add_(1),
}  # fmt: skip


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * grad.shape[0]  # which is 1 for one sample


def centre(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean()


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's, of scripts
    scripted = torch.jit.script(centre)


BY_VMAP = {
    "an autograd function": lambda self, z: Doubled.apply(z),
    "a function without a rule": lambda self, z: torch.logcumsumexp(z, -1),
    "scripted": lambda self, z: scripted(z),
    "indices apart": lambda self, z: z[torch.tensor([0]), :, torch.tensor([1])],
    "own dtype of a number": lambda self, z: z * z.float().sum(),
    "own dtype of two numbers": lambda self, z: (z.float().sum() * torch.tensor(1.0).double()).view(1, 1),
    "no dimensions": lambda self, z: z * z.detach().std(dim=(), keepdim=True),
    "a layer that changes its input, then no rule": lambda self, z: torch.logcumsumexp(F.leaky_relu_(z), -1),
}  # fmt: skip


def build(then, generate="weights", **kwargs):
    torch.manual_seed(0)
    net = hf.HyperNet(
        Net(then).double(), hf.Embedding(4, given=True, per="net"), generate=generate, nonlinearity="linear", **kwargs
    )
    x = torch.randn(N, 3, 6, dtype=torch.float64, requires_grad=True)
    return net, x, torch.randn(N, 4, dtype=torch.float64, requires_grad=True)


def with_gradients(net, x, e, out):
    target = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    sources = [x, e, *net.parameters()]
    grads = torch.autograd.grad((out * target).sum(), sources, allow_unused=True) if out.requires_grad else []
    return out, [torch.zeros(()).double() if g is None else g for g in grads]


def assert_equal(net, x, e, call, loop):
    expected, grads = with_gradients(net, x, e, loop)
    for _ in range(2):
        out, seen = with_gradients(net, x, e, call())
        assert_close(out, expected)
        for a, b in zip(seen, grads, strict=True):
            assert_close(a, b)


def reasons(net):
    return [r for r in net.per_sample.mixing.values() if r is not None]


@pytest.mark.parametrize(
    ("name", "generate", "order"),
    covered(list(itertools.product(BATCHED, ["weights", "*"], ["weights", "codes"])), tuple),
)
def test_known_functions_run_batched_and_equal_a_loop(name, generate, order):
    net, x, e = build(BATCHED[name], generate)
    net.per_sample = PerSample(lambda sizes: order)
    one = [net(x[i : i + 1], embedding=e[i]) for i in range(N)]
    loop = torch.stack([t.squeeze(0) if t.ndim else t for t in one])
    assert_equal(net, x, e, lambda: net(x, embedding=e), loop)
    assert not reasons(net)


@pytest.mark.parametrize("name", BY_VMAP)
def test_anything_else_runs_by_vmap(name):
    net, x, e = build(BY_VMAP[name])
    loop = torch.cat([net(x[i : i + 1], embedding=e[i]) for i in range(N)])
    assert_equal(net, x, e, lambda: net(x, embedding=e), loop)
    assert reasons(net)


def test_a_sample_is_a_batch_of_one_for_the_mainnet():
    seen = []
    net, x, e = build(lambda self, z: (seen.append((z.shape, self.layer.weight.shape)), z)[1])
    net(x, embedding=e)
    assert seen == [((1, 3, 4), (4, 6))]


def test_a_reason_for_vmap_can_be_read_and_a_failed_try_costs_no_random_numbers():
    def noisy(self, z):
        return torch.logcumsumexp(F.dropout(z, 0.5), -1)

    drawn, known = [], []
    for first in (True, False):
        net, x, e = build(noisy)
        net.per_sample.mixing = dict.fromkeys(known, "known")
        torch.manual_seed(1)
        net(x, embedding=e)
        known = list(net.per_sample.mixing)
        drawn.append(torch.rand(3))
        if first:
            assert net.per_sample.mixing[known[0]].endswith("logcumsumexp")
    assert torch.equal(*drawn)


@pytest.mark.parametrize("by_vmap", [False, True])
def test_each_sample_has_a_dropout_mask_of_its_own(by_vmap):
    after = torch.logcumsumexp if by_vmap else torch.cumsum
    net, x, e = build(lambda self, z: after(F.dropout(z, 0.5, self.training), -1))
    x, e = x[:1].expand(N, 3, 6), e[:1].expand(N, 4)
    out = net(x, embedding=e)
    assert not torch.equal(out[0], out[1])
    assert bool(reasons(net)) == by_vmap
    net.eval()
    assert_close(net(x, embedding=e)[0], net(x, embedding=e)[1])


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.layer(x)


def test_a_buffer_that_counts_calls_counts_one():
    net = hf.HyperNet(Counter(), hf.Embedding(4, given=True, per="net"), nonlinearity="linear")
    net(torch.randn(N, 6), embedding=torch.randn(N, 4))
    assert net.mainnet.calls == 1


RECURRENT = {
    "lstm": lambda **k: nn.LSTM(4, 5, batch_first=True, **k),
    "two layers, both directions": lambda: nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True),
    "projection": lambda: nn.LSTM(4, 5, proj_size=2, batch_first=True),
    "without bias": lambda: nn.LSTM(4, 5, bias=False, batch_first=True),
    "gru": lambda: nn.GRU(4, 5, num_layers=2, batch_first=True),
    "rnn": lambda: nn.RNN(4, 5, batch_first=True, nonlinearity="relu"),
    "lstm cell": lambda: nn.LSTMCell(4, 5),
    "gru cell": lambda: nn.GRUCell(4, 5),
    "rnn cell": lambda: nn.RNNCell(4, 5),
}


@pytest.mark.parametrize(
    ("name", "generate", "grouped"),
    covered(list(itertools.product(RECURRENT, ["weights", "weights+biases"], [False, True])), tuple),
)
def test_recurrent_layers_equal_a_loop(name, generate, grouped):
    torch.manual_seed(0)
    mainnet = RECURRENT[name]().double()
    net = hf.HyperNet(mainnet, hf.Embedding(4, given=True, per="net"), generate=generate, nonlinearity="tanh")
    shape = (4,) if "cell" in name else (6, 4)
    x = torch.randn(N, *((2,) if grouped else ()), *shape, dtype=torch.float64, requires_grad=True)
    e = torch.randn(N, 4, dtype=torch.float64, requires_grad=True)

    def first(out):
        return out if isinstance(out, torch.Tensor) else out[0]

    one = [first(net(x[i] if grouped else x[i : i + 1], embedding=e[i])) for i in range(N)]
    assert_equal(
        net, x, e, lambda: first(net(x, embedding=e, grouped=grouped)), torch.stack(one) if grouped else torch.cat(one)
    )
    assert not reasons(net)


def test_the_state_of_a_recurrent_layer():
    net = hf.HyperNet(nn.LSTM(4, 5, num_layers=2).double(), hf.Embedding(3, given=True, per="net"), nonlinearity="tanh")
    x, e = torch.randn(N, 6, 2, 4).double(), torch.randn(N, 3).double()
    state = torch.randn(N, 2, 2, 5).double(), torch.randn(N, 2, 2, 5).double()
    out, (h, c) = net(x, state, embedding=e, grouped=True)
    for i in range(N):
        one, (h_one, c_one) = net(x[i], tuple(s[i] for s in state), embedding=e[i])
        for a, b in ((out[i], one), (h[i], h_one), (c[i], c_one)):
            assert_close(a, b)
    assert not reasons(net)


# ── what a run leaves behind ───────────────────────────────────────────────────────────────────────────────────────


class Then(nn.Module):
    """A linear layer behind what is tried on the input."""

    def __init__(self, first, then):
        super().__init__()
        self.first, self.then, self.layer = first, then, nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x, *args, **kwargs):
        return self.then(self, self.layer(self.first(x)), *args, **kwargs)


def build_then(then, first=None, n=N):
    torch.manual_seed(0)
    mainnet = Then(first or nn.Identity(), then).double()
    net = hf.HyperNet(mainnet, hf.Embedding(4, given=True, per="net"), nonlinearity="linear")
    return net, torch.randn(n, 6).double(), torch.randn(n, 4).double()


def by_loop(net, x, e):
    return torch.cat([net(x[i : i + 1].clone(), embedding=e[i]) for i in range(len(x))])


def test_one_tensor_may_be_returned_twice():
    net, x, e = build_then(lambda self, y: (y, y, y.sum()))
    for grouped in (False, True):
        a, b, c = net(x[:, None] if grouped else x, embedding=e, grouped=grouped)
        assert a.shape == b.shape == ((N, 1, 4) if grouped else (N, 4))
        assert c.shape == (N,)
        assert not any(vars(t) for t in (a, b, c))  # or they could not be saved
    assert not reasons(net)


def test_no_codes_make_no_rows():
    net, x, e = build_then(lambda self, y: torch.tanh(y))
    for _ in range(2):
        assert net(x[:0], embedding=e[:0]).shape == (0, 4)
        assert net(x[:0], embedding=e[:0], counts=()).shape == (0, 4)
        assert net(x[:0, None], embedding=e[:0], grouped=True).shape == (0, 1, 4)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("after", [torch.logcumsumexp, torch.cumsum])
def test_a_layer_in_place_runs_once(after, inference):
    with torch.inference_mode(inference):
        net, x, e = build_then(lambda self, y: after(y, -1), nn.LeakyReLU(0.2, inplace=True))
        expected, changed = by_loop(net, x, e), F.leaky_relu(x, 0.2)
        for _ in range(2):
            given = x.clone()
            assert_close(net(given, embedding=e), expected)
            assert_close(given, changed)


def test_inputs_that_were_changed_are_not_used_again():
    way = [torch.cumsum]
    net, x, e = build_then(lambda self, y: way[0](y, -1), nn.LeakyReLU(0.2, inplace=True))
    net(x.clone(), embedding=e)
    way[0] = torch.logcumsumexp
    with pytest.raises(CallError, match="changed its inputs in place"):
        net(x.clone(), embedding=e)
    assert_close(net(x.clone(), embedding=e), by_loop(net, x, e))


def test_an_error_of_the_mainnet_is_its_own_and_only_one_that_vmap_does_not_meet_is_remembered():
    errors, calls = [], []

    def then(self, y):
        calls.append(y)
        if errors:
            raise errors.pop(0)
        return y

    net, x, e = build_then(then)
    calls.clear()
    errors += 2 * [ValueError("of both")]
    with pytest.raises(ValueError, match="of both"):
        net(x, embedding=e)
    assert not net.per_sample.mixing
    errors += [ValueError("of one")]
    net(x, embedding=e)
    assert reasons(net) == ["ValueError: of one"]
    assert len(calls) == 4
    net(x, embedding=e)
    assert len(calls) == 5


@pytest.mark.parametrize("missing", [[0], [1, 2], range(N)], ids=["the first", "others", "all"])
def test_samples_agree_in_a_value_that_is_no_number(missing):
    def branch(self, z):
        return -z if z.sum().item() > 0 else 2 * z

    net, x, e = build(branch)
    with torch.no_grad():
        x[list(missing)] = torch.nan
    loop = torch.cat([net(x[i : i + 1], embedding=e[i]) for i in range(N)])
    torch.testing.assert_close(net(x, embedding=e), loop, equal_nan=True)
    assert not reasons(net)


def test_what_is_remembered_is_of_the_same_arguments_and_layers():
    class Choice:
        of = staticmethod(torch.relu)

    def then(self, y, how=None, **names):
        return scripted(y) if how == "scripted" or "b" in names or self.first.training else Choice.of(y)

    net, x, e = build_then(then)
    net.eval()

    def agrees(**kwargs):
        one = [net(x[i : i + 1], embedding=e[i], **kwargs) for i in range(N)]
        assert_close(net(x, embedding=e, **kwargs), torch.cat(one))

    agrees(how="plain")
    agrees(how="scripted")
    agrees(a=1)
    agrees(b=1)
    agrees()
    net.mainnet.first.train()
    agrees()
    net.mainnet.first = nn.Identity().eval()
    Choice.of = scripted
    agrees()
    unknown = Choice()
    agrees(how=unknown)
    assert len(reasons(net)) == 5


def test_an_autograd_function_is_found_in_later_calls_too():
    way = [torch.relu]
    net, x, e = build_then(lambda self, y: way[0](y))
    net(x, embedding=e)
    way[0] = Doubled.apply
    net(x, embedding=e)
    assert reasons(net) == ["the autograd function Doubled"]


def test_an_index_outside_of_a_table_finds_no_other_samples_row():
    net = hf.HyperNet(nn.Embedding(5, 4), hf.Embedding(3, given=True, per="net"), nonlinearity="linear")
    e = torch.randn(N, 3)
    for wrong in (5, -1):
        with pytest.raises(CallError, match="5 rows"):
            net(torch.tensor([0, wrong, 1]), embedding=e)


def test_a_buffer_of_each_sample_is_not_kept():
    def then(self, y):
        self.mean = 0.9 * self.mean + y.detach().sum(0)
        return y

    net, x, e = build_then(then)
    net(x, embedding=e)
    assert reasons(net)[0].startswith("the buffer 'mean'")
    assert not hasattr(net.mainnet.mean, "_hyperfan_samples")


def test_a_buffer_is_as_before_where_a_try_is_given_up():
    def then(self, y):
        self.mean = self.mean + 1
        return torch.logcumsumexp(y, -1)

    net, x, e = build_then(then)
    net(x, embedding=e)
    assert_close(net.mainnet.mean, torch.ones(4).double())


class Cache:
    """Holds tensors as the caches of language models do."""

    def __init__(self, y):
        self.layers, self.length = [{"keys": y}, {"keys": 2 * y}], y.shape[1]


@pytest.mark.parametrize("kind", ["sample", "group", "counts", "by vmap", "one code"])
def test_tensors_in_an_object_are_those_of_all_samples(kind):
    def then(self, y):
        return y, Cache(torch.logcumsumexp(y, -1) if kind == "by vmap" else y)

    net, x, e = build_then(then)
    one = torch.cat([net(x[i : i + 1], embedding=e[i])[1].layers[1]["keys"] for i in range(N)])
    if kind == "group":
        cache = net(x.unsqueeze(1), embedding=e, grouped=True)[1]
        one = one.unsqueeze(1)
    elif kind == "counts":
        cache = net(x, embedding=e[:2], counts=(1, N - 1))[1]
        one = torch.cat([one[:1], net(x[1:], embedding=e[1])[1].layers[1]["keys"]])
    else:
        n = 1 if kind == "one code" else N
        cache, one = net(x[:n], embedding=e[:n])[1], one[:n]
    assert_close(cache.layers[1]["keys"] + 0, one)
    assert cache.length == 4
    assert not hasattr(cache.layers[0]["keys"], "_hyperfan_samples")


def test_a_tensor_of_the_mainnet_is_not_changed_in_place():
    net, x, e = build_then(lambda self, y: y + self.mean.add_(1))
    net(x, embedding=e)
    assert reasons(net) == ["TensorBase.add_"]


def test_outputs_of_an_unknown_class_run_by_vmap():
    class Result:
        def __init__(self, y):
            self.y = y

    net, x, e = build_then(lambda self, y: (y, Result(1)))
    out, _ = net(x, embedding=e)
    assert_close(out, torch.cat([net(x[i : i + 1], embedding=e[i])[0] for i in range(N)]))
    assert reasons(net) == ["an output of class Result"]
