"""From a module to a Spec: what is known without an example, what is given, what is tied, and what stays as it was."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from mainnets import Applied, Between, between
from torch import nn

from hyperfan.errors import HyperfanWarning, InitError, MainnetError
from hyperfan.formulas import Fans
from hyperfan.mainnet import Use, read, rule

X = torch.randn(5, 4)


def relu_between(*before):
    return nn.Sequential(*before, nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


# ---------------------------------------------------------------- the mainnet stays as it was


class Noisy(nn.Module):
    """Draws noise even in eval mode."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.second(F.dropout(self.first(x + torch.randn_like(x)), 0.5))


class Counting(nn.Module):
    """Counts its calls, in place and by a new tensor."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return self.layer(x - self.mean)


def half_frozen():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 4), nn.BatchNorm1d(4))
    net[1].eval()
    return net


UNCHANGED = {
    "batch norm, partly frozen": half_frozen,
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8),
    "random slopes": lambda: nn.Sequential(nn.Linear(4, 4), nn.RReLU(), nn.Linear(4, 4)),
    "in-place activations": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
    "noise": Noisy,
    "a counter": Counting,
}


@pytest.mark.parametrize("example", [True, False], ids=["example", "no example"])
@pytest.mark.parametrize("make", UNCHANGED.values(), ids=UNCHANGED)
def test_reading_changes_nothing(make, example):
    net = make()
    values = copy.deepcopy(net.state_dict())
    objects = {name: id(t) for name, t in [*net.named_parameters(), *net.named_buffers()]}
    modes = {name: m.training for name, m in net.named_modules()}
    x, random, enabled = X.clone(), torch.get_rng_state(), torch.is_grad_enabled()
    read(net, x if example else None, warn=False)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, X)
    assert torch.is_grad_enabled() == enabled
    assert {name: m.training for name, m in net.named_modules()} == modes
    assert {name: id(t) for name, t in [*net.named_parameters(), *net.named_buffers()]} == objects
    assert all(torch.equal(now, values[name]) for name, now in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


# ---------------------------------------------------------------- without an example


class Norming(nn.Module):
    """A norm with an activation inside."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return F.relu(self.norm(x))


class NormActivation(nn.BatchNorm1d):
    """The same by inheritance, as timm has it."""

    def forward(self, x):
        return F.relu(super().forward(x))


class LinearReLU(nn.Linear):
    def forward(self, x):
        return F.relu(super().forward(x))


class Dense(nn.Sequential):
    """A Sequential with another forward, as torchvision's DenseNet once was."""

    def forward(self, x):
        return torch.cat([x, super().forward(x)], dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.layer(x))


def picky(x):
    assert x.ndim == 2, "only batches"
    return F.relu(x)


SEQUENTIALS = {
    "plain": relu_between(),
    "nested": nn.Sequential(relu_between(), nn.Sequential(nn.Tanh(), nn.Sequential(nn.Dropout(), nn.Linear(4, 2)))),
    "empty inside": nn.Sequential(nn.Linear(4, 4), nn.Sequential(), nn.Linear(4, 4)),
    "starts with an activation": nn.Sequential(nn.Tanh(), nn.Linear(4, 4), nn.Sigmoid()),
    "activation of the user's own": nn.Sequential(nn.Linear(4, 4), Applied(lambda z: z * z.sigmoid()), nn.Linear(4, 4)),
    "a module twice": (lambda relu: nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu))(nn.ReLU()),
    "norm": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4)),
    "norm without parameters": nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 4)
    ),
    "gate": nn.Sequential(nn.Linear(4, 8), nn.GLU(), nn.Linear(4, 4)),
    "softmax": nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 4)),
    "flattened": nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 4)),
}


@pytest.mark.parametrize("net", SEQUENTIALS.values(), ids=SEQUENTIALS)
def test_a_sequential_is_read_the_same_with_and_without_an_example(net):
    assert between(read(net)) == between(read(net, X))
    assert [t.consumes for t in read(net)] == [t.consumes for t in read(net, X)]


STOPPING = {
    "a module with weights": (nn.Sequential(nn.Linear(4, 4), Block(), nn.Linear(4, 4)), ["1.layer", "2"]),
    "a norm with an activation": (nn.Sequential(nn.Linear(4, 4), Norming(), nn.Linear(4, 4)), ["2"]),
    "a norm that is more": (nn.Sequential(nn.Linear(4, 4), NormActivation(4), nn.Linear(4, 4)), ["2"]),
    "a layer that is more": (nn.Sequential(LinearReLU(4, 4), nn.Linear(4, 4)), ["1"]),
    "a Sequential that is more": (
        nn.Sequential(nn.Linear(4, 4), Dense(nn.Linear(4, 4)), nn.Linear(8, 4)),
        ["1.0", "2"],
    ),
    "picky": (nn.Sequential(nn.Linear(4, 4), Applied(picky), nn.Linear(4, 4)), ["2"]),
    "not a tensor": (nn.Sequential(nn.Linear(4, 4), nn.RNN(4, 4)), ["1"]),
}


