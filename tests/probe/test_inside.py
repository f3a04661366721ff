"""The probe, against one backward pass for each input and each layer, in float64."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import hyperfan as hf
from hyperfan.probe import QUANTITIES, Moments, Probe, first_overflow, inside, layer_scales
from hyperfan.probe.moments import HISTOGRAM_BINS
from hyperfan.probe.recorder import batch_statistics

PATHS = ("0", "2", "3.0")


def net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.Sequential(nn.Linear(6, 3), nn.Identity())
    ).double()


def inputs(count=23):
    torch.manual_seed(2)
    return torch.randn(count, 5).double(), torch.randint(3, (count,))


def oracle(made, x, y):
    """Values of each quantity, all written out."""
    outputs = {
        "0": lambda z: made[0](z),
        "2": lambda z: made[2](made[1](made[0](z))),
        "3.0": lambda z: made[3][0](made[2](made[1](made[0](z)))),
    }
    rest = {"0": lambda z: made[3](made[2](made[1](z))), "2": made[3], "3.0": made[3][1]}
    found = {quantity: {} for quantity in QUANTITIES}
    for path in PATHS:
        values, gradients = [], []
        for one, label in zip(x, y, strict=True):
            z = outputs[path](one[None]).detach().requires_grad_()
            (gradient,) = torch.autograd.grad(cross_entropy(rest[path](z), label[None]), z)
            values.append(z.detach())
            gradients.append(gradient)
        found["activations"][path] = torch.cat(values)
        found["gradients"][path] = torch.cat(gradients)
    loss = torch.stack([cross_entropy(made(a[None]), b[None]) for a, b in zip(x, y, strict=True)]).mean()
    for name, p in made.named_parameters():
        found["weights"][name] = p.detach()
        found["weight gradients"][name] = torch.autograd.grad(loss, p, retain_graph=True)[0]
    return found


def assert_same_moments(seen, values):
    exact = values.double().numpy()
    # Sums of fewer than 2^10 terms in another order.
    scale = np.abs(exact).max()
    assert seen.count == exact.size
    assert seen.mean == pytest.approx(exact.mean(), abs=2**-42 * scale)
    assert seen.std == pytest.approx(exact.std(), abs=2**-42 * scale)
    assert (seen.low, seen.high) == pytest.approx((exact.min(), exact.max()), abs=2**-42 * scale)


@pytest.mark.parametrize("piece", [1, 4, 23, 100])
def test_moments(monkeypatch, piece):
    monkeypatch.setattr(inside, "INPUTS_PER_PIECE", piece)
    made, (x, y) = net(), inputs()
    seen, known = Probe(x, y).moments(made), oracle(made, x, y)
    assert list(seen) == list(known) == ["activations", "gradients", "weights", "weight gradients"]
    for quantity in QUANTITIES:
        assert list(seen[quantity]) == list(known[quantity])
        for where in known[quantity]:
            assert_same_moments(seen[quantity][where], known[quantity][where])


@pytest.mark.parametrize("piece", [4, 100])
def test_histograms(monkeypatch, piece):
    monkeypatch.setattr(inside, "INPUTS_PER_PIECE", piece)
    made, (x, y) = net(), inputs()
    probe = Probe(x, y)
    seen, known = probe.histograms(made, probe.moments(made)), oracle(made, x, y)
    for quantity in QUANTITIES:
        for where, values in known[quantity].items():
            h, exact = seen[quantity][where], values.numpy().ravel()
            assert h.centre == pytest.approx(exact.mean(), abs=1e-12)
            assert h.unit == pytest.approx(exact.std() / 20)
            assert h.reach == pytest.approx(np.abs(exact - exact.mean()).max())
            end = np.arcsinh(h.reach / h.unit)
            reference = np.histogram(np.arcsinh((exact - h.centre) / h.unit), HISTOGRAM_BINS, (-end, end))[0]
            # A number may be off by a rounding, and so may fall on the other side of an edge that it is on.
            assert np.abs(np.array(h.counts) - reference).sum() <= 4
            assert sum(h.counts) >= exact.size - 1


def test_a_histogram_of_equal_numbers_has_no_bins():
    made, (x, y) = net(), inputs()
    nn.init.zeros_(made[0].bias)
    probe = Probe(x, y)
    h = probe.histograms(made, probe.moments(made))["weights"]["0.bias"]
    assert (h.centre, h.counts) == (0, ())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1.7e308])
@pytest.mark.parametrize("where", [0, 2])
def test_a_net_that_overflowed_can_be_looked_at(bad, where):
    made, (x, y) = net(), inputs()
    with torch.no_grad():
        made[where].weight[0, 0] = bad
        made[where].weight[1, 0] = -bad
    probe = Probe(x, y)
    moments = probe.moments(made)
    histograms = probe.histograms(made, moments)
    assert histograms["weights"][f"{where}.weight"].counts == ()
    assert not np.isfinite(moments["weights"][f"{where}.weight"].std)
    assert len(histograms["weights"]["3.0.weight"].counts) == HISTOGRAM_BINS


def test_a_norm_that_is_frozen_stays_in_evaluation():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3).eval(), nn.Dropout())
    with batch_statistics(module):
        assert [m.training for m in module] == [True, False, False]
    assert [m.training for m in module] == [True, False, True]


def test_training_is_left_alone():
    """Gradients, values, buffers, modes, hooks and random numbers are as before."""
    made, (x, y) = net(), inputs()
    made.insert(1, nn.BatchNorm1d(7).double())
    made[0].eval()
    cross_entropy(made(x), y).backward()
    before = [(p.detach().clone(), p.grad.clone()) for p in made.parameters()]
    buffers = {name: b.clone() for name, b in made.named_buffers()}
    modes = [m.training for m in made.modules()]
    random = torch.get_rng_state()
    probe = Probe(x, y)
    probe.histograms(made, probe.moments(made))
    layer_scales(made, x, y)
    first_overflow(made, x, y)
    for p, (value, grad) in zip(made.parameters(), before, strict=True):
        assert torch.equal(p, value)
        assert torch.equal(p.grad, grad)
    for name, buffer in made.named_buffers():
        assert torch.equal(buffer, buffers[name]), name
    assert [m.training for m in made.modules()] == modes
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in made.modules())
    assert torch.equal(torch.get_rng_state(), random)


def test_hooks_are_removed_also_when_the_net_fails():
    made, (x, y) = net(), inputs()
    with pytest.raises(RuntimeError):
        Probe(x[:, :3], y).moments(made)
    assert not any(m._forward_hooks for m in made.modules())


def test_it_works_where_gradients_are_off():
    made, (x, y) = net(), inputs()
    probe = Probe(x, y)
    with torch.no_grad():
        assert probe.moments(made) == probe.moments(net())


def test_a_hypernet_s_weight_gradients_are_those_that_reach_its_heads():
    """Those of the frozen net are the gradients of the generated tensors in the hypernet itself."""
    torch.manual_seed(3)
    hyper = hf.HyperNet(net(), 4).double()
    x, y = inputs()
    made = hyper.generate()
    loss = cross_entropy(torch.func.functional_call(hyper.freeze(), made, (x,)), y)
    whole = cross_entropy(hyper(x), y)
    assert torch.allclose(loss, whole, rtol=1e-12, atol=0)
    grads = torch.autograd.grad(loss, list(made.values()), retain_graph=True)
    with torch.no_grad():
        frozen = hyper.freeze()
    seen = Probe(x, y).moments(frozen)
    for (name, tensor), grad in zip(made.items(), grads, strict=True):
        assert_same_moments(seen["weights"][name], tensor.detach())
        assert_same_moments(seen["weight gradients"][name], grad)
    # And what reaches the heads, pulled through them, is the heads' own gradient.
    heads = list(hyper.heads.parameters())
    through = torch.autograd.grad(list(made.values()), heads, grads, allow_unused=True)
    own = torch.autograd.grad(whole, heads, allow_unused=True)
    torch.testing.assert_close(through, own, rtol=1e-10, atol=1e-12)


def test_the_scales_of_layers_are_those_of_the_probe():
    made, (x, y) = net(), inputs()
    scales, known = layer_scales(made, x, y), oracle(made, x, y)
    assert scales.layers == PATHS
    for seen, quantity in ((scales.preactivation, "activations"), (scales.gradient, "gradients")):
        assert seen == pytest.approx([known[quantity][path].std().item() for path in PATHS], rel=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_first_layer_to_overflow(bad):
    x, y = inputs()
    assert first_overflow(net(), x, y) is None
    for at, path in ((0, "0"), (2, "2"), (3, "3.0")):
        made = net()
        layer = made[3][0] if at == 3 else made[at]
        with torch.no_grad():
            layer.bias[-1] = bad
        assert first_overflow(made, x, y) == path
    x[5, 0] = bad
    assert first_overflow(net(), x, y) == "0"


def test_layers_are_told_in_the_order_they_ran():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(5, 4)

        def forward(self, x):
            return self.a(self.b(x))

    made, (x, y) = Backwards().double(), inputs()
    with torch.no_grad():
        made.b.bias[0] = made.a.bias[0] = float("inf")
    assert first_overflow(made, x, y) == "b"
    assert isinstance(Probe(x, y).moments(made)["activations"]["b"], Moments)
