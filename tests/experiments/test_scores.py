"""Scores of predictions, against the definitions written out one input at a time."""

import math

import pytest
import torch

from hyperfan.experiments.scores import score, separation

N, CLASSES = 200, 4


def drawn(sharpness=2.0):
    p = torch.softmax(sharpness * torch.randn(N, CLASSES, dtype=torch.float64), 1)
    return p, torch.multinomial(p, 1).squeeze(1)


def test_scores_are_what_they_are_defined_to_be():
    p, y = drawn()
    found = score(p, y, bins=10)
    rows = [(row.tolist(), int(label)) for row, label in zip(p, y, strict=True)]
    assert found.accuracy == sum(max(range(CLASSES), key=r.__getitem__) == label for r, label in rows) / N
    assert found.nll == pytest.approx(sum(-math.log(r[label]) for r, label in rows) / N)
    brier = sum(sum((q - (c == label)) ** 2 for c, q in enumerate(r)) for r, label in rows) / N
    assert found.brier == pytest.approx(brier)
    ece = 0.0
    for i in range(10):
        inside = [(max(r), max(range(CLASSES), key=r.__getitem__) == label) for r, label in rows
                  if i / 10 < max(r) <= (i + 1) / 10]  # fmt: skip
        n, confidence, accuracy = found.reliability[i]
        assert n == len(inside)
        if inside:
            confident, right = (sum(column) / n for column in zip(*inside, strict=True))
            assert (confidence, accuracy) == (pytest.approx(confident, abs=1e-6), pytest.approx(right, abs=1e-6))
            ece += n / N * abs(confident - right)
    assert found.ece == pytest.approx(ece)


def test_an_honest_net_is_calibrated_and_a_boaster_is_not():
    torch.manual_seed(0)
    p, y = (torch.cat(column) for column in zip(*(drawn(1.0) for _ in range(100)), strict=True))
    # In a bin of n the accuracy scatters by 0.5/√n at most; over all, with 20,000 inputs in 15 bins, by about 0.01.
    assert score(p, y).ece < 0.015
    sharp = p.pow(4) / p.pow(4).sum(1, keepdim=True)
    assert score(sharp, y).ece > 0.1
    assert score(p, y).nll < score(sharp, y).nll


def test_the_ends():
    sure, y = torch.eye(3), torch.tensor([0, 1, 2])
    right, wrong = score(sure, y), score(sure, y.roll(1))
    assert (right.accuracy, right.nll, right.brier, right.ece) == (1, 0, 0, 0)
    assert right.reliability[-1] == (3, 1.0, 1.0)
    assert (wrong.accuracy, wrong.brier, wrong.ece) == (0, 2, 1)
    assert 80 < wrong.nll < 100  # the smallest float32, not infinity
    even = score(torch.full((4, 4), 0.25), torch.arange(4))
    assert (even.nll, even.ece) == (pytest.approx(math.log(4)), 0)


def test_separation_is_the_share_of_pairs_in_order():
    known, unknown = torch.randn(30), torch.randn(20) + 0.5
    pairs = [(a < b) + 0.5 * (a == b) for a in known.tolist() for b in unknown.tolist()]
    assert separation(known, unknown) == pytest.approx(sum(pairs) / 600)
    assert separation(known, known) == 0.5
    assert separation(known, unknown + 100) == 1


def test_what_is_not_a_number_is_not_right():
    p = torch.tensor([[math.nan, math.nan], [0.1, 0.9]])
    found = score(p, torch.tensor([0, 1]))
    assert found.accuracy == 0.5
    assert math.isnan(found.nll)
    assert [n for n, _, _ in found.reliability if n] == [1, 1]
