"""Weights of its own for each sample, or each group: equal to a loop, in every order."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hyperfan as hf
from checks import assert_close
from hyperfan.generators.stand_in import FromCode, Sizes, cheaper
from hyperfan.hypernet.per_sample import PerSample
from products import covered

N = 4
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's, for attention under vmap


class Functional(nn.Module):
    """Layers called in unusual ways, one weight used twice, one transposed, one only read."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(5, 5))
        self.table = nn.Embedding(3, 5)

    def forward(self, x):
        h = torch.tanh(F.linear(input=x, weight=self.a))
        h = torch.tanh(F.linear(h, self.b)) + h @ self.b
        return h * self.b.diagonal() + self.table(torch.tensor([1])) + self.b.norm()


@hf.rule(Functional)
def _(module):
    return {name: hf.Use("weight", hf.Fans(5, 5)) for name in ("a", "b")}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


MAINNETS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2)), (6,)),
    "sequence": (lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 2)), (3, 6)),
    "conv2d": (lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.ReLU(),
        nn.Conv2d(4, 3, (1, 2), dilation=(1, 2), padding="same"), nn.Flatten(), nn.Linear(12, 2)), (2, 6, 6)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3, padding_mode="circular", padding=1), nn.Tanh(),
                                     nn.Conv1d(4, 2, 1)), (2, 7)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(1, 3, 2), nn.Tanh(), nn.ConvTranspose3d(3, 2, 2)), (1, 3, 3, 3)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)), (6,)),
    "functional": (Functional, (6,)),
    "attention": (Attention, (3, 6)),
}  # fmt: skip
ORDERS = {"cheaper": cheaper, "weights": lambda s: "weights", "codes": lambda s: "codes"}


def build(name, embedding=None, generate="weights", **kwargs):
    torch.manual_seed(0)
    make, shape = MAINNETS[name]
    x = torch.randn(N, *shape, dtype=torch.float64)
    embedding = embedding or hf.Embedding(4, given=True)
    return hf.HyperNet(make().double().eval(), embedding, generate=generate, nonlinearity="tanh", **kwargs), x


def outputs_and_gradients(net, x, e, call):
    """From one call that makes (N, …)."""
    out = call(net, x, e)
    chosen = [e, x, *net.parameters()]
    target = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    return out.detach(), torch.autograd.grad((out * target).sum(), chosen, allow_unused=True)


