"""Weights without a rule, known by what a traced run does with them."""

import math

import pytest
import torch
import torch.nn.functional as F
from mainnets import between, branches
from torch import nn

from hyperfan.errors import HyperfanWarning
from hyperfan.formulas import Fans
from hyperfan.mainnet import read, select

WIDTH, OUT = 8, 5


class Raw(nn.Module):
    """A parameter of this shape, and a function of it, of a vector and of the input."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function = function
        self.W = nn.Parameter(torch.randn(shape))
        self.b = nn.Parameter(torch.zeros(OUT))

    def forward(self, x):
        return self.function(x, self.W, self.b)


def conv1d(x, w, b):
    """As GPT-2 has it: a transposed weight."""
    return torch.addmm(b, x.view(-1, x.shape[-1]), w).view(*x.shape[:-1], OUT)


def experts(x, w, b):
    """As Mixtral has it: a weight for each expert, in one tensor."""
    return torch.cat([F.linear(part, w[i]) for i, part in enumerate(x.chunk(3))])


def chosen_experts(x, w, b):
    """The expert that the input chooses."""
    best = x[..., :3].argmax(-1)
    return torch.bmm(w[best], x.unsqueeze(-1)).squeeze(-1)


LAYERS = {
    "linear": (lambda x, w, b: F.linear(x, w, b), (OUT, WIDTH), "bias"),
    "linear, by name": (lambda x, w, b: F.linear(x, bias=b, weight=w), (OUT, WIDTH), "bias"),
    "addmm": (conv1d, (WIDTH, OUT), "bias"),
    "a product": (lambda x, w, b: x @ w + b, (WIDTH, OUT), "bias"),
    "a product from the left": (lambda x, w, b: (w @ x.mT).mT, (OUT, WIDTH), "other"),
    "transposed when used": (lambda x, w, b: torch.matmul(x, w.t()), (OUT, WIDTH), "other"),
    "cast when used": (lambda x, w, b: torch.mm(x, w.to(x.dtype).T.contiguous()), (OUT, WIDTH), "other"),
    "an einsum": (lambda x, w, b: torch.einsum("ni,io->no", x, w), (WIDTH, OUT), "other"),
    "heads": (lambda x, w, b: torch.einsum("...i,hdi->...hd", x, w).squeeze(-2), (1, OUT, WIDTH), "other"),
    "experts": (experts, (3, OUT, WIDTH), "other"),
    "experts by choice": (chosen_experts, (3, OUT, WIDTH), "other"),
}


@pytest.mark.parametrize(("function", "shape", "b"), LAYERS.values(), ids=LAYERS)
def test_a_product_with_a_parameter_is_a_layer(function, shape, b):
    """The oracle counts terms: of ones, what each output sums up, and each input's gradient, are the fans."""
    module = Raw(function, *shape)
    spec = read(nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), module, nn.Tanh(), nn.Linear(OUT, 3)), torch.randn(6, 4))
    assert (spec["2.W"].role, spec["2.b"].role) == ("weight", b)
    assert between(spec)["2.W"] == ("relu", "tanh")
    assert between(spec)["4.weight"][0] == "tanh"
    assert [t.name for t in select(spec, "weights")] == ["0.weight", "2.W", "4.weight"]
    if b == "bias":
        assert spec["2.b"].weights == ("2.W",)
        assert spec["2.b"].fans == spec["2.W"].fans
    nn.init.ones_(module.W)
    x = torch.ones(6, WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(module(x).sum(), x)
    assert (module(x) == spec["2.W"].fans.fan_in).all()
    assert (gradient == spec["2.W"].fans.fan_out).all()


@pytest.mark.parametrize(("function", "shape", "b"), LAYERS.values(), ids=LAYERS)
def test_the_side_of_inputs_is_known_of_square_weights_too(function, shape, b):
    square = [OUT if size == WIDTH else size for size in shape]
    assert read(Raw(function, *square), torch.randn(6, OUT))["W"].in_first == (shape[0] == WIDTH)


def test_inputs_come_first_in_transposed_convolutions():
    spec = read(nn.Sequential(nn.Conv1d(4, 4, 3), nn.ConvTranspose1d(4, 4, 3), nn.Linear(4, 4)), torch.randn(2, 4, 4))
    assert [t.in_first for t in spec if t.role == "weight"] == [False, True, False]
    module = Raw(lambda x, w, b: F.conv_transpose1d(x, w), OUT, OUT, 3)
    assert read(module, torch.randn(2, OUT, 4))["W"].in_first


def test_fans_of_fused_experts_are_those_of_one():
    spec = read(nn.Sequential(nn.Linear(4, WIDTH), Raw(experts, 3, OUT, WIDTH)), torch.randn(6, 4))
    assert spec["1.W"].fans == Fans(WIDTH, OUT)


def test_a_table_without_a_rule():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Parameter(torch.randn(10, 6)), nn.Linear(6, 2)

        def forward(self, i):
            return self.out(F.embedding(i, self.table))

    assert read(Words(), torch.arange(5))["table"].fans == Fans(1, 6)


NO_LAYERS = {
    "changed before": lambda x, w, b: x @ w.exp(),
    "a gate": lambda x, w, b: (x.unsqueeze(-1) * w).sum(1),
    "complex": lambda x, w, b: (x.to(torch.complex64) @ torch.complex(w, w)).real,
}


@pytest.mark.parametrize("function", NO_LAYERS.values(), ids=NO_LAYERS)
def test_what_is_not_clearly_a_weight_keeps_its_values(function):
    spec = read(nn.Sequential(nn.Linear(4, WIDTH), Raw(function, WIDTH, OUT)), torch.randn(6, 4), warn=False)
    assert spec["1.W"].role == "other"
    assert not spec["1.W"].elementwise


ELEMENTWISE = {
    "positions": lambda x, w, b: F.linear(x, w.new_ones(OUT, WIDTH)) + w,
    "a class token": lambda x, w, b: torch.cat([x[..., :OUT], w.expand(len(x), -1)], -1)[..., :OUT],
    "a gain": lambda x, w, b: x[..., :OUT] * w,
}


@pytest.mark.parametrize("function", ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_what_is_added_or_stands_beside_is_no_weight_and_no_warning_asks_for_a_rule(function):
    spec = read(nn.Sequential(nn.Linear(4, WIDTH), Raw(function, 1, OUT)), torch.randn(6, 4), warn=False)
    assert spec["1.W"].elementwise
    assert [t.name for t in select(spec, "weights")] == ["0.weight"]


def test_a_mask_with_parameters_is_no_weight_of_an_attention():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.table, self.out = nn.Linear(8, 24), nn.Parameter(torch.zeros(5, 5)), nn.Linear(8, 3)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=self.table))

    spec = read(Biased(), torch.randn(2, 5, 8))
    assert spec["table"].role == "other"
    assert spec["table"].elementwise
    assert between(spec)["out.weight"][0] == "attention"


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_by_their_function(transposed):
    """The oracle is the rule for the module."""
    kind, function = (nn.ConvTranspose2d, F.conv_transpose2d) if transposed else (nn.Conv2d, F.conv2d)
    module = kind(4, 6, (3, 2), stride=(1, 2), groups=2)

    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(module.weight.detach())

        def forward(self, x):
            return function(x, self.W, None, (1, 2), groups=2)

    x = torch.randn(2, 4, 9, 9)
    assert read(Raw(), x)["W"].fans == read(module, x)["weight"].fans


