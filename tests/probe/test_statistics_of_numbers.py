"""Moments and histograms of numbers that come in pieces, against numpy on all of them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperfan.probe import Histogram, Moments

pieces = st.lists(st.integers(1, 30), min_size=1, max_size=6)


def drawn(sizes, shift=0.0):
    torch.manual_seed(sum(sizes))
    return torch.randn(sum(sizes), dtype=torch.float64) * 3 + shift


def total(parts):
    first, *others = parts
    for part in others:
        first = first + part
    return first


@settings(deadline=None)
@given(pieces, st.sampled_from([0.0, -1e3, 1e6]))
def test_moments_of_pieces_are_those_of_the_whole(sizes, shift):
    values = drawn(sizes, shift)
    seen = total([Moments.of(part) for part in values.split(sizes)])
    exact = values.numpy()
    n = len(exact)
    assert seen.count == n
    # Sums of n numbers, each off by half an ulp of the largest partial sum.
    error = n * 2**-52 * np.abs(exact).max()
    assert seen.mean == pytest.approx(exact.mean(), abs=error)
    # The squares are of distances from a mean that is off by that much.
    spread = exact.std()
    assert seen.std == pytest.approx(spread, rel=4 * n * 2**-52, abs=2 * error)
    assert (seen.low, seen.high) == (exact.min(), exact.max())


def test_the_deviation_is_that_of_a_population():
    seen = Moments.of(torch.tensor([1.0, 2.0, 6.0]))
    assert (seen.mean, seen.std) == (3.0, math.sqrt(14 / 3))
    assert Moments.of(torch.tensor([7.0])).std == 0


def test_single_precision_is_not_lost_in():
    values = torch.full((10_000,), 1e6) + torch.arange(10_000) % 2
    assert Moments.of(values).std == 0.5
    assert Moments.of(torch.full((2,), 3e38)).mean == pytest.approx(3e38, rel=2**-24)
    both = Moments.of(torch.full((2,), 3e38)) + Moments.of(torch.full((2,), -3e38))
    assert both.std == pytest.approx(3e38, rel=2**-24)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_overflowed_is_seen_and_no_error(bad):
    seen = Moments.of(torch.tensor([1.0, bad])) + Moments.of(torch.tensor([1.0, 2.0]))
    assert not math.isfinite(seen.mean)
    assert not math.isfinite(seen.std)
    huge = Moments.of(torch.tensor([1e300], dtype=torch.float64)) + Moments.of(torch.tensor([-1e300]).double())
    assert not math.isfinite(huge.std) or huge.std > 1e299


def edges(centre, unit, reach, bins):
    """Equal in asinh, as the docstring says."""
    end = np.arcsinh(reach / unit)
    return centre + unit * np.sinh(np.linspace(-end, end, bins + 1))


@settings(deadline=None)
@given(pieces, st.floats(-2, 2), st.floats(0.01, 10), st.floats(0.5, 30), st.integers(1, 40))
def test_histograms_of_pieces_are_those_of_numpy(sizes, centre, unit, reach, bins):
    values = drawn(sizes)
    seen = total([Histogram.of(part, centre, unit, reach, bins) for part in values.split(sizes)])
    exact = values.numpy()
    # A number on an edge may be rounded to either side.
    off = np.abs(np.array(seen.counts) - np.histogram(exact, edges(centre, unit, reach, bins))[0])
    assert off.sum() <= 2
    assert abs(sum(seen.counts) - (np.abs(exact - centre) <= reach).sum()) <= 1


def test_outer_edges_belong_to_the_bins_and_nan_is_nowhere():
    values = torch.tensor([1.0, 1.0, -1.0, 0.0, 1.1, float("nan"), float("inf"), -float("inf")])
    assert Histogram.of(values, 0.0, 0.05, 1.0, 3).counts == (1, 1, 2)


def test_the_middle_bin_is_around_the_centre_and_the_finest():
    values = 5 + torch.tensor([-0.01, 0.01, -0.5, 0.5, 0.5])
    assert Histogram.of(values, 5.0, 0.05, 1.0, 3).counts == (1, 2, 2)


def test_edges_closer_than_single_precision():
    """Every number is counted once, also where float32 would round the edges."""
    ulp = 2**-23
    values = 1 + torch.arange(-2, 3) * ulp
    assert Histogram.of(values, 1.0, 1.0, 1.25 * ulp, 5).counts == (1, 0, 1, 0, 1)


def test_histograms_of_other_bins_do_not_add_up():
    with pytest.raises(AssertionError):
        Histogram(0, 1, 1, (1, 2)) + Histogram(0, 1, 2, (1, 2))