def assert_all_close(seen, expected):
    for a, b in zip(seen, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_close(a, b)


def loop(net, x, e):
    return torch.cat([net(x[i : i + 1], embedding=e[i]) for i in range(len(x))])


@pytest.mark.parametrize(
    ("name", "order", "generate"), covered(list(itertools.product(MAINNETS, ORDERS, ["weights", "*"])), tuple)
)
def test_equals_a_loop_over_samples(name, order, generate):
    net, x = build(name, generate=generate)
    net.per_sample = PerSample(ORDERS[order])
    e = torch.randn(N, len(net.generated), 4, dtype=torch.float64, requires_grad=True)
    x.requires_grad_()
    expected, grads = outputs_and_gradients(net, x, e, loop)
    for _ in range(2):  # the first call learns the orders, the second uses them
        seen, seen_grads = outputs_and_gradients(net, x, e, lambda net, x, e: net(x, embedding=e))
        assert_close(seen, expected)
        assert_all_close(seen_grads, grads)


@pytest.mark.parametrize(("name", "order"), list(itertools.product(MAINNETS, ORDERS)))
def test_groups_equal_a_loop_over_groups(name, order):
    net, x = build(name)
    net.per_sample = PerSample(ORDERS[order])
    x = torch.stack([x, 2 * x, -x])
    e = torch.randn(3, len(net.generated), 4, dtype=torch.float64, requires_grad=True)
    x.requires_grad_()
    expected, grads = outputs_and_gradients(
        net, x, e, lambda net, x, e: torch.stack([net(x[i], embedding=e[i]) for i in range(3)])
    )
    for _ in range(2):
        seen, seen_grads = outputs_and_gradients(net, x, e, lambda net, x, e: net(x, embedding=e, grouped=True))
        assert_close(seen, expected)
        assert_all_close(seen_grads, grads)


UNEQUAL = [(name, (3, 0, 2, 3)) for name in MAINNETS] + [("mlp", (2, 2, 2, 2)), ("mlp", (0, 0, 5, 0))]


@pytest.mark.parametrize(("name", "counts"), UNEQUAL)
def test_groups_of_unequal_size_equal_a_loop_over_groups(name, counts):
    net, x = build(name)
    x = torch.randn(sum(counts), *x.shape[1:], dtype=torch.float64, requires_grad=True)
    e = torch.randn(4, len(net.generated), 4, dtype=torch.float64, requires_grad=True)

    def by_loop(net, x, e):
        return torch.cat([net(part, embedding=e[i]) for i, part in enumerate(x.split(counts)) if len(part)])

    expected, grads = outputs_and_gradients(net, x, e, by_loop)
    index = torch.arange(4).repeat_interleave(torch.tensor(counts))
    mixed = torch.randperm(len(index), generator=torch.Generator().manual_seed(0))
    back = mixed.argsort()
    calls = (
        lambda net, x, e: net(x, embedding=e, counts=counts),
        lambda net, x, e: net(x, embedding=e, counts=torch.tensor(counts)),
        lambda net, x, e: net(x[mixed], embedding=e, code_index=index[mixed])[back],
    )
    for call in calls:
        seen, seen_grads = outputs_and_gradients(net, x, e, call)
        assert_close(seen, expected)
        assert_all_close(seen_grads, [torch.zeros_like(s) if g is None and s is not None else g
                                      for s, g in zip(seen_grads, grads, strict=True)])  # fmt: skip


@pytest.mark.parametrize(("name", "order"), list(itertools.product(MAINNETS, ORDERS)))
def test_inputs_that_all_codes_share_equal_a_loop_over_codes(name, order):
    net, x = build(name)
    net.per_sample = PerSample(ORDERS[order])
    e = torch.randn(3, len(net.generated), 4, dtype=torch.float64, requires_grad=True)
    x.requires_grad_()
    expected, grads = outputs_and_gradients(
        net, x, e, lambda net, x, e: torch.stack([net(x, embedding=one) for one in e])
    )
    for _ in range(2):
        seen, seen_grads = outputs_and_gradients(net, x, e, lambda net, x, e: net(x, embedding=e, shared=True))
        assert_close(seen, expected)
        assert_all_close(seen_grads, grads)


def test_shared_inputs_are_not_copied():
    x = torch.randn(1000, 50)
    net = hf.HyperNet(nn.Linear(50, 1), hf.Embedding(4, given=True, per="net"), nonlinearity="linear")
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t), t)[1], lambda t: t):
        for _ in range(2):
            saved.clear()
            net(x, embedding=torch.randn(64, 4), shared=True)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    assert x.untyped_storage().data_ptr() in storages
    assert sum(storages.values()) < 2 * x.untyped_storage().nbytes()


def test_one_code_is_no_special_case():
    net, x = build("mlp")
    e = torch.randn(1, 3, 4, dtype=torch.float64)
    expected = net(x, embedding=e[0])
    assert_close(net(x[:1], embedding=e), expected[:1])
    assert_close(net(x.unsqueeze(0), embedding=e, grouped=True), expected.unsqueeze(0))
    assert_close(net(x, embedding=e, shared=True), expected.unsqueeze(0))
    assert_close(net(x, embedding=e, counts=[4]), expected)


def test_tasks_for_groups():
    net, x = build("mlp", hf.Embedding(4, tasks=5, trainable=True))
    tasks = torch.tensor([4, 0])
    seen = net(torch.stack([x, -x]), task=tasks, grouped=True)
    assert_close(seen, torch.stack([net(x, task=4), net(-x, task=0)]))


