"""Intervals and tests, against definitions written out."""

import functools
import itertools
import math
import random
import statistics

import pytest

from hyperfan.errors import RunError
from hyperfan.experiments.results.claims import Claim
from hyperfan.experiments.results.pairs import ChosenBy, compare_at_best_rates, is_no_larger, is_no_smaller, is_smaller
from hyperfan.experiments.results.statistics import Estimate, ratios, signed_rank


def test_the_interval_of_a_median_covers_it_about_as_often_as_it_says():
    draws = random.Random(1)
    hits = 0
    for _ in range(60):
        e = Estimate.median([draws.expovariate(1) for _ in range(15)])
        hits += e.low <= math.log(2) <= e.high
    assert 0.85 <= hits / 60 <= 1


def test_a_median_minds_no_infinite_values_but_a_missing_one():
    e = Estimate.median([0.5, 1.0, 2.0, math.inf, math.inf])
    assert (e.value, e.n, e.high) == (2.0, 5, math.inf)
    assert Estimate.median([3.0]) == Estimate(3.0, 1, None, None)
    assert Estimate.median([1.0, 2.0, 3.0, 4.0]).value == 2.5
    for values in ([], [1.0, math.nan]):
        with pytest.raises(RunError, match="a run is missing"):
            Estimate.median(values)


@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [1.0, 2.0, 4.0, 9.0], [3.0, 1.0, 2.0, 7.0, 7.0, math.inf]])
def test_the_bootstrap_of_a_median_is_exact(values):
    medians = sorted(statistics.median(resample) for resample in itertools.product(values, repeat=len(values)))
    n = len(medians)
    e = Estimate.median(values)
    assert (e.low, e.high) == (medians[int(0.025 * n)], medians[int(0.975 * n)])


@pytest.mark.parametrize("count", [0, 3, 10, 15])
def test_wilsons_interval_is_where_the_normal_test_turns(count):
    n, z = 15, 1.959964
    e = Estimate.share(count, n)
    assert e.value == count / n
    for end in (e.low, e.high):
        if 0 < end < 1:
            assert abs(count / n - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n))
    assert e.low <= count / n <= e.high


def by_enumeration(a, b):
    """Every choice of signs for the ranks."""
    logs = [x for x in (math.log(r) if r else -math.inf for r in ratios(a, b)) if x]
    sizes = [abs(x) for x in logs]
    ranks = [sum(s < size for s in sizes) + (sizes.count(size) + 1) / 2 for size in sizes]
    half = sum(ranks) / 2
    seen = abs(sum(r for r, x in zip(ranks, logs, strict=True) if x > 0) - half)
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product((0, 1), repeat=len(ranks))]
    return sum(abs(s - half) >= seen for s in sums) / len(sums)


@pytest.mark.parametrize("seed", range(5))
def test_signed_ranks_are_exact(seed):
    draws = random.Random(seed)
    a = [draws.choice([0.5, 1.0, 2.0, 4.0, math.inf, draws.random()]) for _ in range(9)]
    b = [draws.choice([0.5, 1.0, 2.0, 4.0, math.inf, draws.random()]) for _ in range(9)]
    assert signed_rank(a, b) == pytest.approx(by_enumeration(a, b))
    assert signed_rank(a, b) == signed_rank(b, a)


def test_equal_lists_do_not_differ():
    assert signed_rank([1.0, math.inf], [1.0, math.inf]) == 1.0
    assert signed_rank([1.0] * 15, [2.0] * 15) == 2 / 2**15


@pytest.mark.parametrize(
    ("ratios", "smaller", "no_larger", "no_smaller"),
    [
        ([0.5] * 12, True, True, False),
        ([0.95, 0.96] * 6, True, True, False),
        ([0.99, 1.01] * 6, None, True, True),  # a little smaller or larger
        ([1.05, 1.04] * 6, False, False, True),
        ([1.5] * 12, False, False, True),
        ([0.6, 1.7] * 6, None, None, None),  # no certainty either way
        ([0.5] * 5, None, None, None),  # too few
        ([1.5] * 5, None, None, None),
        ([0.8] * 10 + [10.0] * 2, None, True, None),  # maybe by chance, as the test of ranks has it
        ([1.25] * 10 + [0.1] * 2, None, None, True),
    ],
)
def test_pairs_are_smaller_or_no_larger_or_no_smaller_only_where_that_is_certain(
    ratios, smaller, no_larger, no_smaller
):
    ones, claim = [1.0] * len(ratios), Claim("C", "title", "statement")
    assert is_smaller(claim, "smaller", ratios, ones) is smaller
    assert is_no_larger(claim, "no larger", ratios, ones) is no_larger
    assert is_no_smaller(claim, "no smaller", ratios, ones) is no_smaller


@pytest.mark.parametrize(("finite", "smaller"), [(12, True), (1, None), (0, None)])
def test_pairs_of_which_both_diverged_say_nothing(finite, smaller):
    a, b = [0.5] * finite + [math.inf] * 20, [1.0] * finite + [math.inf] * 20
    claim = Claim("C", "title", "statement")
    assert is_smaller(claim, "smaller", a, b) is is_no_larger(claim, "no larger", a, b) is smaller
    assert claim.measured["smaller"].estimate.n == finite
    assert "; 20 pairs of which both diverged left out" in claim.measured["smaller"].note


def test_a_missing_value_is_no_pair_that_diverged():
    with pytest.raises(RunError, match="a run is missing"):
        is_smaller(Claim("C", "title", "statement"), "smaller", [math.nan, 1.0], [math.nan, 2.0])


def test_a_label_that_a_claim_has_already_is_an_error():
    claim, estimate = Claim("C", "title", "statement"), Estimate.of([1.0, 2.0])
    claim.measure("loss", estimate)
    with pytest.raises(ValueError, match="two values under the label 'loss'"):
        claim.measure("loss", estimate)
    claim.decide("loss", True)
    with pytest.raises(ValueError, match="two values under the label 'loss'"):
        claim.decide("loss", False)
    assert claim.facts == {"loss": True}


def test_settings_are_compared_at_the_best_rates_of_either_choice():
    rates = [{ChosenBy.OTHERS: 0.1, ChosenBy.COMPARED: 0.2}, {ChosenBy.OTHERS: 3.0, ChosenBy.COMPARED: 3.0}]
    seen = {}

    def below(bound, label, a, b):
        seen[label] = (a, b)
        return a < bound

    for bound, fact in ((0.3, True), (0.15, None), (0.05, False)):
        compare = functools.partial(below, bound)
        assert compare_at_best_rates("a at {:g} over b at {:g}", [of.get for of in rates], compare) is fact
    assert seen == {
        "a at 0.1 over b at 3": (0.1, 3.0),
        "a at 0.2 over b at 3; rates by the seeds compared": (0.2, 3.0),
    }