def test_what_reads_a_parametrized_layer_is_known():
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, WIDTH))
    spec = read(nn.Sequential(normed, nn.ReLU(), nn.Linear(WIDTH, 3)), torch.randn(6, 4), warn=False)
    assert spec["2.weight"].consumes.gains.forward == pytest.approx(2)
    with pytest.warns(HyperfanWarning, match=r"remove_parametrizations\(0, 'weight'\) writes it out"):
        select(spec, "weights")


# ---------------------------------------------------------------- tables that are added


class Positions(nn.Module):
    """Rows of a table by slicing, as Whisper's decoder has them, or all of them."""

    def __init__(self, sliced):
        super().__init__()
        self.sliced = sliced
        self.words, self.positions = nn.Embedding(10, WIDTH), nn.Embedding(6 if sliced else 5, WIDTH)
        self.out = nn.Linear(WIDTH, 2)

    def forward(self, i):
        rows = self.positions.weight[: i.shape[1]].to("cpu") if self.sliced else self.positions.weight
        return self.out(self.words(i) + rows)


@pytest.mark.parametrize("sliced", [True, False])
def test_rows_of_a_table_that_are_added_without_a_look_up(sliced):
    spec = read(Positions(sliced), torch.randint(0, 10, (3, 5)))
    assert between(spec) == dict.fromkeys(["words.weight", "positions.weight", "out.weight"], ("linear", "linear"))
    assert spec["out.weight"].scale_assumed  # a sum of two


