"""What each method asks for, against the arithmetic done by hand."""

import sys

import pytest
import torch
from torch import nn

import hyperfan as hf
from hyperfan.formulas import Fans
from hyperfan.init import Reading, available, method
from hyperfan.models import mnist_net
from nets import Tied

# A layer that reads f with E[f²] = 0.4, at the end of one of 4 residual branches, with two generated biases.
LAYER = {
    "fan_in": 4.0, "fan_out": 10.0, "gain_in": 2.5, "gain_out": 2.0, "consumed": 0.4, "output": 1.0, "branch": 0.25,
    "bias_generated": True, "summands": 2,
}  # fmt: skip
IN = {"weight": 0.5 * 2.5 / 4 / 4, "bias": 0.5 / 4 / 2}
OUT = {"weight": 2 / 10 / 4, "bias": (1 - 4 * (2 / 10) * 0.4) / 4 / 2}
MEANS = {
    "hyperfan-in": lambda a, b: a,
    "hyperfan-out": lambda a, b: b,
    "hyperfan-harmonic": lambda a, b: 2 / (1 / a + 1 / b),
    "hyperfan-geometric": lambda a, b: (a * b) ** 0.5,
    "hyperfan-arithmetic": lambda a, b: (a + b) / 2,
}


@pytest.mark.parametrize("role", ["weight", "bias"])
@pytest.mark.parametrize("name", MEANS)
def test_hyperfan(name, role):
    aim = method(name).aims()(Reading(role, **LAYER))
    assert aim.target == pytest.approx(MEANS[name](IN[role], OUT[role]), rel=1e-12)


FACTORS = {"entry": 0.3, "row": 0.7, "branch": 0.25, "logits": 3.0, "output": 0.3}


@pytest.mark.parametrize("factor", [*FACTORS, None])
@pytest.mark.parametrize("role", ["weight", "bias"])
@pytest.mark.parametrize("name", ["hyperfan-in", "hyperfan-out"])
def test_the_equation_that_is_printed_is_the_value(name, role, factor):
    """With each factor of a reading alone, and with all of them."""
    summands = 2 if role == "bias" else 1
    changed = FACTORS if factor is None else {factor: FACTORS[factor]}
    read = Reading(role, **{**LAYER, "branch": 1.0, "summands": summands, **changed})
    aim = method(name).aims()(read)
    names = {**vars(read), "gain": aim.gain, "bias_share": 0.5, "blocks": 1 / read.branch, "biases": summands}
    names["v_W"] = read.gain_out / read.fan_out
    value = eval(aim.equation.removeprefix("v = ").translate({ord("·"): "*", ord("−"): "-"}), {"max": max}, names)
    assert value == pytest.approx(aim.target, rel=1e-12)


@pytest.mark.parametrize("name", [n for n in MEANS if n != "hyperfan-out"])
def test_the_bias_share_reaches_every_mean(name):
    aim = method(name, bias_share=0.2).aims()(Reading("bias", **LAYER))
    assert aim.target == pytest.approx(MEANS[name](0.2 / 4 / 2, OUT["bias"]), rel=1e-12)


@pytest.mark.parametrize("mean", ["fan-in", "fan-out", "harmonic", "geometric", "arithmetic"])
@pytest.mark.parametrize(("family", "gains"), [("xavier", (1.0, 1.0)), ("kaiming", (2.5, 2.0))])
def test_classical_methods_treat_the_trunk_as_they_treat_the_head(family, gains, mean):
    a, b = gains[0] / 4, gains[1] / 10
    expected = {"fan-in": a, "fan-out": b, "harmonic": 2 * a * b / (a + b), "geometric": (a * b) ** 0.5,
                "arithmetic": (a + b) / 2}[mean]  # fmt: skip
    of = method(f"{family}-{mean}")
    assert of.trunk_variance(Reading("weight", **LAYER)) == pytest.approx(expected, rel=1e-12)
    assert of.aims()(Reading("weight", **LAYER)).head(Fans(4, 10)) == pytest.approx(expected, rel=1e-12)


def test_every_method_is_in_a_table_above_or_in_test_written_chunks_or_later_methods():
    families = {"xavier", "kaiming", "auddy2024"}
    later = {"beck2022-bias", "beck2022-weight", "sitzmann2020", "sitzmann2021", "ortiz2023"}
    known = {*MEANS, "m2", "m3", "m4", "chang2020-gist", *later, "knyazev2021", "knyazev2023"}
    assert {m.name for m in available() if m.name.partition("-")[0] not in families} == known


def targets(net):
    return {r.tensor: r.target for r in net.plan.rows if r.made_by == "head"}


def test_a_recurrent_layers_two_biases_share_their_part_and_a_projection_has_none():
    lstm = nn.LSTM(6, 10, proj_size=4)
    both = targets(hf.HyperNet(lstm, 3, generate="weights+biases", nonlinearity="linear"))
    assert both["weight_ih_l0"] == both["weight_hh_l0"] == pytest.approx(0.5 / (6 + 4))
    assert both["bias_ih_l0"] == both["bias_hh_l0"] == pytest.approx(0.5 / 2)
    assert both["weight_hr_l0"] == pytest.approx(1 / 10)
    one = targets(hf.HyperNet(lstm, 3, generate=["weight*", "bias_ih_l0"], nonlinearity="linear"))
    assert one["bias_ih_l0"] == pytest.approx(0.5)


@pytest.mark.parametrize("name", MEANS)
def test_the_papers_net_with_biases_under_every_method(name):
    made = targets(hf.HyperNet(mnist_net(), 5, generate="weights+biases", init=name))
    assert len(made) == 12


def test_slopes_start_at_their_own_values():
    main = nn.Sequential(nn.Linear(4, 4), nn.PReLU(init=0.25), nn.Linear(4, 4), nn.PReLU(init=0.1))
    made = hf.HyperNet(main, 3, generate=["1.*", "3.*"]).generate()
    assert (made["1.weight"].item(), made["3.weight"].item()) == (0.25, pytest.approx(0.1))


def test_many_layers_registered_in_reverse():
    """More than calls may be nested."""
    depth, limit = 400, sys.getrecursionlimit()

    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))

        def forward(self, x):
            for layer in reversed(self.layers):
                x = layer(x)
            return x

    sys.setrecursionlimit(depth)
    try:
        made = targets(hf.HyperNet(Reversed(), 3, init="hyperfan-out", example=torch.zeros(1, 2)))
    finally:
        sys.setrecursionlimit(limit)
    assert made["layers.0.weight"] == pytest.approx(0.5)


def test_a_tied_weight_with_generated_biases():
    made = targets(hf.HyperNet(Tied(nn.Identity()), 3, generate="weights+biases", example=torch.tensor([1, 2])))
    assert made == {"embed.weight": pytest.approx(0.5 / 5), "decode.bias": pytest.approx(0.5)}
