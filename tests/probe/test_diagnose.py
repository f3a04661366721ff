import copy
import json
import math

import pytest
import torch
from patients import FAULTS, HEALTHY, Encoder, OwnHypernet, cnn, healthy_own_, mlp, ours, pictures, vectors, zero_biases
from torch import nn
from torch.nn.functional import cross_entropy

import hyperfan as hf
from checks import assert_close
from hyperfan.probe import Diagnosis
from hyperfan.probe.intervals import measured_scale, predicted_scale


def look(patient) -> Diagnosis:
    return hf.diagnose(patient.net, patient.x, patient.y, **patient.options)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_and_named(name):
    torch.manual_seed(5)
    fault = FAULTS[name]
    diagnosis = look(fault.plant())
    found = [f for f in diagnosis.findings if f.name == fault.name and f.severity != "note"]
    assert found, f"not found; said: {[f.name for f in diagnosis.findings]}"
    assert any(fault.says in f.cause for f in found), f"named otherwise: {[f.cause for f in found]}"
    assert not diagnosis.healthy
    assert all(f.evidence and f.cause and f.remedy for f in diagnosis.findings)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_wrong_with_a_healthy_net(name, seed):
    torch.manual_seed(seed)
    diagnosis = look(HEALTHY[name]())
    assert [str(f) for f in diagnosis.findings if f.severity != "note"] == []
    assert diagnosis.healthy


def test_there_are_enough_of_both():
    assert len(FAULTS) >= 25
    assert len(HEALTHY) >= 10


# ── what is measured ───────────────────────────────────────────────────────────────────────────────────────────────


def test_readings_are_those_of_hooks_and_autograd():
    torch.manual_seed(0)
    x, y = torch.randn(20, 96, dtype=torch.float64), torch.randint(10, (20,))
    net = ours(mlp().double(), x, heads="separate")
    diagnosis = hf.diagnose(net, x, y)

    plain, outputs = net.freeze(), []
    for i in (0, 2, 4, 6, 8):
        plain[i].register_forward_hook(lambda _m, _i, out: outputs.append(out))
    loss = cross_entropy(plain(x), y)
    gradients = torch.autograd.grad(loss * len(x), [*outputs, *(plain[i].weight for i in (0, 2, 4, 6, 8))])

    assert [r.layer for r in diagnosis.layers] == ["0", "2", "4", "6", "8"]
    for r, out, g in zip(diagnosis.layers, outputs, gradients, strict=False):
        assert r.measured.value == pytest.approx(out.square().mean().item(), rel=1e-10)
        assert r.measured_gradient.value == pytest.approx(g.square().mean().item(), rel=1e-10)
    for t, g in zip(diagnosis.tensors, gradients[5:], strict=True):
        assert t.gradient == pytest.approx(g.square().mean().sqrt().item() / len(x), rel=1e-10)
    assert diagnosis.loss == pytest.approx(loss.item(), rel=1e-10)
    assert diagnosis.expected_loss == math.log(10)


@pytest.mark.parametrize("trunk", [None, (24,)])
def test_what_reaches_each_part(trunk):
    torch.manual_seed(0)
    x, y = torch.randn(20, 96, dtype=torch.float64), torch.randint(10, (20,))
    net = ours(mlp().double(), x, hf.Embedding(16, trainable=True), heads="separate", trunk=trunk)
    parts = {p.part: p for p in hf.diagnose(net, x, y).parts}
    cross_entropy(net(x), y).backward()

    def norm(module: nn.Module) -> float:
        return math.sqrt(sum(p.grad.square().sum().item() for p in module.parameters()))

    assert parts["embedding"].gradient == pytest.approx(norm(net.embeddings), rel=1e-9)
    assert parts["plain"].gradient == pytest.approx(norm(net.mainnet), rel=1e-9)
    for name, code in zip(net.heads.layout.names, net.codes(), strict=True):
        assert parts[f"head {name}"].gradient == pytest.approx(norm(net.heads.head(name)), rel=1e-9)
        assert parts[f"head {name}"].rate == pytest.approx(code.square().sum().item() + 1, rel=1e-9)  # ‖h‖² + 1
    assert ("trunk" in parts) == bool(trunk)


def test_the_trial_step_is_that_of_sgd_and_is_taken_back():
    torch.manual_seed(0)
    x, y = torch.randn(20, 96, dtype=torch.float64), torch.randint(10, (20,))
    net = ours(mlp().double(), x)
    before = copy.deepcopy(net.state_dict())
    diagnosis = hf.diagnose(net, x, y, lr=0.5)
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])

    other = copy.deepcopy(net)
    opt = torch.optim.SGD(other.parameters(), lr=0.5)
    loss = cross_entropy(other(x), y)
    loss.backward()
    slope = sum(p.grad.square().sum().item() for p in other.parameters() if p.grad is not None)
    opt.step()
    after = cross_entropy(other(x), y).item()
    # The parabola through the loss before, its slope, and the loss after: where it is back at the first.
    bend = 2 * (after - loss.item() + 0.5 * slope) / 0.5**2
    assert diagnosis.stable_rate == pytest.approx(2 * slope / bend, rel=1e-8)


