"""Every elementwise activation of torch, in every way of writing it, has the gains of its formula."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from mainnets import CELL, ROUGH, Applied, Between, consumed, pair
from torch import Tensor, nn

from gain_oracle import ACTIVATIONS, gains
from hyperfan.mainnet import read

# (name and settings of the formula) → ways of writing it
FORMS = {
    ("relu",): [
        nn.ReLU(), nn.ReLU(inplace=True), F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_,
        lambda z: F.relu(z, True), lambda z: z.clamp(min=0), lambda z: z.clamp_(min=0), lambda z: torch.clamp_min(z, 0),
        lambda z: torch.maximum(z, torch.tensor(0.0)), lambda z: (z + z.abs()) / 2,
    ],
    ("relu6",): [nn.ReLU6(), nn.ReLU6(inplace=True), F.relu6, lambda z: z.clamp(0, 6)],
    ("leaky_relu",): [nn.LeakyReLU(), nn.LeakyReLU(inplace=True), F.leaky_relu, F.leaky_relu_],
    ("leaky_relu", 0.2): [
        nn.LeakyReLU(0.2), lambda z: F.leaky_relu(z, 0.2), lambda z: F.leaky_relu(z, negative_slope=0.2, inplace=True),
        lambda z: torch.maximum(z, 0.2 * z), lambda z: F.relu(z) - 0.2 * F.relu(-z),
    ],
    ("prelu",): [nn.PReLU(), nn.PReLU(8), lambda z: F.prelu(z, torch.full((8,), 0.25))],
    ("prelu", 0.1): [nn.PReLU(init=0.1), lambda z: F.prelu(z, torch.tensor([0.1]))],
    ("rrelu",): [
        nn.RReLU(), nn.RReLU(inplace=True), F.rrelu, F.rrelu_, torch.rrelu, torch.rrelu_,
        lambda z: F.rrelu(z, training=True),
    ],
    ("rrelu", 0.1, 0.9): [
        nn.RReLU(0.1, 0.9), lambda z: F.rrelu(z, 0.1, 0.9), lambda z: F.rrelu(z, lower=0.1, upper=0.9),
    ],
    ("elu",): [nn.ELU(), nn.ELU(inplace=True), F.elu, F.elu_],
    ("elu", 2.0): [nn.ELU(2.0), lambda z: F.elu(z, 2.0), lambda z: F.elu(z, alpha=2.0, inplace=True)],
    ("celu",): [nn.CELU(), nn.CELU(inplace=True), F.celu, torch.celu, torch.celu_],
    ("celu", 0.5): [nn.CELU(0.5), lambda z: F.celu(z, 0.5)],
    ("selu",): [nn.SELU(), nn.SELU(inplace=True), F.selu, torch.selu, torch.selu_],
    ("gelu",): [nn.GELU(), F.gelu, lambda z: z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))],
    ("gelu", "tanh"): [
        nn.GELU("tanh"), lambda z: F.gelu(z, approximate="tanh"),
        lambda z: 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * torch.pow(z, 3)))),
    ],
    ("silu",): [
        nn.SiLU(), nn.SiLU(inplace=True), F.silu, lambda z: z * torch.sigmoid(z), lambda z: z.sigmoid().mul_(z),
    ],
    ("mish",): [nn.Mish(), nn.Mish(inplace=True), F.mish, lambda z: z * torch.tanh(F.softplus(z))],
    ("softplus",): [nn.Softplus(), F.softplus, lambda z: torch.log(1 + torch.exp(z)), lambda z: z.exp().log1p()],
    ("softplus", 2.0): [nn.Softplus(2.0), lambda z: F.softplus(z, 2.0)],
    ("tanh",): [
        nn.Tanh(), F.tanh, torch.tanh, Tensor.tanh, Tensor.tanh_,
        lambda z: (z.exp() - (-z).exp()) / (z.exp() + (-z).exp()),
    ],
    ("sigmoid",): [
        nn.Sigmoid(), F.sigmoid, torch.sigmoid, Tensor.sigmoid, Tensor.sigmoid_, lambda z: (1 + (-z).exp()) ** -1,
    ],
    ("logsigmoid",): [nn.LogSigmoid(), F.logsigmoid, lambda z: torch.sigmoid(z).log()],
    ("softsign",): [nn.Softsign(), F.softsign, lambda z: z / (1 + abs(z))],
    ("tanhshrink",): [nn.Tanhshrink(), F.tanhshrink, lambda z: z - z.tanh()],
    ("hardtanh",): [nn.Hardtanh(), nn.Hardtanh(inplace=True), F.hardtanh, F.hardtanh_, lambda z: z.clip(-1, 1)],
    ("hardtanh", -2.0, 0.5): [nn.Hardtanh(-2.0, 0.5), lambda z: F.hardtanh(z, -2.0, 0.5), lambda z: z.clamp(-2.0, 0.5)],
    ("hardsigmoid",): [nn.Hardsigmoid(), nn.Hardsigmoid(inplace=True), F.hardsigmoid],
    ("hardswish",): [nn.Hardswish(), nn.Hardswish(inplace=True), F.hardswish, lambda z: z * F.relu6(z + 3) / 6],
    ("hardshrink",): [nn.Hardshrink(), F.hardshrink, torch.hardshrink, Tensor.hardshrink],
    ("hardshrink", 0.3): [nn.Hardshrink(0.3), lambda z: F.hardshrink(z, 0.3)],
    ("softshrink",): [nn.Softshrink(), F.softshrink, lambda z: z - z.clamp(-0.5, 0.5)],
    ("softshrink", 0.2): [nn.Softshrink(0.2), lambda z: F.softshrink(z, 0.2)],
    ("threshold", 0.1, 20.0): [
        nn.Threshold(0.1, 20.0), nn.Threshold(0.1, 20.0, inplace=True), lambda z: F.threshold(z, 0.1, 20.0),
        lambda z: F.threshold_(z, 0.1, 20.0),
    ],
    ("sin",): [torch.sin, Tensor.sin, Tensor.sin_],
    ("cos",): [torch.cos, Tensor.cos, lambda z: torch.sin(z + math.pi / 2)],
    ("linear",): [nn.Identity(), lambda z: z, lambda z: 2 * z / 2, lambda z: z.neg().neg(), Tensor.clone],
}  # fmt: skip
ROWS = [(of, i, form) for of, forms in FORMS.items() for i, form in enumerate(forms)]


def formula(name, *settings):
    """The formula's gains, with settings by position as torch has them."""
    names = list(inspect.signature(ACTIVATIONS[name]).parameters)[1:]
    return gains(name, **dict(zip(names, settings, strict=False)))