@pytest.mark.parametrize(("net", "unknown"), STOPPING.values(), ids=STOPPING)
def test_knowledge_ends_at_a_module_that_may_do_anything(net, unknown):
    spec = read(net, warn=False)
    assert set(unknown) <= {t.layer for t in spec if t.role == "weight" and t.consumes is None}


def test_a_sequential_with_another_forward_needs_an_example():
    net = Dense(nn.ReLU(), nn.Linear(4, 4))
    assert between(read(net, warn=False)) == {"1.weight": (None, None)}
    assert between(read(net, X)) == {"1.weight": ("relu", "linear")}


def test_what_is_not_known_is_warned_about_by_name_with_the_call_that_mends_it():
    net = Between(nn.ReLU())
    with pytest.warns(HyperfanWarning, match=r"around first\.weight, second\.weight is not known.*example=") as caught:
        read(net)
    assert caught[0].filename == __file__
    given = eval(str(caught[0].message).partition("nonlinearity=")[2].partition(",")[0])
    assert between(read(net, nonlinearity=given, warn=False))["second.weight"][0] == "relu"


# ---------------------------------------------------------------- given by the user


class Three(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


def test_one_name_is_for_all_hidden_layers():
    assert between(read(Three(), nonlinearity="relu")) == {
        "a.weight": ("linear", "relu"),
        "b.weight": ("relu", "relu"),
        "c.weight": ("relu", "linear"),
    }


def test_names_by_layer():
    given = {"a": "relu", "b": "gelu", "c": "linear"}
    assert between(read(Three(), nonlinearity=given)) == {
        "a.weight": ("linear", "relu"),
        "b.weight": ("relu", "gelu"),
        "c.weight": ("gelu", "linear"),
    }
    partly = read(Three(), nonlinearity={"b": "gelu"}, warn=False)
    assert between(partly) == {"a.weight": ("linear", None), "b.weight": (None, "gelu"), "c.weight": ("gelu", "linear")}


def test_a_name_overrides_what_the_example_shows():
    assert between(read(Three(), X, nonlinearity={"a": "relu"})) == {
        "a.weight": ("linear", "relu"),
        "b.weight": ("relu", "tanh"),
        "c.weight": ("tanh", "linear"),
    }


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"aa": "relu"}, MainnetError, "'aa', which is no layer with a weight: did you mean 'a'"),
        ({"zzz": "relu"}, MainnetError, "known: a, b, c"),
        ({"a": "rleu"}, InitError, "unknown nonlinearity 'rleu': did you mean 'relu'"),
        ("rleu", InitError, "did you mean 'relu'"),
    ],
)
def test_misspelt_names(given, error, message):
    with pytest.raises(error, match=message):
        read(Three(), nonlinearity=given)


# ---------------------------------------------------------------- tied, nested, ruled, impossible


def test_a_module_used_twice_is_one_tensor_with_two_names():
    layer = nn.Linear(4, 4)
    net = nn.Sequential(layer, nn.Tanh(), layer)
    spec = read(net)
    assert [(t.name, t.aliases) for t in spec] == [("0.weight", ("2.weight",)), ("0.bias", ("2.bias",))]
    assert spec["2.weight"] is spec["0.weight"]
    assert spec["2.bias"].weights == ("0.weight",)
    assert spec["2.bias"].fans == spec["0.weight"].fans


class Language(nn.Module):
    """An embedding whose weight is the decoder's too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.hidden = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 10)
        self.decoder.weight = self.embedding.weight

    def forward(self, i):
        return self.decoder(F.gelu(self.hidden(self.embedding(i))))


def test_a_tied_weight_has_the_fans_of_its_larger_use_and_reads_what_that_use_reads():
    spec = read(Language(), torch.arange(5))
    tied = spec["embedding.weight"]
    assert [t.name for t in spec] == ["embedding.weight", "hidden.weight", "hidden.bias", "decoder.bias"]
    assert tied.aliases == ("decoder.weight",)
    assert (tied.fans.fan_in, tied.fans.fan_out, tied.kind) == (6, 10, "Linear")
    assert tied.consumes.name == "gelu"


def test_a_bias_beside_a_tied_weight_finds_it():
    spec = read(Language(), torch.arange(5))
    assert spec["decoder.bias"].fans == spec["decoder.weight"].fans
    assert spec["decoder.bias"].consumes == spec["decoder.weight"].consumes


def test_names_and_layers_of_nested_modules():
    net = nn.ModuleDict({"body": nn.Sequential(Block(), Block()), "head": nn.Linear(4, 2)})
    found = {t.name: (t.layer, t.kind, t.shape) for t in read(net, warn=False)}
    assert found == {
        "body.0.layer.weight": ("body.0.layer", "Linear", (4, 4)),
        "body.0.layer.bias": ("body.0.layer", "Linear", (4,)),
        "body.1.layer.weight": ("body.1.layer", "Linear", (4, 4)),
        "body.1.layer.bias": ("body.1.layer", "Linear", (4,)),
        "head.weight": ("head", "Linear", (2, 4)),
        "head.bias": ("head", "Linear", (2,)),
    }


class Matrix(nn.Module):
    """A layer of the user's own, kept as (in, out)."""

    def __init__(self, n, m):
        super().__init__()
        self.W = nn.Parameter(torch.randn(n, m))
        self.b = nn.Parameter(torch.zeros(m))
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x @ self.W + self.b


