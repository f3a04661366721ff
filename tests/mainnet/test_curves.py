"""Gains by variance, against the formulas of the same function stretched by hand."""

import math

import pytest

from hyperfan.errors import InitError
from hyperfan.formulas import VARIANCES, gains
from hyperfan.formulas.activations import ACTIVATIONS
from hyperfan.mainnet.curves import NAMED, named_curve


def test_the_names_are_those_of_the_formulas():
    assert set(NAMED) == set(ACTIVATIONS)


@pytest.mark.parametrize("variance", [1 / 64, 0.3, 1.0, 3.0, 16.0])
@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "sigmoid", "softplus", "linear"])
def test_a_curve_is_the_gain_of_the_stretched_function(name, variance):
    """g(z) = f(√q·z) has E[g²] = E[f²] and E[g′²] = q·E[f′²]. Between half octaves the curve is interpolated."""
    f, root = ACTIVATIONS[name], math.sqrt(variance)
    expected = gains(lambda z: f(root * z))
    found = named_curve(name).at(variance)
    tolerance = 1e-3 if variance in VARIANCES else 5e-3
    assert found.forward == pytest.approx(expected.forward, rel=tolerance)
    assert found.backward == pytest.approx(expected.backward * variance, rel=tolerance)


def test_beyond_the_table_it_is_constant():
    assert named_curve("tanh").at(1e9) == named_curve("tanh").at(VARIANCES[-1])
    assert named_curve("tanh").at(0.0) == named_curve("tanh").at(VARIANCES[0])


def test_unknown_names():
    with pytest.raises(InitError, match="did you mean 'tanh'"):
        named_curve("than")
