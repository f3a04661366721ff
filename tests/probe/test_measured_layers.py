"""What diagnose and calibrate_ measure of layers that no rule knows, and of outputs that are written into."""

import pytest
import torch
from torch import nn

import hyperfan as hf


class Transposed(nn.Module):
    """A layer of unknown kind, with its nonlinearity inside."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(torch.addmm(self.bias, x, self.weight))


class Experts(nn.Module):
    """Two weights, each of two experts, in one module."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(2, width, width)), nn.Parameter(torch.randn(2, width, width))

    def forward(self, x):
        return torch.cat([torch.tanh(part @ self.first[i]) @ self.second[i] for i, part in enumerate(x.chunk(2))])


X = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))


def readings(mainnet, x=X):
    net = hf.HyperNet(mainnet, 16, example=x)
    return net, {r.layer: r for r in hf.diagnose(net, x).layers}


def test_a_layer_is_measured_where_its_weight_multiplies():
    """At what the module puts out, behind its ReLU, it would be half."""
    _, seen = readings(nn.Sequential(Transposed(48), Transposed(48), nn.Linear(48, 24)))
    assert list(seen) == ["0", "1", "2"]
    for r in seen.values():
        assert r.target == pytest.approx(1)
        assert 0.7 < r.measured.value < 1.4
        assert 0.5 < r.measured_gradient.value / r.predicted_gradient.value < 2


def test_it_is_calibrated_there():
    net, _ = readings(nn.Sequential(Transposed(48), Transposed(48), nn.Linear(48, 24)))
    done = hf.calibrate_(net, 5 * X)
    assert done.changed[0] == "0.weight"
    assert done.corrections[0].factor == pytest.approx(0.2, rel=0.2)
    assert [r.measured.value for r in hf.diagnose(net, 5 * X).layers][:1] == [pytest.approx(1, rel=0.1)]


def test_several_weights_of_one_module_have_names_of_their_own():
    _, seen = readings(nn.Sequential(Experts(48), nn.Linear(48, 24)))
    assert list(seen) == ["0.first", "0.second", "0.first (call 2)", "0.second (call 2)", "1"]
    assert all(0.5 < r.measured.value / r.target < 2 for r in seen.values())


@pytest.mark.parametrize("after", [nn.ReLU(inplace=True), nn.Hardtanh(-0.1, 0.1, inplace=True)])
def test_what_is_written_into_a_layers_output_is_not_measured_with_it(after):
    _, seen = readings(nn.Sequential(nn.Linear(48, 48), after, nn.Linear(48, 24)))
    assert 0.7 < seen["0"].measured.value < 1.4


def test_phases_of_sines_belong_to_a_layers_target():
    class Sine(nn.Module):
        def forward(self, z):
            return torch.sin(30 * z)

    x = torch.rand(256, 2) * 2 - 1
    _, seen = readings(nn.Sequential(nn.Linear(2, 64), Sine(), nn.Linear(64, 64), Sine(), nn.Linear(64, 3)), x)
    assert seen["2"].target == pytest.approx(1 / 900 + 1 / (3 * 64))
    assert 0.5 < seen["2"].measured.value / seen["2"].target < 2


class Caching(nn.Module):
    """Keeps what it computed of a parameter for the next call, with its graph."""

    def __init__(self):
        super().__init__()
        self.layer, self.shift, self.cache, self.calls = nn.Linear(48, 24), nn.Parameter(torch.randn(24)), {}, []

    def forward(self, x):
        self.calls.append(len(x))
        self.last = x
        if "shift" not in self.cache:
            self.cache["shift"] = self.shift.tanh()
        return self.layer(x) + self.cache["shift"]


def test_passes_do_not_see_what_a_net_kept_of_another():
    main = Caching()
    net = hf.HyperNet(main, 16, example=X)
    first, again = (hf.diagnose(net, X) for _ in range(2))
    assert first.layers[0].measured == again.layers[0].measured
    assert not main.cache
    assert not hasattr(main, "last")
    assert not main.calls


class Pooled(nn.Module):
    """A pooler that runs, and whose output nothing uses; or is used without a path for a gradient."""

    def __init__(self, detached):
        super().__init__()
        self.layer, self.pooler, self.detached = nn.Linear(48, 24), nn.Linear(48, 24), detached

    def forward(self, x):
        pooled = self.pooler(x)
        return self.layer(x) + pooled.detach() if self.detached else self.layer(x)


@pytest.mark.parametrize(("detached", "severity"), [(False, "note"), (True, "error")])
def test_a_tensor_without_a_part_in_the_output_is_no_fault_but_one_that_is_detached_is(detached, severity):
    net = hf.HyperNet(Pooled(detached), 16, example=X)
    (found,) = hf.diagnose(net, X, torch.randn(64, 24)).findings
    assert (found.severity, found.where) == (severity, ("pooler.weight",))
