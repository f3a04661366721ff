"""Norms are recognised by what they do, whoever wrote them; what is not quite a norm is not taken for one."""

import pytest
import torch
import torch.nn.functional as F
from mainnets import ROUGH, Applied, Between, between, consumed, pair
from torch import nn

from hyperfan.errors import MainnetError
from hyperfan.mainnet import Use, read, rule

WIDTH = 32
X = torch.randn(5, 4)


def llama(z):
    """Computed in float32, as most language models do."""
    wide = z.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return wide.to(z.dtype)


def t5(z):
    variance = z.to(torch.float32).pow(2).mean(-1, keepdim=True)
    return z * torch.rsqrt(variance + 1e-6)


def gemma(z):
    wide = z.float()
    return (wide * torch.pow(wide.square().mean(-1, keepdim=True) + 1e-6, -0.5)).type_as(z)


def layer_norm(z):
    mean = z.mean(-1, keepdim=True)
    return (z - mean) / (z.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()


def centred_twice(z):
    """The variance of what is centred already."""
    z = z - z.mean(-1, keepdim=True)
    return z / torch.sqrt(torch.mean(z * z, dim=-1, keepdim=True) + 1e-5)


def var_mean(z):
    variance, mean = torch.var_mean(z, -1, correction=0, keepdim=True)
    return (z - mean) * torch.rsqrt(variance + 1e-5)


def in_place(z):
    z = z.clone()
    z -= z.mean(-1, keepdim=True)
    z /= z.std(-1, keepdim=True, correction=0) + 1e-6
    return z


def group_norm(z):
    groups = z.unflatten(-1, (4, -1))
    groups = groups - groups.mean(-1, keepdim=True)
    return (groups / groups.pow(2).mean(-1, keepdim=True).add(1e-5).sqrt()).flatten(-2)


def batch_norm(z):
    return (z - z.mean(0)) / z.var(0, correction=0).add(1e-5).sqrt()


NORMS = {
    "Llama": llama,
    "T5": t5,
    "Gemma": gemma,
    "by the norm of a vector": lambda z: z / (z.norm(dim=-1, keepdim=True) * WIDTH**-0.5 + 1e-8),
    "by linalg's norm": lambda z: WIDTH**0.5 * z / torch.linalg.vector_norm(z, dim=-1, keepdim=True),
    "to length √d": lambda z: F.normalize(z, dim=-1) * WIDTH**0.5,
    "sum of squares": lambda z: z * ((z * z).sum(-1, keepdim=True) / WIDTH + 1e-6) ** -0.5,
    "of a ReLU": lambda z: llama(F.relu(z)),
    "layer norm": layer_norm,
    "layer norm, centred twice": centred_twice,
    "layer norm by var_mean": var_mean,
    "layer norm in place": in_place,
    "group norm": group_norm,
    "batch norm": batch_norm,
    "twice": lambda z: llama(llama(z)),
    "turned round": lambda z: z / -z.square().mean(-1, keepdim=True).sqrt(),
}


@pytest.mark.parametrize("function", NORMS.values(), ids=NORMS)
def test_after_a_norm_the_gain_is_linear(function):
    found = read(Between(function, WIDTH), torch.randn(8, 4), warn=False)["second.weight"]
    assert pair(found.consumes.gains) == pytest.approx((1, 1), rel=ROUGH)
    assert not found.scale_assumed  # though the batch of the example is neither normal nor of unit scale


OTHER_SCALES = {
    "to unit length": (lambda z: F.normalize(z, dim=-1), 1 / WIDTH),
    "to unit length by hand": (lambda z: z / z.norm(dim=-1, keepdim=True).clamp_min(1e-12), 1 / WIDTH),
    "an unbiased deviation": (lambda z: (z - z.mean(-1, keepdim=True)) / z.std(-1, keepdim=True), 1 - 1 / WIDTH),
    "a constant gain": (lambda z: 3 * llama(z), 9),
}


@pytest.mark.parametrize(("function", "mean_square"), OTHER_SCALES.values(), ids=OTHER_SCALES)
def test_a_norm_may_set_another_mean_square(function, mean_square):
    assert consumed(function, WIDTH).gains.forward == pytest.approx(1 / mean_square, rel=1e-3)


NOT_NORMS = {
    "the mean of absolute values": lambda z: z / z.abs().mean(-1, keepdim=True),  # depends on the distribution
    "the largest": lambda z: z / z.abs().amax(-1, keepdim=True),
    "one more than the root mean square": lambda z: z / (1 + z.square().mean(-1, keepdim=True).sqrt()),
    "the variance": lambda z: z / z.var(-1, keepdim=True),
    "times the deviation": lambda z: z * z.std(-1, keepdim=True),
    "not centred": lambda z: z / z.std(-1, keepdim=True),  # 1 only if the mean happens to be zero
    "another one's deviation": lambda z: z / z.flip(0).std(-1, keepdim=True),
    "its square": lambda z: z * z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True)),
    "a winner": lambda z: F.one_hot(z.argmax(-1), z.shape[-1]).to(z.dtype) * z.softmax(-1).sum(-1, keepdim=True),
    "ranks": lambda z: z.argsort(-1).argsort(-1).to(z.dtype) * z.softmax(-1).sum(-1, keepdim=True),
    "softmax": lambda z: z.softmax(-1),
}


