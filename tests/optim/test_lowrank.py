"""A gradient in factors behaves as the dense tensor it stands for."""

import pytest
import torch
from torch import Tensor

from checks import assert_close
from hyperfan.optim.factor import Factor
from hyperfan.optim.gradient import FactoredGradient, Value, gradients, product_gradient

WIDTH, OUTPUTS = 6, 9


def factors(rows: int = 2) -> tuple[FactoredGradient, FactoredGradient, Tensor, Tensor]:
    """Gradients of a weight and a bias that share a factor, and what they stand for."""
    codes = torch.randn(rows, WIDTH, dtype=torch.float64)
    grads = torch.randn(rows, OUTPUTS, dtype=torch.float64)
    weight, bias = torch.empty(WIDTH, OUTPUTS, dtype=torch.float64), torch.empty(OUTPUTS, dtype=torch.float64)
    low = gradients(codes, list(grads), weight, bias)
    return *low, codes.T @ grads, grads.sum(0)


def blocks() -> tuple[FactoredGradient, FactoredGradient, Tensor, Tensor]:
    """The same for three small layers."""
    codes, grads = (torch.randn(3, n, dtype=torch.float64) for n in (WIDTH, OUTPUTS))
    dense = torch.stack([torch.outer(c, g) for c, g in zip(codes, grads, strict=True)])
    low = gradients(codes.unsqueeze(1), grads.unsqueeze(1), torch.empty_like(dense), torch.empty_like(grads))
    return *low, dense, grads.clone()


def nested() -> tuple[FactoredGradient, FactoredGradient, Tensor, Tensor]:
    """The same where the gradient of what each code made is in factors itself, as from a linear layer."""
    codes, outer, inner = (torch.randn(2, *shape, dtype=torch.float64) for shape in ((WIDTH,), (1, 3), (1, 3)))
    like = torch.empty(3, 3, dtype=torch.float64)
    rows = [product_gradient(like, a, b) for a, b in zip(outer, inner, strict=True)]
    grads = (outer.mT @ inner).view(2, OUTPUTS)
    weight, bias = torch.empty(WIDTH, OUTPUTS, dtype=torch.float64), torch.empty(OUTPUTS, dtype=torch.float64)
    low = gradients(codes, rows, weight, bias)
    return *low, codes.T @ grads, grads.sum(0)


@pytest.fixture(params=[factors, blocks, nested])
def draw(request):
    return request.param


