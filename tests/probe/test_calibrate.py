import copy
import math

import pytest
import torch
from patients import HEALTHY, Encoder, Residual, UNet, mlp, ours, vectors
from torch import nn

import hyperfan as hf
from hyperfan.probe import diagnose
from nets import Tied
from products import in_turn
from zoo.blocks import BLOCKS

FITTING = [
    "MLP, tanh",
    "MLP, ten ReLU layers",
    "MLP, hyperfan-out",
    "MLP, weights and biases",
    "tasks, a trunk, trained embeddings",
    "flat chunks",
]
"""Healthy nets that the theory covers."""


def residual():
    x = torch.randn(100, 96)
    return ours(Residual(25), x), x


def transformer():
    x = torch.randn(16, 12, 16)
    return ours(Encoder(3), x), x


def transformer_with_late_norms():
    x = torch.randn(16, 12, 16)
    return ours(Encoder(3, norm_first=False), x, heads="separate"), x


def u_net():
    x = torch.randn(8, 3, 16, 16)
    return ours(UNet(), x), x


def unusual_inputs():
    x = 1000 * torch.rand(50, 96)
    return ours(mlp(nn.GELU), x), x


def with_generated_biases():
    x = torch.randn(100, 96)
    return ours(Residual(10), x, generate="weights+biases"), x


def in_chunks():
    x = torch.randn(100, 96)
    return ours(Residual(10), x, 16, heads=hf.Chunks(size=16), generate=["a.*.weight", "b.*.weight"]), x


def in_flat_chunks():
    x = torch.randn(100, 96)
    return ours(Residual(10), x, hf.Embedding(8, per="net"), heads=hf.Chunks(size=3000, flat=True, embedding=8)), x


class Twice(nn.Module):
    """An attention that runs twice, and a layer that runs twice."""

    def __init__(self):
        super().__init__()
        self.attention, self.layer = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 32)
        self.last = nn.Linear(32, 10)

    def forward(self, x):
        for _ in range(2):
            x = self.layer(self.attention(x, x, x)[0])
        return self.last(x)


def attention_with_generated_biases():
    x = torch.randn(16, 12, 16)
    return ours(Encoder(2), x, generate="weights+biases"), x


MISFITS = [
    attention_with_generated_biases,
    residual,
    transformer,
    transformer_with_late_norms,
    u_net,
    unusual_inputs,
    with_generated_biases,
    in_chunks,
    in_flat_chunks,
]


@pytest.mark.parametrize("make", MISFITS)
def test_every_layer_comes_within_a_tenth_of_its_target(make):
    torch.manual_seed(0)
    net, x = make()
    off = [r for r in diagnose(net, x).layers if r.target and abs(r.measured.value / r.target - 1) > 0.1]
    assert off
    before = net.generate()
    done = hf.calibrate_(net, x)
    assert_changed_as_reported(done, before, net.generate())
    layers = diagnose(net, x).layers  # measured anew, not as calibrate_ tells it
    for r in layers:
        assert r.target is None or not r.generated or abs(r.measured.value / r.target - 1) <= 0.1
    assert {c.layer for c in done.corrections} == {r.layer for r in layers if r.target and r.generated}
    assert hf.calibrate_(net, x).changed == ()


def assert_changed_as_reported(done, before, after):
    """Assert that the tensors changed as the calibration says."""
    factors = {c.weight: c.factor for c in done.corrections}
    for name, tensor in before.items():
        bias = name.endswith("bias")
        factor = factors.get(name.removesuffix("bias") + "weight" if bias else name, 1.0)
        torch.testing.assert_close(after[name], tensor * factor, rtol=2e-5, atol=1e-6)
    for c in done.corrections:
        if c.factor == 1:
            assert abs(c.after / c.target - 1) <= 0.1  # left alone, because it is on target
    assert str(done).count("\n") == len(done.corrections) + 2
    assert set(done.changed) == {name for name, factor in factors.items() if factor != 1}


@pytest.mark.parametrize(("name", "seed"), in_turn(FITTING, [0, 1, 2]))
def test_a_healthy_net_is_left_alone(name, seed):
    torch.manual_seed(seed)
    patient = HEALTHY[name]()
    before = copy.deepcopy(patient.net.state_dict())
    assert hf.calibrate_(patient.net, patient.x).changed == ()
    assert all(torch.equal(t, before[key]) for key, t in patient.net.state_dict().items())


def test_plain_biases_are_reckoned_with():
    torch.manual_seed(0)
    x = 20 * torch.randn(200, 96)
    net = ours(nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 64)), x)
    with torch.no_grad():
        net.mainnet.get_parameter("0.bias").normal_(0, 0.5)
    hf.calibrate_(net, x)
    assert net.freeze()[0](x).square().mean().item() == pytest.approx(1, rel=1e-3)