@pytest.mark.parametrize("function", NOT_NORMS.values(), ids=NOT_NORMS)
def test_what_is_no_norm_is_not_known(function):
    assert consumed(function, WIDTH).gains is None


# ---------------------------------------------------------------- gains and shifts


class Norm(nn.Module):
    """A norm with a gain in one of several places."""

    def __init__(self, gain, where="after", shift=None):
        super().__init__()
        self.gain, self.where = nn.Parameter(gain), where
        self.shift = nn.Parameter(torch.zeros_like(gain)) if shift else None

    def forward(self, z):
        root = torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.where == "inside":
            return z * (root * self.gain)
        z = (z * root * (1.0 + self.gain.float() if self.where == "one more" else self.gain)).type_as(z)
        return z if self.shift is None else z + self.shift


TRAINED = torch.linspace(0.1, 1.2, 8)
GAINS = {
    "Llama's": (Norm(torch.ones(8)), 1, 1.0),
    "Llama's, trained": (Norm(TRAINED), TRAINED.square().mean().item(), 1.0),
    "Gemma's": (Norm(torch.zeros(8), "one more"), 1, 0.0),
    "Gemma's, trained": (Norm(TRAINED - 1, "one more"), TRAINED.square().mean().item(), 0.0),
    "small": (Norm(torch.full((8,), 0.25)), 1 / 16, 0.25),
    "multiplied first": (Norm(TRAINED, "inside"), TRAINED.square().mean().item(), None),
}


@pytest.mark.parametrize(("norm", "mean_square", "start"), GAINS.values(), ids=GAINS)
def test_a_gain_counts_by_its_mean_square_and_is_known_as_a_scale(norm, mean_square, start):
    spec = read(Between(norm), X)
    assert spec["second.weight"].consumes.gains.forward == pytest.approx(1 / mean_square, rel=1e-5)
    assert (spec["function.gain"].role, spec["function.gain"].start) == ("other" if start is None else "scale", start)


def test_a_norm_by_hand_has_a_scale_and_a_shift():
    spec = read(Between(Norm(torch.ones(8), shift=True)), X)
    assert {t.name: (t.role, t.start) for t in spec if t.layer == "function"} == {
        "function.gain": ("scale", 1.0),
        "function.shift": ("shift", 0.0),
    }


def test_what_is_added_to_a_normed_tensor_elsewhere_is_no_shift():
    class Positions(Between):
        def __init__(self):
            super().__init__(Norm(torch.ones(8)))
            self.positions = nn.Parameter(torch.randn(5, 8))

        def forward(self, x):
            return self.second(self.function(self.first(x)) + self.positions)

    assert read(Positions(), X)["positions"].role == "other"


def test_the_gain_of_torchs_norms_counts_too():
    norm = nn.LayerNorm(8)
    nn.init.constant_(norm.weight, 0.5)
    net = nn.Sequential(nn.Linear(4, 8), norm, nn.Linear(8, 3))
    assert pair(read(net, X)["2.weight"].consumes.gains) == pytest.approx((4, 4), rel=ROUGH)
    assert read(net) == read(net, X)
    nn.init.zeros_(norm.weight)  # as residual branches may start: what it will become is not zero
    assert between(read(net, X))["2.weight"] == ("linear", "linear")


