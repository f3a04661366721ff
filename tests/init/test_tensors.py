"""Init for people who keep their own hypernet."""

import inspect
import math

import pytest
import torch
from torch import nn

import hyperfan as hf
import table1
from checks import assert_variance
from hyperfan.codes.draw import uniform_bound
from hyperfan.mainnet.gains import gains

D_K = 24
SHAPES = {"linear": ((40, 30), 1, False), "conv": ((16, 6, 3, 3), 4, False), "transposed": ((24, 4, 3, 3), 4, True)}


def channels(shape, groups, transposed):
    """d_i and d_j per group."""
    return (shape[1], shape[0] // groups) if transposed else (shape[0] // groups, shape[1])


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("shape", "groups", "transposed"), SHAPES.values(), ids=SHAPES)
def test_all_four_cells(shape, groups, transposed, relu, distribution):
    d_i, d_j = channels(shape, groups, transposed)
    receptive, var_e, f = math.prod(shape[2:]), 0.25, "relu" if relu else "linear"
    layout = {"groups": groups, "transposed": transposed, "embedding_var": var_e}
    weight_head = torch.empty(math.prod(shape), D_K, dtype=torch.float64)
    bias_head = torch.empty((shape[1] if transposed else shape[0] // groups) * groups, D_K, dtype=torch.float64)

    def fill(name, head, **more):
        function = getattr(hf.init, f"{name}_{distribution}_")
        assert function(head, shape, f, **layout, **more) is head
        if distribution == "uniform" and head.any():
            assert head.abs().max() <= uniform_bound(head.var().item()) * 1.1
        return head

    for hbias in (False, True):
        expected = table1.hyperfan_in_weight(d_j, D_K, var_e, relu=relu, hbias=hbias, receptive=receptive)
        assert_variance(fill("hyperfan_in", weight_head, biases_generated=hbias), expected)
    expected = table1.hyperfan_out_weight(d_i, D_K, var_e, relu=relu, receptive=receptive)
    assert_variance(fill("hyperfan_out", weight_head), expected)
    thinned = 4 if len(shape) == 4 else 1  # a stride of 2 each way
    assert_variance(fill("hyperfan_out", weight_head, stride=2), expected * (1 if transposed else thinned))
    if len(shape) == 4:
        assert_variance(fill("hyperfan_out", weight_head, stride=(2, 1)), expected * (1 if transposed else 2))
    expected = table1.hyperfan_in_weight(d_j, D_K, var_e, relu=relu, receptive=receptive)
    assert_variance(fill("hyperfan_in", weight_head, stride=2), expected * (thinned if transposed else 1))
    assert_variance(fill("hyperfan_in", bias_head, bias=True), table1.hyperfan_in_bias(D_K, var_e, relu=relu))
    assert_variance(
        fill("hyperfan_out", bias_head, bias=True), table1.hyperfan_out_bias(d_i, d_j, D_K, var_e, relu=relu)
    )


def test_other_nonlinearities_take_their_gain():
    head = torch.empty(100 * 100, 10)
    assert_variance(hf.init.hyperfan_in_normal_(head, (100, 100), "tanh"), gains("tanh").forward / 1000)
    assert_variance(hf.init.hyperfan_out_normal_(head, (100, 100), "tanh"), gains("tanh").backward / 1000)


@pytest.mark.parametrize("pass_", ["in", "out"])
@pytest.mark.parametrize("f", ["tanh", "gelu", "sigmoid", "linear"])
def test_weights_and_biases_together_make_unit_variance_of_what_the_layer_reads(pass_, f):
    """A layer of 30 to 60 that reads f(z): E[y²] = 30·Var(W)·E[f²] + Var(b), from the written heads."""
    weight, bias = torch.empty(1800, 200, dtype=torch.float64), torch.empty(60, 2000, dtype=torch.float64)
    more = {"biases_generated": True} if pass_ == "in" else {}
    getattr(hf.init, f"hyperfan_{pass_}_normal_")(weight, (60, 30), f, **more)
    getattr(hf.init, f"hyperfan_{pass_}_normal_")(bias, (60, 30), f, bias=True)
    total = 30 * weight.square().mean().item() * 200 / gains(f).forward + bias.square().mean().item() * 2000
    expected = 1.0 if pass_ == "in" else max(1.0, 0.5 * gains(f).backward / gains(f).forward)
    assert total == pytest.approx(expected, rel=5 * (2 / 120_000) ** 0.5)


def test_a_whole_head_of_ones_own_with_its_bias():
    head = nn.Linear(50, 500 * 784)
    hf.init.hyperfan_in_uniform_(head.weight, (500, 784))
    nn.init.zeros_(head.bias)
    e = torch.ones(50)
    assert_variance(head(e), 1 / 784)


def test_a_generator_makes_it_repeatable_and_leaves_the_global_state():
    head = nn.Linear(5, 12).weight
    state = torch.get_rng_state()
    first = hf.init.hyperfan_in_uniform_(head, (3, 4), generator=torch.Generator().manual_seed(1)).clone()
    second = hf.init.hyperfan_in_uniform_(head, (3, 4), generator=torch.Generator().manual_seed(1))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_it_agrees_with_the_hypernet():
    """Own head and HyperNet, one theory."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(30, 40), nn.ReLU()), D_K, fidelity="paper")
    (row, _bias) = net.plan.rows
    own = hf.init.hyperfan_in_uniform_(torch.empty(1200, D_K), (40, 30), "relu")
    assert_variance(own, row.variance)


@pytest.mark.parametrize(
    ("weight", "shape", "options", "message"),
    [
        ((10, 5), (3, 4), {}, r"it makes 12 values \(3×4\): it should be \(12, d_k\)"),
        ((5, 12), (3, 4), {}, r"looks transposed: pass weight\.T"),
        ((12, 5), (12,), {}, "at least an output and an input side"),
        ((12, 5), (3, 4), {"groups": 2}, "groups=2 does not divide"),
        ((12, 5), (3, 4), {"embedding_var": 0.0}, "must be positive"),
        ((12, 5), (3, 4), {"nonlinearity": "rellu"}, "did you mean 'relu'"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(weight, shape, options, message):
    head = torch.full(weight, 7.0)
    with pytest.raises(hf.HyperfanError, match=message) as error:
        hf.init.hyperfan_in_uniform_(head, shape, **options)
    assert "\n" not in str(error.value)
    assert (head == 7).all()


def test_signatures_mirror_each_other_and_take_no_other_option():
    for pass_ in ("in", "out"):
        uniform, normal = (getattr(hf.init, f"hyperfan_{pass_}_{d}_") for d in ("uniform", "normal"))
        assert inspect.signature(uniform) == inspect.signature(normal)
        with pytest.raises(TypeError, match="kernel"):
            uniform(torch.empty(12, 5), (3, 4), kernel=3)