class Special(Matrix):
    """A subclass of it."""


class Unruled(nn.Module):
    """Like it, but with no rule."""

    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return x @ self.W


@rule(Matrix)
def _(layer):
    n, m = layer.W.shape
    return {"W": Use("weight", Fans(n, m)), "b": Use("bias", weight="W")}


@pytest.mark.parametrize("kind", [Matrix, Special])
@pytest.mark.parametrize("example", [X, None], ids=["example", "no example"])
def test_a_rule_of_the_users_own(kind, example):
    spec = read(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), kind(3, 5), nn.Tanh()), example)
    assert (spec["2.W"].role, spec["2.W"].fans) == ("weight", Fans(3, 5))
    assert between(spec)["2.W"] == ("relu", "tanh")
    assert (spec["2.b"].role, spec["2.b"].weights, spec["2.b"].fans) == ("bias", ("2.W",), Fans(3, 5))
    assert spec["2.temperature"].role == "other"


def test_the_nearest_rule_counts():
    @rule(Special)
    def _(layer):
        return {"W": Use("scale", start=1.0)}

    try:
        assert read(Special(4, 4), warn=False)["W"].role == "scale"
        assert read(Matrix(4, 4), warn=False)["W"].role == "weight"
    finally:
        rule(Special)(lambda layer: {"W": Use("weight", Fans(*layer.W.shape)), "b": Use("bias", weight="W")})


def test_a_parameter_without_a_rule_has_no_role_until_it_is_seen_at_work():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Unruled(), nn.Linear(4, 4))
    assert (read(net, warn=False)["2.W"].role, read(net, warn=False)["2.W"].fans) == ("other", None)
    spec = read(net, X)
    assert (spec["2.W"].role, spec["2.W"].fans) == ("weight", Fans(4, 4))
    assert between(spec) == {
        "0.weight": ("linear", "relu"),
        "2.W": ("relu", "linear"),
        "3.weight": ("linear", "linear"),
    }


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Sequential(nn.LazyLinear(4)), "'0.weight' of a lazy module has no shape yet: run the mainnet once"),
        (nn.LazyConv2d(4, 3), "'weight' of a lazy module"),
        (nn.Sequential(nn.ReLU(), nn.Flatten()), "Sequential has no parameters, so there is nothing to generate"),
        (nn.BatchNorm1d(4, affine=False), "BatchNorm1d has no parameters"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_mainnets_that_cannot_be_read(net, message):
    with pytest.raises(MainnetError, match=message):
        read(net)


# ---------------------------------------------------------------- the Spec itself


def test_a_spec_is_a_value():
    spec = read(relu_between())
    assert spec == read(relu_between())
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert len(spec) == 4
    assert spec["0.weight"].numel == 16
    with pytest.raises(AttributeError):
        spec["0.weight"].name = "other"
    assert spec != read(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))


def test_a_spec_knows_which_name_was_meant():
    with pytest.raises(MainnetError, match=r"no parameter '0\.wieght': did you mean '0\.weight'"):
        read(relu_between())["0.wieght"]


def test_a_spec_prints_what_is_not_known_as_a_question():
    rows = str(read(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), Block()), warn=False)).splitlines()
    assert rows[0].split() == ["tensor", "shape", "role", "layer", "fan-in", "fan-out", "consumes", "followed", "by"]
    cells = {row.split()[0]: row.split()[2:] for row in rows[2:]}
    assert cells["0.weight"] == ["weight", "Linear", "4", "4", "linear", "?"]
    assert cells["1.weight"] == ["scale", "LayerNorm", "–", "–", "–", "–"]
    assert cells["2.layer.weight"] == ["weight", "Linear", "4", "4", "?", "?"]