def rough(name):
    """The formulas are sampled at steps of 1/2000 themselves, and a jump may lie on a sample."""
    return 1e-3 if name in ("hardshrink", "threshold") else ROUGH


@pytest.mark.parametrize(("of", "form"), [(of, form) for of, _, form in ROWS], ids=[f"{of}-{i}" for of, i, _ in ROWS])
def test_every_form_has_the_gains_of_its_formula(of, form):
    found = consumed(form)
    assert pair(found.gains) == pytest.approx(pair(formula(*of)), rel=rough(of[0]))
    if of[0] in ("relu", "linear"):  # these two names are compared by the paper's reading
        assert found.name == of[0]


def test_the_table_has_every_activation():
    not_elementwise = {"Softmax", "Softmin", "Softmax2d", "LogSoftmax", "MultiheadAttention", "GLU"}
    modules = {type(form).__name__ for forms in FORMS.values() for form in forms if isinstance(form, nn.Module)}
    assert modules - {"Identity"} == set(nn.modules.activation.__all__) - not_elementwise
    assert {of[0] for of in FORMS} == set(ACTIVATIONS)


def halves(f, g):
    """f of one half of the features times g of the other."""
    return lambda z: f(z[..., :4]) * g(z[..., 4:])


def split(f, g):
    def gate(z):
        a, b = z.chunk(2, dim=-1)
        return f(a).mul(g(b))

    return gate


