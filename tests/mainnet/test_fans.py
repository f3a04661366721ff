"""Which role each parameter of torch's layers has, and how many values each weight sums."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from checks import assert_mean
from hyperfan.mainnet import read

CONVS = [nn.Conv1d, nn.Conv2d, nn.Conv3d]
TRANSPOSED = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d]


def fans(layer: nn.Module, name: str = "weight") -> tuple[float, float]:
    found = read(layer, warn=False)[name].fans
    assert found is not None
    return found.fan_in, found.fan_out


def inside(sizes, kernel, stride, dilation, thinned: bool):
    """Positions that no border reaches; where the stride thins the sums out, whole periods of it."""
    cut = []
    for size, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        reach = d * (k - 1)
        cut.append(slice(reach, reach + (size - 2 * reach) // s * s) if thinned else slice(None))
    return (slice(None), slice(None), *cut)


def second_moments(layer, spatial, weights, inputs):
    """E[y²] and E[(∂L/∂x)²] for unit-variance weights, inputs and gradients, away from the borders."""
    layer = layer.double()
    with torch.no_grad():
        weights(layer.weight)
    channels = layer.in_channels if hasattr(layer, "in_channels") else layer.in_features
    x = torch.empty(2, channels, *spatial, dtype=torch.float64)
    x = inputs(x).requires_grad_()
    y = layer(x)
    (dx,) = torch.autograd.grad(y, x, inputs(torch.empty_like(y)))
    if not spatial:
        return y, dx
    setting = layer.kernel_size, layer.stride, layer.dilation
    forward = inside(y.shape[2:], *setting, thinned=layer.transposed)
    backward = inside(x.shape[2:], *setting, thinned=not layer.transposed)
    return y[forward], dx[backward]


MEASURED = {
    "linear": (nn.Linear(12, 5, bias=False), ()),
    "conv1d": (nn.Conv1d(4, 6, 3, bias=False), (40,)),
    "conv1d, depthwise": (nn.Conv1d(6, 6, 3, groups=6, bias=False), (40,)),
    "conv2d, stride 2": (nn.Conv2d(4, 6, 3, stride=2, bias=False), (21, 21)),
    "conv2d, groups 2, stride (1, 3)": (nn.Conv2d(4, 6, (3, 2), stride=(1, 3), groups=2, bias=False), (20, 23)),
    "conv2d, dilation 2": (nn.Conv2d(3, 4, 3, dilation=2, bias=False), (18, 18)),
    "conv3d, stride 2": (nn.Conv3d(2, 4, 2, stride=2, bias=False), (10, 10, 10)),
    "transposed 1d, stride 2": (nn.ConvTranspose1d(4, 6, 4, stride=2, bias=False), (30,)),
    "transposed 2d, groups 2, stride 2": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, bias=False), (14, 14)),
    "transposed 3d, stride 3": (nn.ConvTranspose3d(2, 3, 2, stride=3, bias=False), (5, 5, 5)),
}


@pytest.mark.parametrize(("layer", "spatial"), MEASURED.values(), ids=MEASURED)
def test_variance_forward_is_fan_in_and_backward_fan_out(layer, spatial):
    draws = [second_moments(layer, spatial, nn.init.normal_, nn.init.normal_) for _ in range(60)]
    fan_in, fan_out = fans(layer)
    assert_mean(torch.stack([y.square().mean() for y, _ in draws]), fan_in)
    assert_mean(torch.stack([dx.square().mean() for _, dx in draws]), fan_out)


@st.composite
def convolutions(draw):
    dims = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    kind = draw(st.sampled_from([CONVS, TRANSPOSED]))[dims - 1]
    per_dim = st.tuples(*[st.integers(1, 3)] * dims)
    channels = [groups * draw(st.integers(1, 3)) for _ in range(2)]
    return kind(
        *channels, draw(per_dim), stride=draw(per_dim), dilation=draw(per_dim), groups=groups, bias=False
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_with_ones_everywhere_a_convolution_counts_its_summands(layer):
    """Exact: a sum of products of ones is the number of terms."""
    setting = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    spatial = [2 * d * (k - 1) + 4 * s for k, s, d in setting]
    y, dx = second_moments(layer, spatial, nn.init.ones_, nn.init.ones_)
    fan_in, fan_out = fans(layer)
    assert y.mean().item() == pytest.approx(fan_in, rel=1e-12)
    assert dx.mean().item() == pytest.approx(fan_out, rel=1e-12)


# layer: {parameter: (role, fan-in, fan-out)}
WITH_RULES = {
    "embedding": (nn.Embedding(10, 6), {"weight": ("weight", 1, 6)}),
    "embedding bag": (nn.EmbeddingBag(10, 6), {"weight": ("weight", 1, 6)}),
    "bilinear": (nn.Bilinear(3, 4, 5), {"weight": ("weight", 12, 17.5), "bias": ("bias", 12, 17.5)}),
    "attention": (
        nn.MultiheadAttention(8, 2),
        {
            "in_proj_weight": ("weight", 8, 8),
            "in_proj_bias": ("bias", 8, 8),
            "out_proj.weight": ("weight", 8, 8),
            "out_proj.bias": ("bias", 8, 8),
        },
    ),
    "attention over others": (
        nn.MultiheadAttention(8, 2, kdim=5, vdim=3, bias=False),
        {
            "q_proj_weight": ("weight", 8, 8),
            "k_proj_weight": ("weight", 5, 8),
            "v_proj_weight": ("weight", 3, 8),
            "out_proj.weight": ("weight", 8, 8),
        },
    ),
    "rnn cell": (
        nn.RNNCell(3, 5),
        {"weight_ih": ("weight", 8, 5), "weight_hh": ("weight", 8, 5), "bias_ih": ("bias", 8, 5)},
    ),
    "lstm cell": (nn.LSTMCell(3, 5), {"weight_ih": ("weight", 8, 20), "weight_hh": ("weight", 8, 20)}),
    "gru cell": (nn.GRUCell(3, 5), {"weight_ih": ("weight", 8, 15), "bias_hh": ("bias", 8, 15)}),
    "rnn of two layers": (
        nn.RNN(3, 5, num_layers=2),
        {"weight_ih_l0": ("weight", 8, 5), "weight_ih_l1": ("weight", 10, 5), "bias_hh_l1": ("bias", 10, 5)},
    ),
    "gru both ways": (
        nn.GRU(3, 5, num_layers=2, bidirectional=True),
        {
            "weight_ih_l0_reverse": ("weight", 8, 15),
            "weight_ih_l1": ("weight", 15, 15),
            "weight_hh_l1_reverse": ("weight", 15, 15),
            "bias_ih_l1_reverse": ("bias", 15, 15),
        },
    ),
    "lstm with projection": (
        nn.LSTM(3, 5, proj_size=2),
        {
            "weight_ih_l0": ("weight", 5, 20),
            "weight_hh_l0": ("weight", 5, 20),
            "weight_hr_l0": ("weight", 5, 2),
            "bias_ih_l0": ("bias", 5, 20),
        },
    ),
}


@pytest.mark.parametrize(("layer", "expected"), WITH_RULES.values(), ids=WITH_RULES)
def test_layers_with_a_rule(layer, expected):
    spec = read(layer, warn=False)
    found = {t.name: (t.role, t.fans.fan_in, t.fans.fan_out) for t in spec}
    assert {name: found[name] for name in expected} == expected
    assert {t.role for t in spec} <= {"weight", "bias"}  # nothing was left without a rule


def test_the_two_biases_of_a_recurrent_cell_share_their_output():
    spec = read(nn.GRU(3, 5), warn=False)
    both = ("weight_ih_l0", "weight_hh_l0")
    assert {t.name: t.weights for t in spec if t.role == "bias"} == {"bias_ih_l0": both, "bias_hh_l0": both}


NORMS = [
    nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4), nn.SyncBatchNorm(4), nn.LayerNorm(4), nn.GroupNorm(2, 4),
    nn.InstanceNorm1d(4, affine=True), nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm3d(4, affine=True),
]  # fmt: skip


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: type(norm).__name__)
def test_norms_start_at_scale_one_and_shift_zero(norm):
    spec = read(norm)
    assert {t.name: (t.role, t.start, t.fans) for t in spec} == {
        "weight": ("scale", 1.0, None),
        "bias": ("shift", 0.0, None),
    }


def test_rms_norm_has_a_scale_only():
    assert [(t.name, t.role, t.start) for t in read(nn.RMSNorm(4))] == [("weight", "scale", 1.0)]


def test_prelu_has_a_slope_that_starts_where_it_was_asked_to():
    (slope,) = read(nn.PReLU(4, init=0.1))
    assert (slope.role, slope.start) == ("slope", 0.1)


def test_buffers_of_norms_have_starts_and_others_have_none():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    net.register_buffer("table", torch.arange(3.0))
    net[0].register_buffer("running_mean", torch.zeros(4))  # the name alone does not make it a statistic
    assert dict(read(net).buffers) == {
        "table": None,
        "0.running_mean": None,
        "1.running_mean": 0.0,
        "1.running_var": 1.0,
        "1.num_batches_tracked": 0.0,
    }


def test_a_bias_has_the_fans_of_its_weight():
    spec = read(nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.ReLU()))
    assert spec["0.bias"].fans == spec["0.weight"].fans
    assert spec["0.bias"].weights == ("0.weight",)
    assert spec["0.bias"].followed_by == spec["0.weight"].followed_by
    assert math.isclose(spec["0.weight"].fans.unstrided().fan_out, 27)
