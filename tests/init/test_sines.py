"""Mainnets with sin(ω·z): each layer starts as in SIREN (Sitzmann et al. 2020), and the gradient keeps its scale."""

import itertools
import math

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import assert_variance
from hyperfan.mainnet.read import read
from hyperfan.mainnet.spec import Nonlinearity

OMEGA, WIDTH = 30.0, 256


class Siren(nn.Module):
    """A neural field of coordinates."""

    def __init__(self, hidden: int = 4, width: int = WIDTH, inputs: int = 2):
        super().__init__()
        sizes = [inputs] + [width] * hidden
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.last = nn.Linear(width, 3)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sin(OMEGA * layer(x))
        return self.last(x)


def coordinates(count: int = 400) -> torch.Tensor:
    return 2 * torch.rand(count, 2, dtype=torch.float64) - 1


def siren_net(**options) -> hf.HyperNet:
    return hf.HyperNet(Siren().double(), 20, heads="separate", example=coordinates(), **options)


def targets(net: hf.HyperNet) -> dict[str, float]:
    return {row.tensor: row.target for row in net.plan.rows if row.made_by == "head"}


def waves(net: hf.HyperNet, x: torch.Tensor) -> list[torch.Tensor]:
    """What enters each sine, and the output."""
    plain, found = net.freeze(), []
    for layer in plain.layers:  # the phases are not part of the theory
        nn.init.zeros_(layer.bias)
    for layer in plain.layers:
        found.append(OMEGA * layer(x))
        x = torch.sin(found[-1])
    return [*found, plain.last(x)]


def test_weights_start_as_in_siren():
    """U(±1/fan_in) for the first layer, U(±√(6/fan_in)/ω) for the others; theirs takes E[sin²] = 1/2 throughout."""
    made = targets(siren_net())
    assert made["layers.0.weight"] == pytest.approx(1 / (3 * 2**2))
    siren = 6 / WIDTH / OMEGA**2 / 3
    half = (1 - math.exp(-2)) / 2  # E[sin²] of what has variance 1
    assert made["layers.1.weight"] == pytest.approx(siren, rel=1e-6)
    for name in ("layers.2.weight", "layers.3.weight", "last.weight"):
        assert made[name] == pytest.approx(siren / 2 / half, rel=1e-6)


def test_what_enters_each_sine_has_variance_1_behind_the_first_layer():
    torch.manual_seed(0)
    x = coordinates()
    first, *hidden, out = waves(siren_net(), x)
    w = x.var(0, correction=0).mean().item()
    assert first.var().item() == pytest.approx(OMEGA**2 * 2 * w / 12, rel=5 * (2 / WIDTH) ** 0.5)
    for z in hidden:
        # Units of one layer, and layers of one net, share their inputs: √(2/256) for the units, as much for each layer.
        assert z.square().mean().item() == pytest.approx(1.0, rel=5 * (2 / WIDTH) ** 0.5)
    assert OMEGA**2 * out.square().mean().item() == pytest.approx(1.0, rel=1.0)  # three outputs


def test_the_gradient_keeps_its_scale_where_unit_variance_would_let_it_explode():
    """By s·coth(s) in each layer, s = ω²·q: 1.3 for s = 1, and 900 for q = 1."""
    sine = Nonlinearity("sin", Nonlinearity.named("sin").curve, OMEGA)
    for q, growth in ((OMEGA**-2, 1 / math.tanh(1)), (1 / 9, 100.0)):
        found = sine.gains_at(q)
        assert q * found.forward / found.backward == pytest.approx(growth, rel=1e-3)


@pytest.mark.parametrize("scale", [0.5, 2.0, 3.0])
def test_gains_of_a_frequency_are_those_of_the_function_itself(scale):
    """Where the table of sin(ω·z) reaches, both ways agree up to its interpolation, cells of half an octave."""
    consumed = read(nn.Sequential(nn.Linear(3, 3), Wave(scale), nn.Linear(3, 3)))["2.weight"].consumes
    assert consumed.frequency == pytest.approx(scale)
    for q in (0.25, 1.0, 2.0):
        found, table = consumed.gains_at(q), consumed.curve.at(q)
        assert (found.forward, found.backward) == pytest.approx((table.forward, table.backward), rel=0.02)


class Wave(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, z):
        return torch.sin(self.scale * z)