# ---------------------------------------------------------------- where it stands


def test_what_comes_after_a_norm_is_what_follows_the_layer():
    spec = read(Between(lambda z: F.relu(llama(z))), X)
    assert between(spec) == {"first.weight": ("linear", "relu"), "second.weight": ("relu", "linear")}
    spec = read(Between(lambda z: llama(torch.tanh(z))), X)
    assert between(spec) == {"first.weight": ("linear", "tanh"), "second.weight": ("linear", "linear")}


def test_in_a_sequential_no_example_is_needed():
    net = nn.Sequential(nn.Linear(4, 8), Applied(llama), nn.Linear(8, 3))
    assert between(read(net)) == between(read(net, X)) == {"0.weight": ("linear",) * 2, "2.weight": ("linear",) * 2}


@pytest.mark.parametrize("norm", [lambda: Applied(llama), lambda: Norm(torch.zeros(8), "one more"), Applied])
def test_a_norm_is_the_same_on_the_meta_device_and_in_other_precisions(norm):
    make = (lambda: Applied(layer_norm)) if norm is Applied else norm
    spec = read(Between(make()), X)
    assert read(Between(make()).to("meta"), X) == spec
    half = read(Between(make()).bfloat16(), X.bfloat16())
    assert half["second.weight"].consumes == spec["second.weight"].consumes


# ---------------------------------------------------------------- declared


class ByTheLargest(nn.Module):
    """No norm that can be recognised, followed by a gain."""

    def __init__(self, width):
        super().__init__()
        self.g = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, z):
        return self.g * z / z.abs().amax(-1, keepdim=True)


class Declared(ByTheLargest):
    """The same with a rule."""


class WithoutParameters(nn.Module):
    def forward(self, z):
        return z.softmax(-1)


@rule(Declared, norm=True)
def _(module):
    return {"g": Use("scale", start=1.0)}


@rule(WithoutParameters, norm=True)
def _(module):
    return {}


def test_a_norm_can_be_declared():
    assert read(Between(ByTheLargest(8)), X)["second.weight"].consumes.gains is None
    spec = read(Between(Declared(8)), X)
    assert spec["second.weight"].consumes.gains.forward == pytest.approx(4)
    assert spec["function.g"].role == "scale"
    assert between(read(Between(WithoutParameters()), X))["second.weight"] == ("linear", "linear")
    net = nn.Sequential(nn.Linear(4, 8), Declared(8), nn.ReLU(), nn.Linear(8, 3))
    assert read(net)["3.weight"].consumes.gains.forward == pytest.approx(8, rel=ROUGH)
    assert read(net) == read(net, X)
    assert read(net)["0.weight"].followed_by.gains == read(net, X)["3.weight"].consumes.gains


def test_the_rule_of_a_subclass_may_say_that_it_is_no_norm():
    class More(Declared):
        """A norm and an activation."""

        def forward(self, z):
            return torch.tanh(super().forward(z))

    rule(More)(lambda module: {"g": Use("scale", start=1.0)})
    assert read(Between(More(8)), X)["second.weight"].consumes.gains is None


def test_a_rule_for_something_else_says_so():
    with pytest.raises(MainnetError, match=r"name the module classes"):
        rule("LayerNorm", norm=True)


# ---------------------------------------------------------------- a name given instead


class Parallel(nn.Module):
    """Two layers that read a third, and one that reads what nobody knows."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        h = torch.softmax(self.a(x), -1)
        return self.d(torch.tanh(self.b(h) + self.c(h)))


def test_a_name_reaches_the_layers_that_read_the_named_one_and_no_other():
    assert between(read(Parallel(), X, nonlinearity={"a": "relu"})) == {
        "a.weight": ("linear", "relu"),
        "b.weight": ("relu", "tanh"),
        "c.weight": ("relu", "tanh"),
        "d.weight": ("tanh", "linear"),
    }


def test_a_name_does_not_say_whose_variance_is_read():
    """A sum has not the variance of the layer that happens to be listed before its reader."""
    spec = read(Parallel(), X, nonlinearity="linear")
    assert {t.name: t.reads for t in spec if t.role == "weight"} == dict.fromkeys(
        ["a.weight", "b.weight", "c.weight", "d.weight"]
    )
