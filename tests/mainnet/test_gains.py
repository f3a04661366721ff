"""Gains of named activations, against the literature, against torch on random numbers, and against plain sums."""

import math

import pytest
import torch
from torch import nn

import gain_oracle
from hyperfan.errors import InitError
from hyperfan.formulas import VARIANCES
from hyperfan.mainnet.gains import ACTIVATION_FUNCTIONS, gains, named_curve

# Forward and backward gains, by hand or from the literature, to the digits given.
KNOWN = {
    "linear": (1.0, 1.0),
    "relu": (2.0, 2.0),
    "tanh": (2.536, 2.153),
    "gelu": (2.352, 2.194),
    "silu": (2.811, 2.635),
    "elu": (1.551, 1.497),
    "selu": (1.000, 0.933),
    "sin": (2 / (1 - math.exp(-2)), 2 / (1 + math.exp(-2))),  # E[sin²] = (1 − e⁻²)/2
    "hardswish": (3.016, 2.789),
    "sigmoid": (3.409, 22.303),
    "leaky_relu": (2 / (1 + 1e-4), 2 / (1 + 1e-4)),
}


@pytest.mark.parametrize(("name", "expected"), KNOWN.items(), ids=KNOWN)
def test_known_gains(name, expected):
    found = gains(name)
    assert (found.forward, found.backward) == pytest.approx(expected, abs=5.1e-4)  # three decimals


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gains_are_found_in_whatever_mode_a_net_is_made(mode):
    named_curve.cache_clear()
    with mode():
        found = gains("gelu")
    assert (found.forward, found.backward) == pytest.approx(KNOWN["gelu"], abs=5.1e-4)


MODULES = {
    "relu": nn.ReLU(), "relu6": nn.ReLU6(), "leaky_relu": nn.LeakyReLU(), "prelu": nn.PReLU(), "elu": nn.ELU(),
    "celu": nn.CELU(), "selu": nn.SELU(), "gelu": nn.GELU(), "silu": nn.SiLU(), "mish": nn.Mish(),
    "softplus": nn.Softplus(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "logsigmoid": nn.LogSigmoid(),
    "softsign": nn.Softsign(), "tanhshrink": nn.Tanhshrink(), "hardtanh": nn.Hardtanh(),
    "hardsigmoid": nn.Hardsigmoid(), "hardswish": nn.Hardswish(), "hardshrink": nn.Hardshrink(),
    "softshrink": nn.Softshrink(), "threshold": nn.Threshold(0.0, 0.0), "rrelu": nn.RReLU(), "glu": nn.GLU(),
}  # fmt: skip


def test_every_activation_of_torch_has_a_gain():
    not_elementwise = {"Softmax", "Softmin", "Softmax2d", "LogSoftmax", "MultiheadAttention"}
    assert {type(m).__name__ for m in MODULES.values()} == set(torch.nn.modules.activation.__all__) - not_elementwise
    assert set(MODULES) == {*ACTIVATION_FUNCTIONS, "glu"} - {"linear", "sin", "cos"}


@pytest.mark.parametrize(("name", "module"), MODULES.items(), ids=MODULES)
def test_gains_undo_what_torch_does_forward_and_backward(name, module):
    """The oracle: torch's module and autograd on the quantiles of a Gaussian, in two columns that do not correlate."""
    quantiles = torch.special.ndtri((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)
    z = torch.stack([quantiles, quantiles[torch.randperm(200_000)]], dim=1).requires_grad_()
    out = module.double()(z)
    (slope,) = torch.autograd.grad(out, z, torch.ones_like(out) if name != "glu" else torch.randn_like(out).sign())
    found = gains(name)
    assert found.forward * out.square().mean().item() == pytest.approx(1, rel=0.01)
    assert found.backward * slope.square().mean().item() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("name", [*ACTIVATION_FUNCTIONS, "glu"])
def test_gains_are_those_of_the_function_on_floats(name):
    """Jumps and kinks of the oracle lie on its own points, a step of 1/2000 apart."""
    found, expected = gains(name), gain_oracle.gains(name)
    assert (found.forward, found.backward) == pytest.approx((expected.forward, expected.backward), rel=1e-3)


def test_a_jump_does_not_count_as_slope():
    """Autograd's derivative of hardshrink is 1 outside ±λ, whatever happens at ±λ."""
    outside = math.erfc(0.5 / math.sqrt(2))
    assert gains("hardshrink").backward == pytest.approx(1 / outside, rel=1e-3)


def test_kinks_are_integrated_exactly():
    """E[hardtanh′²] = P(|z| < 1). Gauss–Hermite quadrature misses it by several per cent."""
    assert gains("hardtanh").backward == pytest.approx(1 / math.erf(1 / math.sqrt(2)), rel=1e-3)


@pytest.mark.parametrize("variance", [1 / 64, 0.3, 1.0, 3.0, 16.0])
@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "sigmoid", "softplus", "linear"])
def test_a_curve_is_the_gain_of_the_stretched_function(name, variance):
    """g(z) = f(√q·z) has E[g²] = E[f²] and E[g′²] = q·E[f′²]. Between half octaves the curve is interpolated."""
    f, root = gain_oracle.ACTIVATIONS[name], math.sqrt(variance)
    expected = gain_oracle.gains(lambda z: f(root * z))
    found = named_curve(name).at(variance)
    tolerance = 1e-3 if variance in VARIANCES else 5e-3
    assert found.forward == pytest.approx(expected.forward, rel=tolerance)
    assert found.backward == pytest.approx(expected.backward * variance, rel=tolerance)


def test_beyond_the_table_it_is_constant():
    assert named_curve("tanh").at(1e9) == named_curve("tanh").at(VARIANCES[-1])
    for below in (0.0, 1e-9):
        assert named_curve("tanh").at(below) == named_curve("tanh").at(VARIANCES[0])


def test_unknown_names():
    for wrong, meant in (("than", "tanh"), ("leakyrelu", "leaky_relu")):
        with pytest.raises(InitError, match=f"did you mean '{meant}'"):
            gains(wrong)