def test_a_sample_sees_nothing_of_the_others():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 5)

        def forward(self, x):
            return self.layer(x - x.mean()) / x.std(correction=0)

    net = hf.HyperNet(Centred().double(), hf.Embedding(4, given=True), nonlinearity="linear")
    x, e = torch.randn(N, 6).double(), torch.randn(N, 1, 4).double()
    assert_close(net(x, embedding=e), loop(net, x, e))


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_training_with_both_orders_equals_dense_autograd(momentum):
    results = []
    for optimiser in (lambda net: hf.SGD(net, 1e-3, momentum),
                      lambda net: torch.optim.SGD(net.parameters(), 1e-3, momentum)):  # fmt: skip
        net, x = build("conv2d")
        opt = optimiser(net)
        for step in range(10):
            e = torch.randn(N, 4, 4, generator=torch.Generator().manual_seed(step)).double()
            opt.zero_grad()
            net(x, embedding=e).square().sum().backward()
            opt.step()
        results.append(net.state_dict())
    for a, b in zip(results[0].values(), results[1].values(), strict=True):
        assert_close(a, b)


def test_outputs_that_are_no_tensors():
    class Telling(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 5)

        def forward(self, x):
            return {"out": self.layer(x), "name": "telling", "none": None, "all": [1, self.layer(-x)]}

    net = hf.HyperNet(Telling().double(), hf.Embedding(4, given=True), nonlinearity="linear")
    x, e = torch.randn(N, 6).double(), torch.randn(N, 1, 4).double()
    seen = net(x, embedding=e)
    assert seen["name"] == "telling"
    assert seen["none"] is None
    assert seen["all"][0] == 1
    assert_close(seen["out"][1:2], net(x[1:2], embedding=e[1])["out"])


def test_who_forgets_that_inputs_are_grouped_is_told():
    mainnet = nn.Sequential(nn.Conv1d(1, 4, 5), nn.Flatten(), nn.Linear(48, 2))
    net = hf.HyperNet(mainnet, hf.Embedding(6, given=True, per="net"), trunk=(8,))
    x, codes = torch.randn(3, 7, 1, 16), torch.randn(3, 6)
    with pytest.raises(RuntimeError, match="conv1d") as raised:
        net(x, embedding=codes)
    (note,) = raised.value.__notes__
    assert note.startswith("3 codes were given")
    assert note.endswith("pass grouped=True")
    assert net(x, embedding=codes, grouped=True).shape == (3, 7, 2)
    with pytest.raises(hf.HyperfanError, match=r"should be \(6,\), or \(batch, 6\) for many"):
        net(x, embedding=codes[:, :5], grouped=True)


def test_a_call_that_fails_teaches_nothing():
    net, x = build("mlp")
    with pytest.raises(RuntimeError):
        net(x[:, :3], embedding=torch.randn(N, 3, 4).double())
    assert not net.per_sample.orders


# ── the choice ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_order_follows_the_rows_that_share_a_code():
    one_row = Sizes(width=50, weight=500 * 500, outputs=500, rows=1)
    many_rows = Sizes(width=50, weight=500 * 500, outputs=500, rows=128)
    assert cheaper(one_row) == "codes"
    assert cheaper(many_rows) == "weights"
    # What it costs to hold a weight counts, not multiplications alone: these would be fewer with weights first.
    assert cheaper(Sizes(width=10, weight=500 * 500, outputs=500, rows=2)) == "codes"


def test_what_was_chosen_can_be_seen_and_overridden():
    net, x = build("mlp")
    e = torch.randn(N, 3, 4, dtype=torch.float64)
    net(x, embedding=e)
    (chosen,) = net.per_sample.orders.values()
    assert set(chosen) == {"0.weight", "2.weight", "4.weight"}
    seen = []
    net.per_sample = PerSample(lambda sizes: (seen.append(sizes), "weights")[1])
    net(x, embedding=e)
    assert seen == [Sizes(4, 30, 5, 1), Sizes(4, 25, 5, 1), Sizes(4, 10, 2, 1)]
    (chosen,) = net.per_sample.orders.values()
    assert set(chosen.values()) == {"weights"}


def test_no_weights_are_made_where_codes_come_last(monkeypatch):
    net, x = build("mlp")
    net.per_sample = PerSample(lambda sizes: "codes")
    e = torch.randn(N, 3, 4, dtype=torch.float64)
    net(x, embedding=e)
    made = []
    forward = net.heads.forward
    monkeypatch.setattr(net.heads, "forward", lambda *a, **k: made.append(forward(*a, **k)) or made[-1])
    monkeypatch.setattr("hyperfan.generators.stand_in.FromCode.make", lambda self: pytest.fail("made a weight"))
    net(x, embedding=e)
    assert [[f.shape for f in factors] for factors in made[0].values()] == 3 * [[(N, 4)]]  # codes