def test_what_runs_twice_is_scaled_once_by_its_first_run():
    torch.manual_seed(0)
    x = torch.randn(16, 12, 32)
    net = ours(Twice(), x)
    before = net.generate()
    done = {c.weight: c.factor for c in hf.calibrate_(net, x).corrections if "call" not in c.layer}
    for name, tensor in net.generate().items():
        torch.testing.assert_close(tensor, before[name] * done[name], rtol=2e-5, atol=1e-6)
    rows = {r.layer: r for r in diagnose(net, x).layers}
    assert rows["last"].measured.value == pytest.approx(1, rel=0.11)


def test_what_it_cannot_measure_is_named():
    torch.manual_seed(0)
    words = torch.randint(7, (20, 3))
    net = hf.HyperNet(nn.Sequential(Tied(nn.Tanh()), nn.Linear(7, 4)), 8, example=words)
    done = hf.calibrate_(net, words)
    assert done.skipped == ("0.embed.weight",)
    assert "not measured: 0.embed.weight" in str(done)
    assert [c.weight for c in done.corrections] == ["1.weight"]


def test_a_bias_that_has_too_much_is_named():
    torch.manual_seed(0)
    x = torch.randn(50, 96)
    net = ours(Residual(2), x)
    with torch.no_grad():
        net.mainnet.get_parameter("last.bias").fill_(3.0)
    with pytest.raises(hf.HyperfanError, match=r"the plain bias beside 'last.weight' alone has a mean square of 9"):
        hf.calibrate_(net, x)


def test_a_calibrated_net_is_healthy():
    torch.manual_seed(0)
    x, y = 20 * torch.randn(100, 96), torch.randint(10, (100,))
    net = ours(mlp(), x)
    assert not diagnose(net, x, y).healthy
    hf.calibrate_(net, x)
    assert diagnose(net, x, y).healthy
    net.reset_parameters()  # back to where it was
    assert not diagnose(net, x, y).healthy


def test_gradients_are_not_judged_by_plain_nets_that_are_off_where_the_net_is_not():
    """In a graph net nodes become alike; chance sets the scale of five outputs, for which calibrating makes up."""
    gcn = BLOCKS["GCN"]
    net = hf.HyperNet(gcn.make(), 16, example=gcn.example)
    torch.manual_seed(0)
    net.reset_parameters()
    hf.calibrate_(net, gcn.example)
    found = diagnose(net, gcn.example, gcn.targets(gcn.call(net)), gcn.mean_loss)
    last = found.layers[-1]
    assert not 0.5 < last.predicted.value / last.target < 2
    assert "vanishing gradients" not in {f.name for f in found.findings}


@pytest.mark.parametrize("init", ["kaiming-fan-in", "xavier-fan-out", "hyperfan-out"])
def test_whatever_the_init_was_it_is_not_called_wrong_afterwards(init):
    torch.manual_seed(0)
    x, y = 20 * torch.randn(100, 96), torch.randint(10, (100,))
    net = ours(mlp(), x, init=init)
    hf.calibrate_(net, x)
    assert "wrong scale of a head" not in {f.name for f in diagnose(net, x, y).findings}


def test_with_noise_layers_are_on_target_on_average_over_draws():
    torch.manual_seed(0)
    x = torch.randn(60, 96)
    net = ours(Residual(4), x, hf.Embedding(16, noise=1.0))
    assert hf.calibrate_(net, x).changed
    squares = [net(x, noise=True).square().mean().item() for _ in range(200)]
    error = torch.tensor(squares).std().item() / 200**0.5
    # Within a tenth by 8 draws, whose own mean is off by so much, and 4 standard errors of the 200.
    assert abs(sum(squares) / 200 - 1) < 0.1 + 4 * error + 2 * error * (200 / 8) ** 0.5


def test_with_noise_a_layer_need_not_run_in_every_draw():
    class Routed(nn.Module):
        """Two experts, of which the sign of a generated weight chooses one; at 0, as the mainnet has it, both."""

        def __init__(self):
            super().__init__()
            self.first, self.a, self.b = nn.Linear(96, 64), nn.Linear(64, 10), nn.Linear(64, 10)
            nn.init.zeros_(self.first.weight)

        def forward(self, x):
            h, gate = self.first(x), self.first.weight[0, 0]
            return (self.a(h) if gate >= 0 else 0) + (self.b(h) if gate <= 0 else 0)

    torch.manual_seed(0)
    x = 20 * torch.randn(60, 96)
    net = ours(Routed(), x, hf.Embedding(16, noise=5.0))
    both = [c for c in hf.calibrate_(net, x).corrections if c.layer in ("a", "b")]
    assert len(both) == 2
    assert all(c.before > 100 for c in both)
    assert all(c.after < 2 for c in both)