def test_without_y_gradients_are_those_of_a_random_direction():
    torch.manual_seed(0)
    x, _ = vectors()
    diagnosis = hf.diagnose(ours(mlp(), x), x)
    assert diagnosis.loss is None
    assert all(0 < r.measured_gradient.value < math.inf for r in diagnosis.layers)


def test_a_loss_of_ones_own():
    torch.manual_seed(0)
    x = torch.randn(30, 96)
    net, y = ours(mlp(), x), torch.randn(30, 10)
    by_default = hf.diagnose(net, x, y)
    assert hf.diagnose(net, x, y, loss=nn.MSELoss()).loss == by_default.loss
    assert hf.diagnose(net, x, y, loss=lambda out, y: (out - y).abs().mean()).loss != by_default.loss


def test_attention_shows_its_projections():
    torch.manual_seed(0)
    x = torch.randn(8, 12, 16)
    net = ours(Encoder(1), x)
    rows = {r.layer: r for r in hf.diagnose(net, x).layers}
    plain = net.freeze()
    read = {}
    plain.blocks.layers[0].self_attn.register_forward_pre_hook(
        lambda _m, args, kwargs: read.update(x=[*args, *kwargs.values()][0]), with_kwargs=True
    )
    plain(x)
    made = read["x"] @ plain.blocks.layers[0].self_attn.in_proj_weight.T
    assert rows["blocks.layers.0.self_attn.in_proj"].measured.value == pytest.approx(
        made.square().mean().item(), rel=1e-4
    )
    assert rows["blocks.layers.0.self_attn.in_proj"].measured_gradient is None
    assert rows["blocks.layers.0.self_attn.out_proj"].measured_gradient is not None


def test_a_layer_that_runs_twice_has_two_rows():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(96, 96)

        def forward(self, x):
            return self.layer(torch.tanh(self.layer(x)))

    torch.manual_seed(0)
    x = torch.randn(10, 96)
    assert [r.layer for r in hf.diagnose(ours(Twice(), x), x).layers] == ["layer", "layer (call 2)"]


def test_the_interval_of_a_mean_square_covers_it():
    """Layers y = W·x with random W and x of unit scale: 95 % of 400 intervals hold 1, to 4 standard errors."""
    torch.manual_seed(0)
    held = 0
    for _ in range(400):
        y = torch.randn(40, 30) @ torch.randn(30, 30) / 30**0.5
        held += (s := measured_scale(y, 1)).low <= 1 <= s.high
    assert abs(held / 400 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400)


def test_the_interval_of_a_prediction_holds_the_next_draw():
    torch.manual_seed(0)
    held = 0
    for _ in range(1000):
        draws = torch.randn(6).exp().tolist()
        s = predicted_scale(draws[:5])
        held += s.low <= draws[5] <= s.high
    assert abs(held / 1000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 1000)


# ── what is left alone ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_net_and_the_random_numbers_stay_as_they_are():
    torch.manual_seed(0)
    x, y = pictures(8)
    net = ours(cnn(norm=True), x, hf.Embedding(16, noise=0.2)).train()
    state, random = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    hf.diagnose(net, x, y, lr=0.1)
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(t, state[name]) for name, t in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert all(m.training for m in net.skeleton.module.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.skeleton.module.modules())


def test_a_net_in_training_is_seen_as_it_is_now():
    torch.manual_seed(0)
    x, y = torch.randn(20, 96, dtype=torch.float64), torch.randint(10, (20,))
    net = ours(mlp().double(), x)
    opt = hf.SGD(net, lr=0.1)
    for _ in range(3):
        cross_entropy(net(x), y).backward()
        opt.step()
        opt.zero_grad()
    assert hf.diagnose(net, x, y).loss == pytest.approx(cross_entropy(net(x), y).item(), rel=1e-9)
    cross_entropy(net(x), y).backward()
    opt.step()  # it can go on


# ── foreign hypernets ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_foreign_hypernet_is_seen_as_ours_is():
    """The same weights, once made by our heads and once by a function."""
    torch.manual_seed(0)
    x, y = torch.randn(20, 96, dtype=torch.float64), torch.randint(10, (20,))
    net = ours(zero_biases(mlp().double()), x)
    ours_seen = hf.diagnose(net, x, y)
    theirs = hf.diagnose(net.freeze(), x, y, generated=net.generate)
    for a, b in zip(ours_seen.layers, theirs.layers, strict=True):
        assert (a.layer, a.target, a.measured, a.predicted) == (b.layer, b.target, b.measured, b.predicted)
    assert {p.part for p in theirs.parts} == {"hypernet", "plain"}
    heads = sum(p.gradient**2 for p in ours_seen.parts if p.part.startswith("head"))
    assert theirs.parts[0].gradient == pytest.approx(math.sqrt(heads), rel=1e-9)


