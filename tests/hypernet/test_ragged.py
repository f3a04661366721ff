"""Groups of unequal size: padded where rows are treated one by one, never where they meet; equal to a loop."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hyperfan as hf
from checks import assert_close
from hyperfan.hypernet import ragged

COUNTS = (3, 0, 2, 5, 1)
WIDTH = 4


class Net(nn.Module):
    """A linear layer, and what is to be tried on what it makes."""

    def __init__(self, then):
        super().__init__()
        self.layer, self.then, self.runs = nn.Linear(6, WIDTH), then, 0
        self.norm, self.conv = nn.BatchNorm1d(WIDTH).eval(), nn.Conv1d(WIDTH, WIDTH, 1)
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("table", torch.randn(1, WIDTH))

    def forward(self, x):
        self.runs += 1
        return self.then(self, self.layer(x))


@hf.rule(Net)
def _(module):
    return {"scale": hf.Use("weight", hf.Fans(4, 4))}


ROW_WISE = {
    "sines": lambda self, z: torch.sin(30 * z) * self.scale + self.table - z**2,
    "two inputs": lambda self, z: torch.cat([z, F.relu(z), 1 - z], -1),
    "parts": lambda self, z: z[:, 0] * z[..., 1] + z[:, None].float().double()[:, 0, -1],
    "norms": lambda self, z: self.norm(F.layer_norm(z, (z.size(-1),), self.scale)) + F.group_norm(z, 2),
    "convolution": lambda self, z: self.conv(z[..., None])[..., 0],
    "no dropout": lambda self, z: F.dropout(z, 0.5, training=False) / z.new_tensor(3.0),
    "a layer twice": lambda self, z: F.linear(torch.tanh(z), self.layer.weight[:, :WIDTH] / self.layer.weight.norm()),
}
MIXING = {
    "the mean": lambda self, z: z - z.mean(0),
    "the number": lambda self, z: z / z.shape[0],
    "the length": lambda self, z: z * len(z),
    "attention": lambda self, z: F.scaled_dot_product_attention(z[None], z[None], z[None])[0],
    "a product": lambda self, z: z @ z.mT @ z,
    "a sum over rows": lambda self, z: z.cumsum(0),
    "softmax over rows": lambda self, z: z.softmax(0),
    "turned round": lambda self, z: z.flip(0),
    "turned": lambda self, z: (z.T * torch.ones(WIDTH, 1, dtype=z.dtype)).T.contiguous().roll(1, 0),
    "the first row": lambda self, z: z - z[:1],
    "the last row": lambda self, z: z + z[-1],
    "joined rows": lambda self, z: torch.cat([z, z])[1::2],
    "aligned with rows": lambda self, z: z + (z[:, 0] * z[:, 1:2]).sum(1, keepdim=True),
    "normalised over all": lambda self, z: F.layer_norm(z, tuple(z.shape)),
    "a spread of rows": lambda self, z: (z[:, None] - z).sum(1),
    "a weight from rows": lambda self, z: F.linear(z, z.new_ones(WIDTH, WIDTH) * z.std()),
    "the largest": lambda self, z: torch.where(z == z.amax(), z, 0 * z),
}


def build(then, **kwargs):
    torch.manual_seed(0)
    kwargs = {"generate": ["layer.*", "scale"]} | kwargs
    net = hf.HyperNet(Net(then).double(), hf.Embedding(4, given=True, per="net"), nonlinearity="linear", **kwargs)
    net.mainnet.norm.eval()
    x = torch.randn(sum(COUNTS), 6, dtype=torch.float64, requires_grad=True)
    return net, x, torch.randn(len(COUNTS), 4, dtype=torch.float64, requires_grad=True)


def with_gradients(net, x, e, out):
    target = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    grads = torch.autograd.grad((out * target).sum(), [x, e, *net.parameters()], allow_unused=True)
    return [out, *(torch.zeros(()).double() if g is None else g for g in grads)]


def assert_equals_a_loop(net, x, e):
    parts = [net(part, embedding=e[i]) for i, part in enumerate(x.split(COUNTS)) if len(part)]
    expected = with_gradients(net, x, e, torch.cat(parts))
    index = torch.arange(len(COUNTS)).repeat_interleave(torch.tensor(COUNTS))
    index_mixed = index[torch.randperm(len(index), generator=torch.Generator().manual_seed(0))]
    mixed = index_mixed.argsort(stable=True).argsort()  # in which the rows of each group are in order
    runs = []
    for call in (
        lambda: net(x, embedding=e, counts=COUNTS),
        lambda: net(x, embedding=e, counts=COUNTS),
        lambda: net(x[mixed], embedding=e, code_index=index_mixed)[mixed.argsort()],
    ):
        net.mainnet.runs = 0
        for a, b in zip(with_gradients(net, x, e, call()), expected, strict=True):
            assert_close(a, b)
        runs.append(net.mainnet.runs)
    return runs


@pytest.mark.parametrize("name", ROW_WISE)
def test_rows_that_are_treated_one_by_one_run_together(name):
    assert assert_equals_a_loop(*build(ROW_WISE[name])) == [1, 1, 1]


@pytest.mark.parametrize("name", MIXING)
def test_rows_that_meet_do_not_meet_padding(name):
    runs = assert_equals_a_loop(*build(MIXING[name]))
    assert runs[1] >= 4  # sizes; by vmap, or with one group, it takes more


@pytest.mark.parametrize("heads", ["separate", hf.LowRank(2), hf.LoRA(2)], ids=str)
def test_products_and_chains(heads):
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    net = hf.HyperNet(mainnet, hf.Embedding(4, given=True, per="net"), heads=heads, trunk=(8,))
    net.mainnet.runs = 0
    assert_equals_a_loop(net, *build(ROW_WISE["sines"])[1:])


@pytest.mark.parametrize(
    ("cost", "buckets"),
    [(0, [[1], [2], [4], [9]]), (1, [[1, 2], [4], [9]]), (5, [[1, 2, 4], [9]]), (100, [[1, 2, 4, 9]])],
)
def test_sizes_run_together_where_padding_costs_less_than_a_call(monkeypatch, cost, buckets):
    monkeypatch.setattr(ragged, "CALL_COST", cost)
    given = ragged.Ragged((4, 1, 0, 2, 9), None, (torch.zeros(16, 1),), {})
    assert given._buckets([1, 2, 4, 9], 1) == buckets
    many = ragged.Ragged((1, 1, 1, 2), None, (torch.zeros(5, 1),), {})  # each of the small ones is padded
    assert many._buckets([1, 2], 1) == ([[1, 2]] if cost >= 3 else [[1], [2]])
    net, x, e = build(ROW_WISE["sines"])
    monkeypatch.setattr(ragged, "CALL_COST", cost * WIDTH * 7)
    assert_equals_a_loop(net, x, e)


def test_a_row_that_only_zeros_would_break_has_its_gradient():
    net, x, e = build(lambda self, z: (z * z).sqrt().log())
    (grad,) = torch.autograd.grad(net(x, embedding=e, counts=COUNTS).sum(), x)
    assert grad.isfinite().all()


def test_a_mainnet_that_mixes_rows_is_asked_once():
    net, x, e = build(MIXING["the mean"])
    net(x, embedding=e, counts=COUNTS)
    for counts in ((2, 1, 3, 5, 0), (4, 4, 2, 1, 0)):
        net.mainnet.runs = 0
        net(x, embedding=e, counts=counts)
        assert net.mainnet.runs == len(set(counts) - {0})


def test_a_refusal_of_padding_comes_before_any_other_call():
    net, x, e = build(MIXING["the mean"])
    net.mainnet.runs = 0
    rows = torch.cat([x[:1], x[:1].expand(4001, -1)])
    net(rows, embedding=e[:3], counts=(1, 2000, 2001))  # of which the last two would be padded
    assert net.mainnet.runs <= 4  # one try, and a call for each size


def test_rows_that_are_numbers_are_not_padded():
    """What would be padded are the features."""
    net = hf.HyperNet(nn.Linear(3, 3), hf.Embedding(4, given=True, per="net"))
    with pytest.raises((RuntimeError, hf.HyperfanError)):
        net(torch.randn(5), embedding=torch.randn(2, 4), counts=(2, 3))
