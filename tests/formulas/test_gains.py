import math

import pytest
import torch
from torch import nn

from hyperfan.errors import InitError
from hyperfan.formulas import GRID, gains, gains_from_samples
from hyperfan.formulas.activations import ACTIVATIONS

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
    assert set(MODULES) == {*ACTIVATIONS, "glu"} - {"linear", "sin", "cos"}


@pytest.mark.parametrize(("name", "module"), MODULES.items(), ids=MODULES)
def test_gains_undo_what_torch_does_forward_and_backward(name, module):
    """The oracle: torch's module and autograd on a million Gaussian samples."""
    z = torch.randn(1_000_000, 2, dtype=torch.float64, requires_grad=True)
    out = module.double()(z)
    (slope,) = torch.autograd.grad(out, z, torch.ones_like(out) if name != "glu" else torch.randn_like(out).sign())
    found = gains(name)
    assert found.forward * out.square().mean().item() == pytest.approx(1, rel=0.01)
    assert found.backward * slope.square().mean().item() == pytest.approx(1, rel=0.01)


def test_settings_and_callables():
    assert gains("leaky_relu", negative_slope=0.2).forward == pytest.approx(2 / 1.04)
    assert gains(lambda z: max(z, 0.2 * z)).forward == pytest.approx(2 / 1.04)
    assert gains(lambda z: 3 * z).backward == pytest.approx(1 / 9)


def test_a_jump_does_not_count_as_slope():
    """Autograd's derivative of hardshrink is 1 outside ±λ, whatever happens at ±λ."""
    outside = math.erfc(0.5 / math.sqrt(2))
    assert gains("hardshrink").backward == pytest.approx(1 / outside, rel=1e-3)
    assert gains("threshold", threshold=0.0, value=20.0).backward == pytest.approx(2, rel=1e-3)


def test_kinks_are_integrated_exactly():
    """E[hardtanh′²] = P(|z| < 1). Gauss–Hermite quadrature misses it by several per cent."""
    assert gains("hardtanh").backward == pytest.approx(1 / math.erf(1 / math.sqrt(2)), rel=1e-3)


@pytest.mark.parametrize("bad", [lambda z: 0.0, lambda z: math.inf])
def test_no_gain_is_an_error(bad):
    with pytest.raises(InitError, match="no gain"):
        gains(bad)


def test_unknown_name_and_wrong_samples():
    with pytest.raises(InitError, match="did you mean 'leaky_relu'"):
        gains("leakyrelu")
    with pytest.raises(InitError, match="3 samples"):
        gains_from_samples([0.0, 1.0, 2.0])
    assert gains_from_samples(GRID).forward == pytest.approx(1)