def test_a_foreign_hypernet_is_left_as_it_was():
    torch.manual_seed(0)
    x, y = vectors()
    mainnet = zero_biases(mlp())
    hypernet = healthy_own_(OwnHypernet(mainnet))
    state = copy.deepcopy(hypernet.state_dict()), copy.deepcopy(mainnet.state_dict())
    hf.diagnose(mainnet, x, y, generated=hypernet, lr=0.1)
    for module, before in zip((hypernet, mainnet), state, strict=True):
        assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())
        assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Sequential is no HyperNet: pass generated="),
        ({"generated": lambda: [torch.zeros(3)]}, "generated\\(\\) returned a list: it should return a dict"),
        ({"generated": dict}, "generated\\(\\) returned no tensors"),
        ({"generated": lambda: {"0.wieght": torch.zeros(128, 96)}}, "did you mean '0.weight'"),
        ({"generated": lambda: {"0.weight": torch.zeros(96, 128)}}, "it looks transposed"),
        ({"generated": lambda: {}, "task": 1}, "generated\\(\\) returned no tensors|belong to a HyperNet"),
        ({"generated": lambda: {"0.weight": torch.zeros(128, 96)}, "y": "cat"}, "pass loss="),
        ({"generated": lambda: {"0.weight": torch.zeros(128, 96)}, "loss": nn.MSELoss()}, "without y="),
    ],
)
def test_what_cannot_be_looked_at(arguments, message):
    with pytest.raises(hf.HyperfanError, match=message):
        hf.diagnose(mlp(), torch.randn(4, 96), **arguments)


def test_our_net_needs_no_function():
    x, _ = vectors()
    net = ours(mlp(), x)
    with pytest.raises(hf.HyperfanError, match="leave out generated="):
        hf.diagnose(net, x, generated=net.generate)


# ── what it says ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_diagnosis_prints_and_goes_to_json():
    torch.manual_seed(0)
    x, y = vectors()
    sick = hf.diagnose(ours(mlp(), x, init="xavier-fan-in"), x, y, lr=0.1)
    told = str(sick)
    for part in (
        "wrong scale of a head",
        "seen:",
        "likely:",
        "mend:",
        "HyperNet(mainnet, embedding=32, init='hyperfan-in')",
    ):
        assert part in told
    assert "effective rate" in told
    assert json.loads(json.dumps(sick.to_dict(), allow_nan=False))["healthy"] is False
    assert sick.summary.startswith("Wrong scale of a head in '0.weight'")
    assert hf.diagnose(ours(mlp(), x), x, y).summary.startswith("Healthy: 5 layers")


@pytest.mark.parametrize("name", ["Xavier on the head", "overflow"])
def test_a_diagnosis_comes_back_from_json(name):
    torch.manual_seed(5)
    seen = look(FAULTS[name].plant())
    back = Diagnosis.from_dict(json.loads(json.dumps(seen.to_dict())))
    assert back.to_dict() == seen.to_dict()
    if name != "overflow":  # where infinities have become NaN, which equals nothing
        assert back == seen


def test_overflow_goes_to_json_too():
    torch.manual_seed(0)
    told = look(FAULTS["overflow"].plant()).to_dict()
    json.dumps(told, allow_nan=False)
    assert told["layers"][0]["measured"]["value"] is None or told["layers"][-1]["measured"]["value"] is None


def test_the_remedy_mends_it():
    """Every fault that net.reset_parameters() is said to mend is gone after it."""
    torch.manual_seed(5)
    for name in ("√3 left out", "d_k forgotten", "a head of zeros", "a head that ignores its code"):
        patient = FAULTS[name].plant()
        assert {f.remedy for f in look(patient).findings if f.name == FAULTS[name].name} == {"net.reset_parameters()"}
        patient.net.reset_parameters()
        assert look(patient).healthy


def test_float64_inputs_agree_with_float32():
    torch.manual_seed(0)
    x, y = vectors(40)
    net = ours(mlp(), x)
    a, b = hf.diagnose(net, x, y), hf.diagnose(copy.deepcopy(net).double(), x.double(), y)
    for r, s in zip(a.layers, b.layers, strict=True):
        assert r.measured.value == pytest.approx(s.measured.value, rel=1e-4)
        assert r.predicted.value == pytest.approx(s.predicted.value, rel=1e-4)
    assert_close(net.double().generate()["0.weight"], copy.deepcopy(net).double().generate()["0.weight"])
