"""The formulas, against Table 1 of the paper, cell by cell, and against their own definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import table1
from hyperfan.codes.draw import uniform_bound
from hyperfan.formulas import Fans, targets
from hyperfan.formulas.contraction import LINEAR_HEAD, contraction_variance

sizes = st.integers(1, 3000)
variances = st.floats(0.01, 10)


def head_variance(target, d_k, var_e):
    return target / contraction_variance(LINEAR_HEAD, {"k": d_k}, [1.0, var_e])


@given(sizes, sizes, variances, st.booleans(), st.booleans(), st.sampled_from([1, 9, 25]))
def test_hyperfan_in_weight(d_j, d_k, var_e, relu, hbias, receptive):
    got = head_variance(targets.fan_in_weight(d_j * receptive, 2.0**relu, 0.5 if hbias else 0.0), d_k, var_e)
    expected = table1.hyperfan_in_weight(d_j, d_k, var_e, relu=relu, hbias=hbias, receptive=receptive)
    assert got == pytest.approx(expected, rel=1e-12)


@given(sizes, variances, st.booleans())
def test_hyperfan_in_bias(d_l, var_e, relu):
    got = head_variance(targets.fan_in_bias(2.0**relu), d_l, var_e)
    assert got == pytest.approx(table1.hyperfan_in_bias(d_l, var_e, relu=relu), rel=1e-12)


@given(sizes, sizes, variances, st.booleans(), st.sampled_from([1, 9, 25]))
def test_hyperfan_out_weight(d_i, d_k, var_e, relu, receptive):
    got = head_variance(targets.fan_out_weight(d_i * receptive, 2.0**relu), d_k, var_e)
    expected = table1.hyperfan_out_weight(d_i, d_k, var_e, relu=relu, receptive=receptive)
    assert got == pytest.approx(expected, rel=1e-12)


@given(sizes, sizes, sizes, variances, st.booleans())
def test_hyperfan_out_bias(d_i, d_j, d_l, var_e, relu):
    gain = 2.0**relu
    got = head_variance(targets.fan_out_bias(d_j, gain / d_i, output=gain), d_l, var_e)
    expected = table1.hyperfan_out_bias(d_i, d_j, d_l, var_e, relu=relu)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_means_are_ordered_and_lie_between(a, b):
    h, g, m = targets.harmonic(a, b), targets.geometric(a, b), targets.arithmetic(a, b)
    slack = 1 + 1e-9
    assert min(a, b) <= h * slack
    assert h <= g * slack
    assert g <= m * slack
    assert m <= max(a, b) * slack


def test_means_with_a_zero():
    assert targets.harmonic(0.5, 0.0) == targets.geometric(0.5, 0.0) == 0.0


def test_residual_branches_grow_to_e_at_most():
    assert (1 + targets.residual_share(64)) ** 64 == pytest.approx(2.697, abs=1e-3)
    assert all((1 + targets.residual_share(n)) ** n < math.e for n in (1, 10, 1000))


def test_the_bound_of_a_uniform_distribution():
    assert uniform_bound(1.0) == math.sqrt(3)


def test_fans_of_groups_strides_and_transposition():
    depthwise = Fans.conv(128, 128, (3, 3), groups=128)
    assert (depthwise.fan_in, depthwise.fan_out) == (9, 9)
    strided = Fans.conv(64, 32, (3, 3), (2, 2))
    assert (strided.fan_in, strided.fan_out) == (576, 72)
    up = Fans.conv(64, 32, (4, 4), (2, 2), transposed=True)
    assert (up.fan_in, up.fan_out) == (256, 512)
    assert (up.unstrided().fan_in, strided.unstrided().fan_out) == (1024, 288)