def test_a_tied_bias_is_a_bias_if_one_of_its_modules_says_so():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(2))
            self.out = nn.Linear(4, 2)
            self.out.bias = self.bias

        def forward(self, x):
            return self.out(x)

    spec = read(Tied(), torch.randn(3, 4))
    assert (spec["bias"].role, spec["bias"].weights) == ("bias", ("out.weight",))


# ---------------------------------------------------------------- a state space


class StateSpace(nn.Module):
    """What Mamba's mixer owns."""

    def __init__(self):
        super().__init__()
        self.A_log, self.D = nn.Parameter(torch.zeros(8, 4)), nn.Parameter(torch.ones(8))
        self.inside, self.dt_proj, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.conv1d = nn.Conv1d(8, 8, 4, groups=8)

    def forward(self, x):
        step = F.softplus(self.dt_proj(x))
        decay = torch.exp(-step.unsqueeze(-1) * self.A_log.exp()).mean(-1)
        return self.out(self.inside(x) * decay + self.D * x)


def test_the_time_constants_of_a_state_space_keep_their_values():
    spec = read(StateSpace(), torch.randn(3, 8), warn=False)
    assert [t.name for t in select(spec, "weights")] == ["inside.weight", "out.weight"]
    assert not any(t.has_rule for t in spec if t.name.split(".")[0] in ("A_log", "D", "dt_proj", "conv1d"))
    assert [t.name for t in select(spec, "dt_proj.weight")] == ["dt_proj.weight"]  # a name is a name


# ---------------------------------------------------------------- attention


class Attention(nn.Module):
    """One head, as the product of queries and keys is written."""

    def __init__(self, scores, packed=False, norm=None):
        super().__init__()
        self.scores, self.norm = scores, norm or nn.Identity()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.packed = nn.Linear(WIDTH, 2 * WIDTH) if packed else None
        self.table = nn.Embedding(7, 7)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k = (self.q(x), self.k(x)) if self.packed is None else self.packed(x).chunk(2, -1)
        mixed = self.scores(self.norm(q), k, self.v(x), self.table(torch.arange(7)))
        return x + self.out(mixed)


def eager(scale, bias=False):
    def attend(q, k, v, table):
        scores = torch.matmul(q, k.transpose(-1, -2)) * scale
        if bias:
            scores = scores + table
        scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -torch.inf)
        return torch.softmax(scores, -1) @ v

    return attend


def by_einsum(q, k, v, table):
    return torch.einsum("bqk,bkd->bqd", F.softmax(torch.einsum("bqd,bkd->bqk", q, k), dim=-1), v)


def fused(scale):
    return lambda q, k, v, table: F.scaled_dot_product_attention(q, k, v, scale=scale, attn_mask=table)


