"""The variance of a contraction, against samples of it."""

import math

import pytest
import torch

from hyperfan.errors import InitError
from hyperfan.formulas.contraction import Contraction, contraction_variance

ROWS, COLUMNS, WIDTH, INPUT_WIDTH, RANK = 40, 30, 12, 9, 5
SIZES = {"i": ROWS, "j": COLUMNS, "k": WIDTH, "l": INPUT_WIDTH, "r": RANK}
RULES = {
    "head": ("ijk,k->ij", [0.3, 2.0]),
    "chunk with its input layer": ("ijk,kl,l->ij", [0.3, 0.7, 2.0]),
    "product of two generated factors": ("irk,k,jrl,l->ij", [0.3, 2.0, 0.6, 1.5]),
}


def sample(expression: str, mean_squares: list[float], seed: int) -> torch.Tensor:
    """One draw of the contraction. Codes, the factors of one index, are drawn once and scaled to their mean square."""
    g = torch.Generator().manual_seed(seed)
    factors = []
    for indices, square in zip(expression.split("->")[0].split(","), mean_squares, strict=True):
        drawn = torch.randn([SIZES[i] for i in indices], generator=g, dtype=torch.float64)
        factors.append(drawn * math.sqrt(square / drawn.square().mean().item() if len(indices) == 1 else square))
    return torch.einsum(expression, *factors)


@pytest.mark.parametrize(("expression", "mean_squares"), RULES.values(), ids=RULES)
def test_samples_have_the_variance_of_the_rule(expression, mean_squares):
    """The mean square of a draw scatters, so the interval is that of the mean over independent draws."""
    squares = torch.stack([sample(expression, mean_squares, seed).square().mean() for seed in range(400)])
    expected = contraction_variance(expression, SIZES, mean_squares)
    error = (squares.std() / math.sqrt(len(squares))).item()
    assert error < 0.05 * expected
    assert squares.mean().item() == pytest.approx(expected, abs=4 * error)


def test_a_bias_adds_its_variance():
    """W_ij = H_ijk·h_k + β_ij: independent terms, each by the rule."""
    squares = []
    for seed in range(400):
        bias = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1000 + seed), dtype=torch.float64)
        squares.append((sample("ijk,k->ij", [0.3, 2.0], seed) + math.sqrt(0.9) * bias).square().mean())
    found = torch.stack(squares)
    expected = contraction_variance("ijk,k->ij", SIZES, [0.3, 2.0]) + contraction_variance("ij->ij", {}, [0.9])
    assert found.mean().item() == pytest.approx(expected, abs=4 * found.std().item() / 20)


def test_the_rule_in_numbers():
    assert contraction_variance("ijk,k->ij", {"k": 50}, [4e-5, 1.0]) == pytest.approx(0.002)
    assert contraction_variance("ijk,kl,l->ij", {"k": 3, "l": 5}, [2.0, 7.0, 11.0]) == 3 * 5 * 2 * 7 * 11
    assert contraction_variance("irk,k,jrl,l->ij", {"r": 2, "k": 3, "l": 3}, [1.0, 5.0, 1.0, 5.0]) == 2 * (3 * 5) ** 2


@pytest.mark.parametrize(("expression", "mean_squares"), RULES.values(), ids=RULES)
def test_the_variance_of_heads_stands_for_what_is_not_given(expression, mean_squares):
    unknown = [None if len(indices) > 1 else m for indices, m in zip(expression.split(","), mean_squares, strict=True)]
    filled = [0.05 if m is None else m for m in unknown]
    assert Contraction(expression, SIZES, unknown).variance(0.05) == contraction_variance(expression, SIZES, filled)


def test_a_tensor_is_linear_in_one_head():
    assert Contraction("ijk,k->ij", SIZES, [None, 1.0]).is_linear
    assert not Contraction("irk,k,jrl,l->ij", SIZES, [None, 1.0, None, 1.0]).is_linear


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: contraction_variance("ijk,k", {"k": 2}, [1.0, 1.0]), "is no contraction"),
        (lambda: contraction_variance("ijk,k->ij", {}, [1.0, 1.0]), "sums over k, of which the size is not given"),
        (lambda: contraction_variance("ijk,k->ij", {"k": 2}, [1.0]), "has 2 factors, but 1 mean squares"),
    ],
)
def test_what_cannot_be_contracted_is_said(call, says):
    with pytest.raises(InitError, match=says):
        call()