GLU = [nn.GLU(), lambda z: F.glu(z, dim=-1), halves(nn.Identity(), torch.sigmoid), split(nn.Sigmoid(), torch.clone)]


@pytest.mark.parametrize("form", GLU, ids=range(len(GLU)))
def test_a_gate_written_by_hand_is_a_glu(form):
    assert pair(consumed(form, width=8, out=4).gains) == pytest.approx(pair(gains("glu")), rel=ROUGH)


@pytest.mark.parametrize(("name", "f"), [("relu", F.relu), ("silu", F.silu), ("gelu", F.gelu)])
def test_gated_units_multiply_moments(name, f):
    """f(a)·b: E[f²] forward; backward E[f²] into b and E[f′²] into a."""
    found, of = consumed(halves(f, nn.Identity()), out=4), gains(name)
    expected = of.forward, 2 / (1 / of.forward + 1 / of.backward)
    assert pair(found.gains) == pytest.approx(expected, rel=ROUGH)


def test_siren():
    """E[sin²(ωz)] = (1 − e^(−2ω²))/2, and its slope is ω·cos(ωz)."""
    found = consumed(lambda z: torch.sin(30 * z))
    assert found.gains.forward == pytest.approx(2, rel=CELL)
    assert found.gains.backward == pytest.approx(2 / 900, rel=CELL)  # 30 radians in 200 steps


@pytest.mark.parametrize(
    ("function", "forward", "backward"),
    [
        (lambda z: 3 * z, 1 / 9, 1 / 9),
        (lambda z: z + 1, 1 / 2, 1),
        (lambda z: z.square(), 1 / 3, 1 / 4),  # E[z⁴] = 3
        (lambda z: F.relu(z) ** 2, 2 / 3, 1 / 2),
        (torch.exp, math.exp(-2), math.exp(-2)),
        (lambda z: torch.exp(-(z**2)), math.sqrt(5), 5**1.5 / 4),
        (lambda z: F.relu(F.relu(z)), 2, 2),
        (lambda z: torch.sub(z, 1, alpha=2), 1 / 5, 1),
        (lambda z: 0 * z, None, None),
        (torch.log, None, None),  # not a number for half of z
    ],
)
def test_any_composition_is_integrated(function, forward, backward):
    expected = None if forward is None else pytest.approx((forward, backward), rel=ROUGH)
    assert pair(consumed(function).gains) == expected


class Scaled(nn.Module):
    """x·σ(βx) with a trainable β."""

    def __init__(self, *shape):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


@pytest.mark.parametrize("shape", [(), (1,), (8,), (1, 1)], ids=str)
def test_a_trainable_swish_starts_as_silu(shape):
    assert pair(consumed(Scaled(*shape)).gains) == pytest.approx(pair(gains("silu")), rel=ROUGH)


MODULES = [(of, form) for of, _, form in ROWS if isinstance(form, nn.Module)]


@pytest.mark.parametrize(("of", "module"), MODULES, ids=[f"{of}-{module}" for of, module in MODULES])
def test_in_a_sequential_no_example_is_needed(of, module):
    net = nn.Sequential(nn.Linear(4, 8), module, nn.Linear(8, 3))
    assert read(net) == read(net, torch.randn(5, 4))
    assert pair(read(net)["2.weight"].consumes.gains) == pytest.approx(pair(formula(*of)), rel=rough(of[0]))


def test_reading_is_the_same_on_the_meta_device_and_in_other_precisions():
    for make in (nn.Tanh, nn.PReLU, lambda: Applied(lambda z: z * torch.sigmoid(2 * z))):
        spec = read(Between(make()), torch.randn(5, 4))
        assert read(Between(make()).to("meta"), torch.randn(5, 4)) == spec
        half = read(Between(make()).bfloat16(), torch.randn(5, 4).bfloat16())
        assert half["second.weight"].consumes == spec["second.weight"].consumes