OPERATIONS = {
    "detach": lambda g: g.detach(),
    "clone": lambda g: g.clone(),
    "times a number": lambda g: g * 3,
    "times a scalar": lambda g: g * torch.tensor(-0.5, dtype=torch.float64),
    "over": lambda g: g / 4,
    "negative": lambda g: -g,
    "twice": lambda g: g + g,
    "times a tensor": lambda g: g * torch.arange(OUTPUTS, dtype=torch.float64),
    "plus a tensor": lambda g: g + torch.ones(OUTPUTS, dtype=torch.float64),
    "from a tensor": lambda g: torch.ones(OUTPUTS, dtype=torch.float64) - g,
    "norm": lambda g: g.norm(),
    "largest": lambda g: torch.linalg.vector_norm(g, float("inf")),
    "exponential": lambda g: g.exp(),
    "row": lambda g: g[..., 1:3],
    "float": lambda g: g.float().double(),
    "in a list": lambda g: torch.stack([g, g]),
    "foreach": lambda g: torch._foreach_mul([g], 2.0)[0],
}
IN_PLACE = {
    "mul_": lambda g: g.mul_(0.3),
    "div_": lambda g: g.div_(7),
    "zero_": lambda g: g.zero_(),
    "add_": lambda g: g.add_(g.clone()),
    "add_ a tensor": lambda g: g.add_(torch.ones(OUTPUTS, dtype=torch.float64)),
    "clamp_": lambda g: g.clamp_(-0.2, 0.2),
    "copy_": lambda g: g.copy_(torch.ones_like(g)),
    "through detach": lambda g: g.detach().mul_(2),
    "foreach": lambda g: torch._foreach_mul_([g], 2.0),
    "zero_ and add_": lambda g: g.zero_().add_(g.clone()),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(draw, name):
    weight, bias, dense_weight, dense_bias = draw()
    for low, dense in ((weight, dense_weight), (bias, dense_bias)):
        made = OPERATIONS[name](low)
        assert_close(made.to_dense() if isinstance(made, FactoredGradient) else made, OPERATIONS[name](dense))
        assert_close(low.to_dense(), dense)


@pytest.mark.parametrize("name", IN_PLACE)
def test_operations_in_place(draw, name):
    weight, bias, dense_weight, dense_bias = draw()
    IN_PLACE[name](weight)
    IN_PLACE[name](dense_weight)
    assert_close(weight.to_dense(), dense_weight)
    assert_close(bias.to_dense(), dense_bias)  # though it shares its factors


@pytest.mark.parametrize("name", ["times a number", "twice", "norm", "negative", "detach", "clone"])
def test_what_stays_in_factors(draw, name):
    low, *_ = draw()
    OPERATIONS[name](low)
    made = OPERATIONS["twice"](low)
    assert low.value.dense is None
    assert made.value.dense is None


def test_adding_to_a_parameter_reads_it_and_leaves_it_in_factors(draw):
    low, _, dense, _ = draw()
    p = torch.ones_like(dense)
    p.add_(low, alpha=-2)
    assert_close(p, 1 - 2 * dense)
    assert low.parts


def test_sums_of_the_same_codes_keep_their_rank():
    """So that accumulating over many batches costs no more memory than one."""
    weight, bias, *_ = factors()
    codes = weight.parts[0][0].codes
    total_weight, total_bias = weight, bias
    dense = weight.to_dense()
    for _ in range(20):
        more = Factor(codes, list(torch.randn(2, OUTPUTS, dtype=torch.float64)))
        total_weight = total_weight + FactoredGradient(weight, Value(((more, 1.0),)))
        total_bias = total_bias + FactoredGradient(bias, Value(((more, 1.0),), summed=True))
        dense = dense + codes.T @ more.matrix
    assert len(total_weight.parts) == 1
    assert total_weight.parts[0][0] is total_bias.parts[0][0]  # one sum for both
    assert_close(total_weight.to_dense(), dense)


def test_sums_become_dense_when_that_is_smaller():
    a, b, c, d = (factors()[0] for _ in range(4))
    three = a + b + c
    assert len(three.parts) == 3
    four = three + d
    assert four.parts is None
    assert_close(four.to_dense(), sum(g.to_dense() for g in (a, b, c, d)))


def test_sums_of_blocks_do_so_by_block():
    codes = torch.randn(3, 1, WIDTH, dtype=torch.float64)
    weight, *_ = blocks()
    total = weight
    for _ in range(WIDTH - 1):
        total = total + blocks()[0]
    assert len(total.parts) == WIDTH
    assert_close(total.norm(), total.to_dense().norm())
    assert (total + blocks()[0]).parts is None
    one, two = (Factor(codes, torch.randn(3, 1, OUTPUTS, dtype=torch.float64)) for _ in range(2))
    both = FactoredGradient(weight, Value(((one, 1.0),))) + FactoredGradient(weight, Value(((two, 1.0),)))
    assert len(both.parts) == 1
    assert_close(both.parts[0][0].matrix, one.matrix + two.matrix)


@pytest.mark.parametrize("beta", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("state", ["one", "two", "none", "dense"])
def test_add_to(draw, beta, which, state):
    low = draw()[which]
    if state == "two":
        low = low + draw()[which]
    elif state == "none":
        low.zero_()
    elif state == "dense":
        low.clamp_(-0.1, 0.1)
    target = torch.randn_like(low.to_dense())
    expected = beta * target + 3 * low.to_dense()
    low.add_to_(target, 3.0, beta)
    assert_close(target, expected)


def test_it_prints_as_what_it_is(draw):
    low, _, dense, _ = draw()
    assert repr(low) == repr(dense)