def test_a_mask_may_hold_infinities():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 10)

        def forward(self, x, mask):
            return self.last(self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])

    torch.manual_seed(0)
    x = torch.randn(8, 6, 32), nn.Transformer.generate_square_subsequent_mask(6)
    net = hf.HyperNet(Masked(), 16, example=x)
    done = hf.calibrate_(net, x)
    assert all(abs(c.after / c.target - 1) <= 0.1 for c in done.corrections)
    with torch.no_grad():
        net.heads.head("10x32").bias[0] = math.nan
    found = next(f for f in diagnose(net, x).findings if f.name == "values that are not finite")
    assert "'last.weight'" in found.cause


def test_tensors_that_are_not_named_keep_their_values_and_their_codes():
    x, _ = vectors()
    net = ours(mlp(), x)  # three tensors of one shape share a head
    values, codes = net.generate(), net.codes()
    net.rescale_({"2.weight": 3.0, "0.weight": 2.0})
    for i, t in enumerate(net.generated):
        factor = {"2.weight": 3.0, "0.weight": 2.0}.get(t.name, 1.0)
        torch.testing.assert_close(net.generate()[t.name], factor * values[t.name])
        if t.name != "2.weight":  # the one that cannot be scaled in its head
            assert torch.equal(net.codes()[i], codes[i])


def test_a_shared_head_with_a_trained_bias_cannot_scale_one_of_its_tensors():
    x, _ = vectors()
    net = ours(mlp(), x)
    with torch.no_grad():
        net.heads.head("64x64").bias.normal_()
        net.heads.head("64x96").bias.normal_()
    before = net.generate()
    with pytest.raises(hf.HyperfanError, match="serves several tensors"):
        net.rescale_({"2.weight": 2.0, "0.weight": 2.0})
    assert all(torch.equal(t, before[name]) for name, t in net.generate().items())
    net.rescale_({"0.weight": 2.0})  # a head of its own, bias and all
    torch.testing.assert_close(net.generate()["0.weight"], 2 * before["0.weight"])


def test_the_plan_tells_the_new_scale():
    torch.manual_seed(0)
    x = 20 * torch.randn(100, 96)
    net = ours(mlp(), x, heads="separate")
    hf.calibrate_(net, x)
    for row in net.plan.rows:
        if row.made_by == "head":
            realised = net.generate()[row.tensor].square().mean().item()
            assert realised == pytest.approx(row.variance * row.scale**2 * row.moment, rel=0.1)


def test_training_goes_on_from_the_calibrated_weights():
    torch.manual_seed(0)
    x = (20 * torch.randn(30, 96)).double()
    net = ours(mlp().double(), x, heads="separate")
    opt = hf.SGD(net, lr=1e-4)
    net(x).square().mean().backward()
    opt.step()
    opt.zero_grad()
    hf.calibrate_(net, x)
    twin = copy.deepcopy(net)
    dense = torch.optim.SGD(twin.parameters(), lr=1e-4)
    for model, optimiser in ((net, opt), (twin, dense)):
        model(x).square().mean().backward()
        optimiser.step()
    for name, tensor in net.generate().items():
        torch.testing.assert_close(tensor, twin.generate()[name], rtol=1e-9, atol=1e-12)


def test_what_cannot_be_calibrated():
    x, _ = vectors()
    with pytest.raises(hf.HyperfanError, match="scales the heads of a HyperNet; this is a Sequential"):
        hf.calibrate_(mlp(), x)
    net = ours(mlp(), x)
    with torch.no_grad():
        net.heads.head("64x96").weight.zero_()
    with pytest.raises(hf.HyperfanError, match=r"'0' puts out zeros.*diagnose"):
        hf.calibrate_(net, x)
    net.reset_parameters()
    with torch.no_grad():
        net.heads.head("64x64").weight.mul_(1e38)
    with pytest.raises(hf.HyperfanError, match=r"'2' overflows.*reset_parameters"):
        hf.calibrate_(net, x)
    for bad in (x * math.nan, x[:0]):
        with pytest.raises(hf.HyperfanError, match="x is empty, or holds what is not a number"):
            hf.calibrate_(net, bad)
    given = ours(mlp(), x, hf.Embedding(3, given=True))
    with pytest.raises(hf.HyperfanError, match="pass embedding=, one like those to come"):
        hf.calibrate_(given, x)


@pytest.mark.parametrize(
    ("factors", "message"),
    [({"0.wieght": 2.0}, "did you mean '0.weight'"), ({"0.weight": 0.0}, "positive and finite"),
     ({"0.weight": float("inf")}, "positive and finite")],
)  # fmt: skip
def test_bad_factors(factors, message):
    x, _ = vectors()
    net = ours(mlp(), x)
    before = net.generate()
    with pytest.raises(hf.HyperfanError, match=message):
        net.rescale_(factors)
    assert torch.equal(net.generate()["0.weight"], before["0.weight"])