def test_the_rows_of_a_convolution_are_its_output_positions():
    net, x = build("conv2d")
    seen = []
    net.per_sample = PerSample(lambda sizes: (seen.append(sizes), "weights")[1])
    net(x, embedding=torch.randn(N, 4, 4, dtype=torch.float64))
    assert seen[0] == Sizes(width=4, weight=2 * 4 * 9, outputs=4, rows=36)


# ── bad input ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inputs_that_do_not_fit_the_codes():
    net, x = build("mlp")
    e = torch.randn(3, 3, 4, dtype=torch.float64)
    with pytest.raises(hf.HyperfanError, match=r"3 codes were given, one per sample"):
        net(x, embedding=e)
    with pytest.raises(hf.HyperfanError, match=r"one per group; .* \(3, batch, …\)"):
        net(x, embedding=e, grouped=True)
    with pytest.raises(hf.HyperfanError, match="grouped=True needs many codes"):
        net(x, embedding=e[0], grouped=True)


@pytest.mark.parametrize(("given", "message"), [
    ({"counts": (1, 2)}, "counts= has 2 numbers, and there are 3 codes"),
    ({"counts": (1, 2, 2)}, r"3 codes serve 5 rows.*shape \(4, 6\) and should have \(5, …\)"),
    ({"counts": (5, -1, 0)}, "give the number of rows of each code"),
    ({"counts": 4}, "give the number of rows of each code"),
    ({"counts": torch.ones(2, 2)}, "give the number of rows of each code"),
    ({"code_index": torch.tensor([0, 1, 2, 3])}, "holds 0 to 3; there are codes 0 to 2"),
    ({"code_index": torch.tensor([0, 1])}, r"3 codes serve 2 rows"),
    ({"code_index": torch.ones(4)}, r"code_index= is torch.float32 \(4,\)"),
    ({"code_index": [0, 1, 2, 0]}, "code_index= is list"),
    ({"counts": (1, 2, 1), "shared": True}, "shared=True and counts= say different things"),
    ({"grouped": True, "shared": True}, "grouped=True and shared=True say different things"),
])  # fmt: skip
def test_what_is_said_of_the_inputs_is_checked(given, message):
    net, x = build("mlp")
    with pytest.raises(hf.HyperfanError, match=message):
        net(x, embedding=torch.randn(3, 3, 4, dtype=torch.float64), **given)
    assert not net.per_sample.orders


@pytest.mark.parametrize("given", [{"counts": (4,)}, {"code_index": torch.zeros(4).long()}, {"shared": True}])
def test_many_codes_are_needed(given):
    net, x = build("mlp")
    with pytest.raises(hf.HyperfanError, match="needs many codes"):
        net(x, embedding=torch.randn(3, 4, dtype=torch.float64), **given)


def test_outputs_of_unequal_groups_need_rows():
    net = hf.HyperNet(nn.Sequential(nn.Linear(6, 5), nn.Flatten(0)).double(), hf.Embedding(4, given=True))
    with pytest.raises(hf.HyperfanError, match=r"the mainnet makes \(5,\) of a group of 1 rows"):
        net(torch.randn(4, 6).double(), embedding=torch.randn(2, 1, 4).double(), counts=(1, 3))


def test_batch_norm_in_training_cannot():
    net, x = build("batch norm")
    with pytest.raises(hf.HyperfanError, match="batch norm in training mode"):
        net.train()(x, embedding=torch.randn(N, 2, 4, dtype=torch.float64))


@pytest.mark.parametrize("optimiser", [hf.SGD, hf.AdamW])
def test_an_optimiser_of_ours_makes_no_weight_that_a_layer_runs_without(optimiser, monkeypatch):
    mainnet, features = MAINNETS["mlp"]
    net = hf.HyperNet(mainnet(), hf.Embedding(3, given=True, per="net"), heads="separate")
    net.per_sample = PerSample(ORDERS["codes"])
    opt = optimiser(net, lr=0.1)
    made = []
    monkeypatch.setattr(FromCode, "make", lambda self: made.append(self))
    net(torch.randn(N, *features), embedding=torch.randn(N, 3)).sum().backward()
    opt.step()
    assert not made