ROOT = math.sqrt(WIDTH)
SCORES = {
    "divided by √d": (eager(1 / ROOT), 1),
    "the query divided by √d": (lambda q, *rest: eager(1)(q / ROOT, *rest), 1),
    "fused, divided by √d": (fused(None), 1),
    "fused, with a scale": (fused(1 / ROOT), 1),
    "T5's": (eager(1, bias=True), WIDTH),
    "T5's, fused": (fused(1.0), WIDTH),
    "an einsum": (by_einsum, WIDTH),
    "divided by d": (eager(1 / WIDTH), 1),  # as μP has it: smaller logits are meant to be smaller
    "doubled": (eager(2 / ROOT), 4),
}


@pytest.mark.parametrize(("scores", "logits"), SCORES.values(), ids=SCORES)
def test_queries_know_the_logits_that_they_would_make(scores, logits):
    spec = read(Attention(scores), torch.randn(2, 7, WIDTH), warn=False)
    assert {t.name: t.logits for t in spec if t.logits != 1} == (
        {} if logits == 1 else {name: pytest.approx(logits) for name in ("q.weight", "q.bias")}
    )
    assert branches(spec) == {"out.weight": 1}
    assert between(spec)["out.weight"] == ("attention", "linear")


def test_a_layer_that_makes_more_than_queries_is_left_alone():
    for net in (Attention(eager(1), packed=True), Attention(eager(1), norm=nn.LayerNorm(WIDTH))):
        assert all(t.logits == 1 for t in read(net, torch.randn(2, 7, WIDTH), warn=False))


# ---------------------------------------------------------------- sums


class LoRA(nn.Module):
    """A layer with a low-rank update, as PEFT has it."""

    def __init__(self, width, out):
        super().__init__()
        self.base = nn.Linear(width, out)
        self.a, self.b = nn.Linear(width, 2, bias=False), nn.Linear(2, out, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(F.dropout(x, 0.1, self.training))) * 0.5


class Block(nn.Module):
    """Attention without positions and an MLP, one after the other or side by side, before or after their norm."""

    def __init__(self, order, linear):
        super().__init__()
        self.order = order
        self.norm, self.other = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = linear(WIDTH, 16), linear(WIDTH, 16), linear(16, WIDTH)

    def attention(self, x):
        return self.o(F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))

    def mlp(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x):
        if self.order == "pre":
            x = x + self.attention(self.norm(x))
            return x + self.mlp(self.other(x))
        if self.order == "post":
            x = self.norm(x + self.attention(x))
            return self.other(x + self.mlp(x))
        if self.order == "sandwich":
            x = x + self.norm(self.attention(self.norm(x)))
            return x + self.other(self.mlp(self.other(x)))
        h = self.norm(x)
        if self.order == "parallel":
            return (self.mlp(h) + self.attention(h)) + x
        return x + self.attention(h) + self.mlp(h)


@pytest.mark.parametrize("linear", [nn.Linear, LoRA])
@pytest.mark.parametrize("order", ["pre", "post", "sandwich", "parallel", "parallel, one by one"])
def test_every_branch_of_a_transformer_is_counted_once(order, linear):
    net = nn.Sequential(nn.Linear(4, WIDTH), *(Block(order, linear) for _ in range(3)), nn.Linear(WIDTH, 2))
    found = branches(read(net, torch.randn(2, 7, 4)))
    ends = ["weight"] if linear is nn.Linear else ["base.weight", "b.weight"]
    assert found == {f"{i}.{layer}.{end}": 6 for i in (1, 2, 3) for layer in ("o", "down") for end in ends}


def test_a_low_rank_update_is_no_residual_block_but_a_projected_shortcut_is():
    """What tells them apart is the nonlinearity."""

    class Projected(LoRA):
        def forward(self, x):
            return self.base(x) + self.b(F.relu(self.a(x)))

    x = torch.randn(5, 4)
    assert branches(read(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), LoRA(8, 3)), x)) == {}
    assert branches(read(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), Projected(8, 3)), x)) == {"2.b.weight": 1}