FREQUENCY = nn.Parameter(torch.tensor(30.0))
FORMS = {
    "sin": (lambda z: torch.sin(30 * z), 30.0),
    "cos": (lambda z: (30.0 * z).cos(), 30.0),
    "in two steps": (lambda z: torch.sin(5 * (z * 6)), 30.0),
    "a quotient": (lambda z: torch.sin(z / 0.1), 10.0),
    "a parameter": (lambda z: torch.sin(FREQUENCY * z), 30.0),
    "a tensor": (lambda z: torch.sin(torch.tensor(30.0) * z), 30.0),
    "rearranged": (lambda z: torch.sin(30 * z).flatten(1), 30.0),
    "twice the same": (lambda z: torch.cat([torch.sin(30 * z)[:, :2], torch.sin(30 * z)[:, 2:]], 1), 30.0),
    "plain": (torch.sin, 1.0),
    "scaled behind": (lambda z: 0.5 * torch.sin(30 * z), 1.0),
    "shifted before": (lambda z: torch.sin(30 * z + 1), 1.0),
    "another function": (lambda z: torch.tanh(30 * z), 1.0),
    "damped": (lambda z: torch.exp(-z.square()) * torch.sin(30 * z), 1.0),
}


class Between(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.a, self.b, self.form = nn.Linear(2, 4), nn.Linear(4, 1), form

    def forward(self, x):
        return self.b(self.form(self.a(x)))


@pytest.mark.parametrize(("form", "frequency"), FORMS.values(), ids=FORMS)
def test_the_frequency_is_read_from_the_traced_run(form, frequency):
    spec = read(Between(form), torch.randn(5, 2))
    assert spec["b.weight"].consumes.frequency == pytest.approx(frequency)
    assert spec["a.weight"].followed_by.frequency == pytest.approx(frequency)


def test_a_layer_behind_a_norm_reads_no_coordinates():
    main = nn.Sequential(nn.Linear(2, 64), nn.LayerNorm(64), nn.Linear(64, 64), Wave(OMEGA), nn.Linear(64, 1))
    made = targets(hf.HyperNet(main, 8))
    assert made["2.weight"] == pytest.approx(1 / 64 / OMEGA**2)
    assert made["0.weight"] == pytest.approx(1 / 2)


def test_of_the_first_layer_a_share_turns_no_sine_by_more_than_of_the_others():
    """ω·z of the first layer has variance ω²/(3·fan_in), of which 1 counts; the rest is common to all."""
    net = siren_net(share=0.1)
    rows = {row.tensor: row for row in net.plan.rows}
    first, second = rows["layers.0.weight"], rows["layers.1.weight"]
    assert first.target - first.base == pytest.approx(0.1 / 2 / OMEGA**2)
    assert second.target - second.base == pytest.approx(0.1 * second.target)
    assert_variance(net.heads.head("layers/0/weight").bias, first.base)
    assert targets(siren_net()) == targets(net)


def test_plain_biases_are_the_phases_that_siren_has():
    """U(±1/√fan_in), torch's own; sines without a phase are odd functions, and so is all that they make."""
    net = siren_net()
    rows = {row.tensor: row for row in net.plan.rows}
    assert rows["layers.1.bias"].variance == pytest.approx(1 / (3 * WIDTH))
    assert_variance(net.mainnet.get_parameter("layers.1.bias"), 1 / (3 * WIDTH))
    assert_variance(net.mainnet.get_parameter("layers.0.bias"), 1 / 6)
    assert not net.mainnet.get_parameter("last.bias").any()
    assert not siren_net(fidelity="paper").mainnet.get_parameter("layers.1.bias").any()


def test_paper_fidelity_knows_no_frequency():
    made = targets(siren_net(fidelity="paper"))
    assert made["layers.1.weight"] == pytest.approx(1 / WIDTH)


def test_a_trunk_of_sines_keeps_its_codes_moderate():
    trunk = nn.Sequential(nn.Linear(8, 200), Wave(OMEGA), nn.Linear(200, 200), Wave(OMEGA))
    net = hf.HyperNet(nn.Sequential(nn.Linear(50, 50)), 8, trunk=trunk, init_trunk=True)
    assert_variance(trunk[2].weight, 2 / 200 / OMEGA**2)
    assert 50 * net.generate()["0.weight"].var().item() == pytest.approx(1.0, rel=5 * (0.8 / 2500) ** 0.5)
