"""Table 1, cell by cell, against the paper's own expressions written out again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperfan.formulas import Fans, table1, targets
from hyperfan.formulas.heads import code_gradient_ratio, rate_factor, uniform_bound

sizes = st.integers(1, 3000)
variances = st.floats(0.01, 10)


@given(sizes, sizes, variances, st.booleans(), st.booleans(), st.sampled_from([1, 9, 25]))
def test_hyperfan_in_weight(d_j, d_k, var_e, relu, hbias, receptive):
    expected = 2**relu / (2**hbias * d_j * d_k * var_e) / receptive
    got = table1.hyperfan_in_weight(d_j, d_k, var_e, relu=relu, hbias=hbias, receptive=receptive)
    assert got == pytest.approx(expected, rel=1e-12)


@given(sizes, variances, st.booleans())
def test_hyperfan_in_bias(d_l, var_e, relu):
    assert table1.hyperfan_in_bias(d_l, var_e, relu=relu) == pytest.approx(2**relu / (2 * d_l * var_e), rel=1e-12)


@given(sizes, sizes, variances, st.booleans(), st.sampled_from([1, 9, 25]))
def test_hyperfan_out_weight(d_i, d_k, var_e, relu, receptive):
    expected = 2**relu / (d_i * d_k * var_e) / receptive
    got = table1.hyperfan_out_weight(d_i, d_k, var_e, relu=relu, receptive=receptive)
    assert got == pytest.approx(expected, rel=1e-12)


@given(sizes, sizes, sizes, variances, st.booleans())
def test_hyperfan_out_bias(d_i, d_j, d_l, var_e, relu):
    expected = max(2**relu * (1 - d_j / d_i) / (d_l * var_e), 0)
    assert table1.hyperfan_out_bias(d_i, d_j, d_l, var_e, relu=relu) == pytest.approx(expected, rel=1e-9, abs=1e-15)


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


def test_low_rank_update_has_its_relative_size():
    rank, scaling, relative, d_in = 8, 2.0, 0.1, 64
    var_a, var_b = 1 / d_in, targets.low_rank_b(rank, gain=2.0, scaling=scaling, relative=relative)
    assert scaling**2 * rank * var_b * var_a == pytest.approx(relative**2 * 2.0 / d_in)


def test_what_follows_for_training():
    assert rate_factor(50.0) == 51.0
    assert code_gradient_ratio(1 / 784, 50.0, 500 * 784) == pytest.approx(500 / 50)  # hyperfan-in: d_i/(d_k·E[h²])
    assert code_gradient_ratio(1 / 500, 50.0, 500 * 784) == pytest.approx(784 / 50)  # hyperfan-out: d_j/(d_k·E[h²])
    assert uniform_bound(1.0) == math.sqrt(3)


def test_fans_of_groups_strides_and_transposition():
    depthwise = Fans.conv(128, 128, (3, 3), groups=128)
    assert (depthwise.fan_in, depthwise.fan_out) == (9, 9)
    strided = Fans.conv(64, 32, (3, 3), (2, 2))
    assert (strided.fan_in, strided.fan_out) == (576, 72)
    up = Fans.conv(64, 32, (4, 4), (2, 2), transposed=True)
    assert (up.fan_in, up.fan_out) == (256, 512)
    assert (up.unstrided().fan_in, strided.unstrided().fan_out) == (1024, 288)
