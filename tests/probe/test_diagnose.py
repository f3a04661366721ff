import copy
import json
import math
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from patients import (
    FAULTS,
    HEALTHY,
    Encoder,
    OwnHypernet,
    cnn,
    healthy_own_,
    mlp,
    ours,
    pictures,
    saturated_trunk,
    vectors,
    zero_biases,
)
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, mse_loss, relu

import hyperfan as hf
from hyperfan.probe import Diagnosis, Finding
from hyperfan.probe.moments import Scale, measured_scale, predicted_scale
from products import in_turn

RESTART = "net.reset_parameters(), unless the net is trained: it draws all values anew"


def look(patient) -> Diagnosis:
    return hf.diagnose(patient.net, patient.x, patient.y, **patient.options)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_and_named(name):
    torch.manual_seed(5)
    fault = FAULTS[name]
    diagnosis = look(fault.plant())
    found = [f for f in diagnosis.findings if f.name == fault.name and (f.severity == "note") == fault.note]
    assert found, f"not found; said: {[f.name for f in diagnosis.findings]}"
    assert any(fault.says in f.cause for f in found), f"named otherwise: {[f.cause for f in found]}"
    assert diagnosis.healthy == fault.note
    assert all(f.evidence and f.cause and f.remedy for f in diagnosis.findings)


@pytest.mark.parametrize(("name", "seed"), in_turn(list(HEALTHY), [0, 1, 2]))
def test_nothing_is_wrong_with_a_healthy_net(name, seed):
    torch.manual_seed(seed)
    diagnosis = look(HEALTHY[name]())
    assert [str(f) for f in diagnosis.findings if f.severity != "note"] == []
    assert diagnosis.healthy


def field_of_one_output():
    """A net of one output, which by chance varies little with its inputs under this seed."""
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
    net = hf.HyperNet(mainnet, hf.Embedding(6, given=True, per="net"), trunk=(128, 128))
    return net, torch.rand(32, 64, 2) * 2 - 1, torch.randn(32, 64, 1), torch.randn(32, 6)


def test_few_outputs_may_be_alike_by_chance():
    net, x, y, codes = field_of_one_output()
    (found,) = hf.diagnose(net, x, y, embedding=codes).findings
    assert (found.name, found.severity) == ("inputs that look alike at the output", "note")
    assert "by chance" in found.cause


def test_an_update_that_is_zero_at_the_start_answers_neither_for_that_nor_for_its_bases_gradients():
    """Unlike a base with a share of 0, which the init draws."""
    x, y, conditions = torch.randn(64, 32), torch.randint(3, (64,)), torch.randn(64, 5)
    judged = {"vanishing gradients", "no dependence on the condition at the start"}
    lora = {"heads": hf.LoRA(2)}
    for options, expected in (({"share": 0.0}, judged), (lora, set()), (lora | {"base": "start"}, set())):
        torch.manual_seed(0)
        layers = [layer for _ in range(10) for layer in (nn.Linear(32, 32), nn.Sigmoid())]
        mainnet = nn.Sequential(*layers, nn.Linear(32, 3))
        net = hf.HyperNet(mainnet, hf.Embedding(5, given=True, per="net"), trunk=(16,), **options)
        findings = hf.diagnose(net, x, y, embedding=conditions).findings
        assert {str(f.name) for f in findings} & judged == expected


def conv_net():
    layers = nn.Conv1d(1, 4, 5), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    net = hf.HyperNet(nn.Sequential(*layers), hf.Embedding(6, given=True, per="net"), trunk=(32,))
    return net, torch.randn(8, 10, 1, 16), torch.randn(8, 10, 3), torch.randn(8, 6)


@pytest.mark.parametrize("target", ["numbers", "classes", None])
def test_inputs_of_groups_and_shared_ones_are_as_at_the_call(target):
    """A group is as many inputs with the same code, also where layers take no more than one batch dimension."""
    net, x, numbers, codes = conv_net()
    y = {"numbers": numbers, "classes": numbers.argmax(-1), None: None}[target]
    lr, of_rows = (None, None) if y is None else (1e-3, y.flatten(0, 1))
    for inputs, option in ((x, {"grouped": True}), (x[0], {"shared": True})):
        rows = inputs.expand(x.shape).flatten(0, 1)
        found = hf.diagnose(net, inputs, y, embedding=codes, lr=lr, **option)
        each = hf.diagnose(net, rows, of_rows, embedding=codes.repeat_interleave(10, 0), lr=lr)
        for mine, theirs in zip((*found.layers, *found.tensors), (*each.layers, *each.tensors), strict=True):
            assert_alike(mine, theirs)
        for mine, theirs in zip(found.parts, each.parts, strict=True):
            assert mine.gradient == pytest.approx(theirs.gradient, rel=1e-4)
        if y is not None:
            assert (found.loss, found.stable_rate) == pytest.approx((each.loss, each.stable_rate), rel=1e-3)
        assert (found.expected_loss, found.inputs) == (each.expected_loss, 80)
        assert [f.name for f in found.findings] == [f.name for f in each.findings]
        assert "80 inputs in 8 groups, each with a code of its own" in str(found)
        with pytest.raises(hf.HyperfanError, match=r"=True is for many codes: pass embedding= or task="):
            hf.diagnose(net, inputs, y, **option)
        with pytest.raises(hf.HyperfanError):
            hf.diagnose(net, inputs, y, embedding=codes[0], **option)


def test_a_group_may_be_returned_in_any_shape_and_have_numbers_beside_it():
    """As by a layer that returns its state too, which has the batch elsewhere, and a mainnet that pools over it."""

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x, scale):
            made, state = self.layer(x)
            return self.out(made[:, -1]).mean(0) * scale, state

    x, codes = torch.randn(6, 5, 7, 3), torch.randn(6, 4)
    net = hf.HyperNet(Pooled(), hf.Embedding(4, given=True, per="net"), trunk=(8,), example=(x[0], torch.tensor(2.0)))
    call = (x, torch.tensor(2.0))
    assert net(*call, embedding=codes, grouped=True)[0].shape == (6, 2)
    assert hf.diagnose(net, call, embedding=codes, grouped=True).inputs == 30


def assert_alike(mine, theirs):
    """Assert that two readings of a layer or tensor have the same numbers, but for rounding."""
    for name, value in vars(mine).items():
        other = getattr(theirs, name)
        if isinstance(value, Scale):  # whose interval depends on the number of codes
            assert value.value == pytest.approx(other.value, rel=1e-4), name
        elif isinstance(value, float):
            assert value == pytest.approx(other, rel=1e-4), name


def test_a_foreign_hypernet_with_a_net_for_each_group():
    mainnet, head, codes = nn.Sequential(nn.Conv1d(1, 4, 5), nn.Flatten()), nn.Linear(6, 20), torch.randn(8, 6)
    x, y = torch.randn(8, 10, 1, 16), torch.randn(8, 10, 48)

    def generated(repeats):
        return lambda: {"0.weight": head(codes.repeat_interleave(repeats, 0)).view(-1, 4, 1, 5)}

    found = hf.diagnose(mainnet, x, y, generated=generated(1), grouped=True)
    each = hf.diagnose(mainnet, x.flatten(0, 1), y.flatten(0, 1), generated=generated(10))
    assert_alike(found.layers[0], each.layers[0])
    assert found.loss == pytest.approx(each.loss, rel=1e-5)
    with pytest.raises(hf.HyperfanError, match="is for a net for each group, and generated"):
        hf.diagnose(mainnet, x, y, generated=lambda: {"0.weight": head(codes[0]).view(4, 1, 5)}, grouped=True)


@pytest.mark.parametrize(
    ("factor", "outputs", "loss"),
    [
        (3.0, 1.0, None),
        (1000.0, 1000.0, None),
        (0.001, 0.001, None),
        (1000.0, 1.0, lambda out, y: (out - y / 1000).square().mean()),
        (None, 1.0, None),
    ],
    ids=["near 1", "as large as the outputs", "as small as the outputs", "a loss of the user's", "probabilities"],
)
def test_targets_are_on_scale_if_the_outputs_are_like_them_and_where_the_loss_is_not_known(factor, outputs, loss):
    classes = 10 if factor else 200
    mainnet = nn.Sequential(nn.Linear(96, 64), nn.Tanh(), nn.Linear(64, classes))
    net, x = ours(mainnet, torch.randn(100, 96)), torch.randn(100, 96)
    net.rescale_({"2.weight": outputs})
    y = torch.eye(classes)[:100] if factor is None else factor * torch.randn(100, classes)
    found = hf.diagnose(net, x, y, loss)
    assert "targets off scale" not in {f.name for f in found.findings}


def test_generated_biases_may_be_zero_and_weights_make_up_for_them():
    torch.manual_seed(0)
    x, y = vectors()
    net = ours(mlp(nn.ReLU), x, hf.Embedding(16, given=True, per="net"), init="beck2022-bias")
    assert not net.generate(embedding=torch.randn(16))["0.bias"].any()
    assert not {"wrong scale of a head", "dead head: zero output"} & {f.name for f in hf.diagnose(net, x, y).findings}
    with torch.no_grad():
        net.heads.head("0/weight").bias.mul_(2)
    found = [f for f in hf.diagnose(net, x, y).findings if f.name == "wrong scale of a head"]
    assert [f.where for f in found] == [("0.weight",)]


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_dead_units_are_counted_by_unit(kind):
    """Three quarters of them, on every input and, in a convolution, at every place."""
    torch.manual_seed(0)
    if kind == "linear":
        main, x = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5)), torch.randn(30, 20)
    else:
        layers = [nn.Conv2d(3, 40, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 5)]
        main, x = nn.Sequential(*layers), torch.randn(30, 3, 8, 8)
    net = hf.HyperNet(main, 16)
    with torch.no_grad():
        net.mainnet.get_parameter("0.bias")[:30] = -50.0
    found = [f for f in hf.diagnose(net, x).findings if f.name == "dead ReLU"]
    assert [f.evidence[:3] for f in found] == ["75%"]


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


RATES = {
    "sgd": lambda h: h.square().sum() + 1,
    "adam": lambda h: h.abs().sum() + 1,
    "adamw": lambda h: h.abs().sum() + 1,
}
"""Optimiser → effective rate of a head that makes one tensor, from its code."""


@pytest.mark.parametrize("optimiser", RATES)
@pytest.mark.parametrize("trunk", [None, (24,)])
def test_what_reaches_each_part(trunk, optimiser):
    torch.manual_seed(0)
    x, y = torch.randn(20, 96, dtype=torch.float64), torch.randint(10, (20,))
    net = ours(mlp().double(), x, hf.Embedding(16, trainable=True), heads="separate", trunk=trunk)
    parts = {p.part: p for p in hf.diagnose(net, x, y, optimiser=optimiser).parts}
    cross_entropy(net(x), y).backward()

    def norm(module: nn.Module) -> float:
        return math.sqrt(sum(p.grad.square().sum().item() for p in module.parameters()))

    assert parts["embedding"].gradient == pytest.approx(norm(net.embeddings), rel=1e-9)
    assert parts["plain"].gradient == pytest.approx(norm(net.mainnet), rel=1e-9)
    for name, code in zip(net.heads.names, net.codes(), strict=True):
        assert parts[f"head {name}"].gradient == pytest.approx(norm(net.heads.head(name)), rel=1e-9)
        assert parts[f"head {name}"].rate == pytest.approx(RATES[optimiser](code).item(), rel=1e-9)
    assert ("trunk" in parts) == bool(trunk)


def quadratic():
    """A net whose loss is a parabola in all that is trained: one linear layer, mean squared error, a fixed code."""
    torch.manual_seed(0)
    x, y = torch.randn(30, 6, dtype=torch.float64), torch.randn(30, 4, dtype=torch.float64)
    return hf.HyperNet(nn.Linear(6, 4, bias=False).double(), embedding=5), x, y


STEPPERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr, weight_decay=0.0),
}


def after_a_step(net, loss, lr, optimiser="sgd"):
    net = copy.deepcopy(net)
    opt = STEPPERS[optimiser](net.parameters(), lr=lr)
    loss(net).backward()
    opt.step()
    return loss(net).item()


@pytest.mark.parametrize("optimiser", STEPPERS)
def test_the_stable_rate_is_where_a_parabola_is_back_at_its_start(optimiser):
    net, x, y = quadratic()
    stable = hf.diagnose(net, x, y, lr=0.1, optimiser=optimiser).stable_rate
    gradient = torch.autograd.grad(mse_loss(net(x), y), list(net.parameters()), create_graph=True)
    steps = [g.detach() if optimiser == "sgd" else g.detach().sign() for g in gradient]
    slope = sum((g * s).sum() for g, s in zip(gradient, steps, strict=True))
    bent = torch.autograd.grad(slope, list(net.parameters()))  # H·s
    curvature = sum((s * b).sum() for s, b in zip(steps, bent, strict=True))
    assert stable == pytest.approx((2 * slope / curvature).item(), rel=1e-6)
    start = mse_loss(net(x), y).item()
    assert after_a_step(net, lambda n: mse_loss(n(x), y), 0.99 * stable, optimiser) < start
    assert after_a_step(net, lambda n: mse_loss(n(x), y), 1.01 * stable, optimiser) > start


@pytest.mark.parametrize(("lr", "optimiser"), in_turn([1e-12, 1e-6, 1e-2, 1.0, 100.0, 1e30], list(STEPPERS)))
def test_any_rate_may_be_asked_about(lr, optimiser):
    """A step is too large if the optimiser itself says so; the stable rate stays, and half of it lowers the loss."""
    torch.manual_seed(0)
    x, y = vectors(50)
    net = ours(mlp(), x)
    before = copy.deepcopy(net.state_dict())
    diagnosis = hf.diagnose(net, x, y, lr=lr, optimiser=optimiser)
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())  # the step was taken back
    start, loss = cross_entropy(net(x), y).item(), lambda n: cross_entropy(n(x), y)
    found = [f for f in diagnosis.findings if f.name == "learning rate too large"]
    assert bool(found) == (not after_a_step(net, loss, lr, optimiser) <= start + 1e-5)
    assert diagnosis.stable_rate == hf.diagnose(net, x, y, lr=1e-3, optimiser=optimiser).stable_rate
    assert after_a_step(net, loss, diagnosis.stable_rate / 2, optimiser) < start
    assert not found or found[0].remedy == f"lr={diagnosis.stable_rate / 2:.2g}"


@pytest.mark.parametrize("trunk", [None, (24,)])
@pytest.mark.parametrize("stepper", [hf.AdamW, torch.optim.AdamW])
def test_a_step_of_adamw_on_heads_moves_every_weight_by_the_sum_of_its_code(stepper, trunk):
    torch.manual_seed(0)
    x, y = torch.randn(20, 96, dtype=torch.float64), torch.randint(10, (20,))
    net = ours(mlp().double(), x, heads="separate", trunk=trunk)
    before = net.generate()
    gradients = torch.autograd.grad(cross_entropy(net.run(before, x), y), list(before.values()))
    heads = list(net.heads.parameters())  # and nothing else: a trunk would change the codes
    options = {"lr": 1e-3, "eps": 1e-30, "weight_decay": 0.0}
    opt = stepper(net, params=heads, **options) if stepper is hf.AdamW else stepper(heads, **options)
    cross_entropy(net(x), y).backward()
    opt.step()
    after = net.generate()
    for (name, w), g, code in zip(before.items(), gradients, net.codes(), strict=True):
        moved = 1e-3 * (code.abs().sum() + 1)
        torch.testing.assert_close(after[name] - w, -moved * g.sign(), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("seed", range(3))
def test_adamw_takes_the_plain_nets_rate_over_the_effective_rate(seed):
    """The planted rate lowers the loss of the plain net; divided by the effective rate, that of the hypernet too."""
    torch.manual_seed(seed)
    ill = FAULTS["AdamW at the plain net's rate"].plant()
    net, x, y, lr = ill.net, ill.x, ill.y, ill.options["lr"]
    start, plain = cross_entropy(net(x), y).item(), net.freeze()
    for p in plain.parameters():
        p.requires_grad_()
    assert after_a_step(plain, lambda n: cross_entropy(n(x), y), lr, "adamw") < start
    rates = [p.rate for p in look(ill).parts if p.rate]
    mended = hf.diagnose(net, x, y, lr=lr / max(rates), optimiser="adamw")
    assert mended.healthy
    assert "in a first step of AdamW" in mended.facts
    assert "effective rate in AdamW" in str(mended)


@pytest.mark.parametrize("lr", [1e-4, 0.03])
def test_a_step_of_adamw_on_a_foreign_hypernet_is_torchs(lr):
    torch.manual_seed(0)
    x, y = vectors(50)
    mainnet = zero_biases(mlp())
    whole = nn.ModuleDict({"mainnet": mainnet, "hypernet": healthy_own_(OwnHypernet(mainnet))})

    def loss(m):
        return cross_entropy(functional_call(m["mainnet"], m["hypernet"](), (x,)), y)

    seen = hf.diagnose(mainnet, x, y, generated=whole["hypernet"], lr=lr, optimiser="adamw")
    found = [f.evidence for f in seen.findings if f.name == "learning rate too large"]
    after = after_a_step(whole, loss, lr, "adamw")
    assert bool(found) == (after > loss(whole).item())
    assert not found or f"to {after:.4g}" in found[0]


@pytest.mark.parametrize(
    ("optimiser", "seen"), [("lion", "'lion'"), ("AdamW", "'AdamW'"), (None, "a NoneType"), (["sgd"], "a list")]
)
def test_an_optimiser_that_is_not_known_is_told_the_choices(optimiser, seen):
    net, x, _ = quadratic()
    with pytest.raises(hf.HyperfanError) as error:
        hf.diagnose(net, x, optimiser=optimiser)
    assert str(error.value) == f"optimiser= is {seen}: choose 'sgd', 'adam', 'adamw', or pass one of these"


def test_a_random_hypernet_is_tried_with_one_draw():
    torch.manual_seed(0)
    x, y = vectors(50)
    mainnet = zero_biases(mlp())
    hypernet = healthy_own_(OwnHypernet(mainnet))

    def generated():
        return {name: w * (1 + 0.3 * torch.rand(())) for name, w in hypernet().items()}

    assert "learning rate too large" not in {
        f.name for f in hf.diagnose(mainnet, x, y, generated=generated, lr=1e-4).findings
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.0, "y": True}, "a learning rate is positive and finite"),
        ({"lr": math.nan, "y": True}, "a learning rate is positive and finite"),
        ({"lr": 0.1}, "lr= was given without y="),
    ],
)
def test_rates_that_cannot_be_tried(arguments, message):
    net, x, y = quadratic()
    if "y" in arguments:
        arguments = {**arguments, "y": y}
    with pytest.raises(hf.HyperfanError, match=message):
        hf.diagnose(net, x, **arguments)


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
    apart = (net(x) - y).abs().mean().item()
    assert hf.diagnose(net, x, y, loss=lambda out, y: (out - y).abs().mean()).loss == pytest.approx(apart, rel=1e-5)


def test_attention_shows_its_projections():
    torch.manual_seed(0)
    x = torch.randn(8, 12, 16)
    net = ours(Encoder(1), x, generate="weights+biases")
    rows = {r.layer: r for r in hf.diagnose(net, x).layers}
    plain = net.freeze()
    read = {}
    plain.blocks.layers[0].self_attn.register_forward_pre_hook(
        lambda _m, args, kwargs: read.update(x=[*args, *kwargs.values()][0]), with_kwargs=True
    )
    plain(x)
    attention = plain.blocks.layers[0].self_attn
    made = read["x"] @ attention.in_proj_weight.T + attention.in_proj_bias
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


def test_a_nonlinearity_after_a_mean_has_units_of_its_own():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 10)

        def forward(self, x):
            return self.b(relu(self.a(x).mean(1)))

    torch.manual_seed(0)
    x = torch.randn(20, 12, 16)
    assert [r.layer for r in hf.diagnose(ours(Pooled(), x), x).layers] == ["a", "b"]


def test_batch_norm_needs_a_batch():
    x, _ = pictures(8)
    net = ours(nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), x)
    with pytest.raises(hf.HyperfanError, match="batch norm needs several inputs"):
        hf.diagnose(net, x[:1])


def test_a_mainnet_that_comes_trained_is_no_fault():
    torch.manual_seed(0)
    x, y = pictures()
    mainnet = cnn(norm=True)
    for m in mainnet.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, 0, 0.3)
    diagnosis = hf.diagnose(ours(mainnet, x, generate=["12.weight"]), x, y)
    assert diagnosis.healthy
    assert {(f.name, f.severity) for f in diagnosis.findings} == {("norm parameters not at 1 and 0", "note")}


@pytest.mark.parametrize("name", ["a margin that all outputs keep", "a loss of classes chosen"])
def test_a_flat_loss_is_blamed_alone(name):
    torch.manual_seed(5)
    found = look(FAULTS[name].plant()).findings
    assert [f.name for f in found if f.severity != "note"] == ["a loss without a gradient"]


def test_what_cannot_be_predicted_is_said():
    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.randn(10, 96))

        def forward(self, x):
            return torch.cdist(x, self.W)

    torch.manual_seed(0)
    x, y = vectors(20)
    net, head = Raw(), torch.randn(10, 96, requires_grad=True)
    diagnosis = hf.diagnose(net, x, y, generated=lambda: {"W": 2 * head})
    (note,) = [f for f in diagnosis.findings if f.name == "no prediction"]
    assert note.where == ("W",)
    assert "hyperfan.rule" in note.remedy


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


def test_gradients_are_compared_with_the_epsilon_of_the_users_optimiser():
    x, y = vectors(20)
    net = ours(mlp(depth=1), x)
    found = {}
    for eps in (1e-15, 1e-8, 1.0):
        opt = torch.optim.AdamW(net.parameters(), lr=1e-6, eps=eps)
        findings = hf.diagnose(net, x, y, lambda out, y: 1e-7 * cross_entropy(out, y), optimiser=opt).findings
        found[eps] = [f.evidence for f in findings if f.name == "gradients below the optimiser's epsilon"]
    assert not found[1e-15]
    assert "Adam's eps is 1e-08" in found[1e-8][0]
    assert "Adam's eps is 1" in found[1.0][0]


def test_a_summary_keeps_the_capitals_of_a_name():
    fault = FAULTS["dead ReLU"].plant()
    assert replace(look(fault), findings=(Finding("dead ReLU", "error", (), "", "", ""),)).summary == "Dead ReLU."


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


@pytest.mark.parametrize("call", [hf.diagnose, hf.calibrate_, partial(hf.predict, seed=3)])
def test_the_random_numbers_of_all_cuda_devices_stay_as_they_are(monkeypatch, call):
    """Also those of devices that the net is not on, which ``torch.manual_seed`` seeds too."""
    devices = [torch.Generator().manual_seed(i) for i in range(2)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda i: devices[i].get_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, i: devices[i].set_state(state))
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: [g.manual_seed(seed) for g in devices])
    x, _ = vectors(8)
    net = ours(mlp(), x, hf.Embedding(16, noise=0.2))
    call(net, x)
    assert [g.initial_seed() for g in devices] == [0, 1]


def test_random_numbers_that_a_check_draws_are_put_back():
    class Unused(nn.Module):
        """Draws in every call, and has a layer without a part in what it puts out."""

        def __init__(self):
            super().__init__()
            self.first, self.unused = nn.Linear(96, 64), nn.Linear(96, 64)

        def forward(self, x):
            self.unused(x)
            return self.first(x + torch.randn_like(x))

    x, y = torch.randn(20, 96), torch.randn(20, 64)
    net = ours(Unused(), x)
    random = torch.get_rng_state()
    assert hf.diagnose(net, x, y).findings
    assert torch.equal(random, torch.get_rng_state())


def test_a_random_foreign_hypernet_leaves_the_random_numbers_and_its_buffers_alone():
    class Hypernet(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 64 * 96)

        def forward(self):
            return {"0.weight": self.head(self.norm(torch.randn(4, 16)))[0].view(64, 96)}

    torch.manual_seed(0)
    x, y = vectors(20)
    mainnet, hypernet = mlp(), Hypernet()
    state, random = copy.deepcopy(hypernet.state_dict()), torch.get_rng_state()
    hf.diagnose(mainnet, x, y, generated=hypernet, lr=0.01)
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(t, state[name]) for name, t in hypernet.state_dict().items())


def test_inputs_that_the_net_writes_into_stay_as_they_are():
    torch.manual_seed(0)
    x, y = vectors(20)
    before = x.clone()
    net = ours(nn.Sequential(nn.ReLU(inplace=True), *mlp()), x.clone())
    seen = hf.diagnose(net, x, y)
    assert torch.equal(x, before)
    assert seen.loss == pytest.approx(cross_entropy(net(x.clone()), y).item(), rel=1e-5)


def test_a_hypernet_that_raises_gets_its_buffers_back():
    class Hypernet(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self):
            self.calls.add_(1)
            raise RuntimeError("no")

    hypernet = Hypernet()
    with pytest.raises(RuntimeError, match="no"):
        hf.diagnose(mlp(), torch.randn(4, 96), generated=hypernet)
    assert hypernet.calls == 0


def test_a_graph_that_is_still_held_can_go_backward_after_a_trial():
    torch.manual_seed(0)
    x, y = vectors(20)
    mainnet = zero_biases(mlp())
    hypernet = healthy_own_(OwnHypernet(mainnet))
    loss = cross_entropy(functional_call(mainnet, hypernet(), (x,)), y)
    hf.diagnose(mainnet, x, y, generated=hypernet, lr=0.1)
    loss.backward()


def test_it_looks_at_gradients_under_no_grad_and_says_that_inference_mode_rules_them_out():
    torch.manual_seed(0)
    x, y = vectors(20)
    net = ours(mlp(), x)
    with torch.no_grad():
        assert hf.diagnose(net, x, y).healthy
    with torch.inference_mode(), pytest.raises(hf.HyperfanError, match="rules out"):
        hf.diagnose(net, x, y)


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


# ── a code for each input ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_a_code_for_each_input_is_measured_as_in_a_loop(optimiser):
    torch.manual_seed(0)
    x, y, e = torch.randn(6, 96).double(), torch.randint(10, (6,)), torch.randn(6, 5).double()
    net = ours(mlp(depth=2).double(), x, hf.Embedding(5, given=True, per="net"), trunk=(8,))
    seen = hf.diagnose(net, x, y, embedding=e, lr=1e-3, optimiser=optimiser)
    assert seen.codes == 6
    assert "6 inputs, each with a code of its own" in seen.facts

    outputs, gradients = {}, {}
    tensors = {name: t.detach().requires_grad_() for name, t in net.generate(embedding=e).items()}
    for i in range(6):
        plain = net.freeze(embedding=e[i])
        for layer in ("0", "2", "4"):
            plain[int(layer)].register_forward_hook(
                lambda _m, _i, out, layer=layer: outputs.setdefault(layer, []).append(out)
            )
        loss = cross_entropy(
            functional_call(plain, {n: t[i] for n, t in tensors.items()}, (x[i : i + 1],)), y[i : i + 1]
        )
        found = torch.autograd.grad(loss, [outs[-1] for outs in outputs.values()], retain_graph=True)
        for layer, g in zip(outputs, found, strict=True):
            gradients.setdefault(layer, []).append(g)
        loss.backward()
    for r in seen.layers:
        assert r.measured.value == pytest.approx(torch.cat(outputs[r.layer]).square().mean().item(), rel=1e-9)
        assert r.measured_gradient.value == pytest.approx(
            torch.cat(gradients[r.layer]).square().mean().item(), rel=1e-9
        )
    for t in seen.tensors:
        assert t.realised.value == pytest.approx(tensors[t.tensor].square().mean().item(), rel=1e-9)
        assert t.gradient == pytest.approx(tensors[t.tensor].grad.sum(0).square().mean().sqrt().item() / 6, rel=1e-9)

    start, loss = cross_entropy(net(x, embedding=e), y), lambda n: cross_entropy(n(x, embedding=e), y)
    assert seen.loss == pytest.approx(start.item(), rel=1e-9)
    assert seen.stable_rate is None or after_a_step(net, loss, seen.stable_rate / 2, optimiser) < start
    start.backward()
    parts = {p.part: p for p in seen.parts}
    trunk = math.sqrt(sum(p.grad.square().sum().item() for p in net.trunk.parameters()))
    assert parts["trunk"].gradient == pytest.approx(trunk, rel=1e-9)


def test_codes_for_each_input_are_drawn_where_the_net_can_run_so():
    torch.manual_seed(0)
    x, y = pictures(8)
    embedding = hf.Embedding(8, given=True, per="net")
    assert hf.diagnose(ours(cnn(), x, embedding), x, y).codes == 8
    assert hf.diagnose(ours(cnn(norm=True), x, embedding), x, y).codes == 1  # batch norm needs a batch
    assert hf.diagnose(ours(cnn(norm=True).eval(), x, embedding), x, y).codes == 8
    assert hf.diagnose(ours(cnn(), x, embedding), x, y, embedding=torch.randn(8)).codes == 1
    net = ours(cnn(), x, embedding)
    with pytest.raises(hf.HyperfanError, match="5 codes were given, one per sample"):
        hf.diagnose(net, x, y, embedding=torch.randn(5, 8))
    with pytest.raises(hf.HyperfanError, match="calibrate_ looks at one net, and embedding= has 8"):
        hf.calibrate_(net, x, embedding=torch.randn(8, 8))


def test_conditions_that_the_net_was_built_with_are_the_measure_of_those_given():
    torch.manual_seed(0)
    x, y = vectors(30)
    e = 5 * torch.randn(30, 16)
    net = ours(mlp(), x, hf.Embedding(16, given=True, per="net"), trunk=(64,), example_embeddings=e, share=1.0)
    assert hf.diagnose(net, x, y, embedding=e).healthy
    assert hf.diagnose(net, x, y).healthy
    assert not hf.diagnose(net, x, y, embedding=e / 5).healthy


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.0])
@pytest.mark.parametrize(
    "embedding", [hf.Embedding(64, given=True, per="net"), hf.Embedding(64, tasks=3, per="net")], ids=["given", "tasks"]
)
def test_the_correlation_of_two_conditions_nets_follows_the_share(embedding, share):
    """1 − ρ + ρ·cos(h, h′), to the sampling error of the correlation of 64·96 pairs of values, and of more."""
    torch.manual_seed(0)
    x, y = vectors(4)
    e = torch.randn(4, 64)
    net = ours(mlp(), x, embedding, share=share)
    given = embedding.given
    seen = hf.diagnose(net, x, y, **({"embedding": e} if given else {}))
    codes = [net.codes(embedding=c) if given else net.codes(task=i) for i, c in enumerate(e if given else range(3))]
    pairs = [(a, b) for i, a in enumerate(codes) for b in codes[:i]]
    # Weights are equal to W⁰ + H·h with independent H: their norms are those of a base and of ‖h‖.
    expected = []
    for a, b in pairs:
        norm = net.plan.rows[0].moment
        ratios = [c[0].square().sum() / norm for c in (a, b)]
        dot = 1 - share + share * (a[0] @ b[0]) / norm
        expected.append(dot / math.sqrt(math.prod(1 - share + share * r for r in ratios)))
    error = 4 / math.sqrt(sum(t.numel for t in net.generated))
    assert seen.correlation == pytest.approx(torch.stack(expected).mean().item() if share else 1.0, abs=error)
    assert ("unrelated nets of two conditions" in {f.name for f in seen.findings}) == (seen.correlation <= 0.25)
    assert f"correlation {seen.correlation:.2f}" in seen.facts


def test_a_net_without_conditions_has_no_correlation():
    x, y = vectors(4)
    assert hf.diagnose(ours(mlp(), x), x, y).correlation is None


def test_all_that_is_trained_is_listed_and_tried():
    """Bases too, without which a step would be another one."""
    torch.manual_seed(0)
    x, y = vectors(30)
    net = ours(mlp(), x, heads=hf.LowRank(4), share=0.2)
    seen = hf.diagnose(net, x, y, lr=0.01)
    assert sum(p.parameters for p in seen.parts) == sum(p.numel() for p in net.parameters())
    cross_entropy(net(x), y).backward()
    base = math.sqrt(sum(p.grad.square().sum().item() for p in net.heads.base.parameters()))
    assert {p.part: p.gradient for p in seen.parts}["base"] == pytest.approx(base, rel=1e-4)


# ── a mainnet that returns its loss ────────────────────────────────────────────────────────────────────────────────


class Labelled(nn.Module):
    """As language models do that are given labels."""

    def __init__(self, alone):
        super().__init__()
        self.a, self.b, self.alone = nn.Linear(96, 64), nn.Linear(64, 10), alone

    def forward(self, x, labels):
        logits = self.b(relu(self.a(x)))
        loss = cross_entropy(logits, labels)
        return loss if self.alone else {"loss": loss, "logits": logits}


@pytest.mark.parametrize("alone", [True, False])
def test_the_loss_that_a_mainnet_returns_is_used(alone):
    torch.manual_seed(0)
    x, y = vectors(40)
    batch = {"x": x, "labels": y}
    net = hf.HyperNet(Labelled(alone), 16, example=batch)
    seen = hf.diagnose(net, batch, lr=0.01)
    returned = net(**batch)
    assert seen.loss == pytest.approx((returned if alone else returned["loss"]).item(), rel=1e-5)
    assert seen.healthy
    assert seen.stable_rate


def test_with_a_code_for_each_sample_a_step_is_tried_on_the_mean_of_their_losses():
    torch.manual_seed(0)
    x, y = vectors(40)
    batch, e = {"x": x, "labels": y}, torch.randn(len(x), 16)
    net = hf.HyperNet(Labelled(False), hf.Embedding(16, given=True, per="net"), example=batch)
    seen = hf.diagnose(net, batch, embedding=e, lr=1e-6)
    assert seen.loss == pytest.approx(net(**batch, embedding=e)["loss"].mean().item(), rel=1e-5)
    assert seen.stable_rate
    assert "a loss without a gradient" not in {f.name for f in seen.findings}


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


def test_a_layer_of_a_foreign_hypernet_may_be_common_to_all_conditions():
    torch.manual_seed(0)
    main, x, c = zero_biases(mlp(depth=1)), torch.randn(6, 96), torch.randn(6, 16)
    heads = [nn.Linear(16, 64 * 96), nn.Linear(16, 640)]
    hf.init.hyperfan_in_uniform_(heads[0].weight, (64, 96))
    hf.init.hyperfan_in_uniform_(heads[1].weight, (10, 64), "tanh")
    for head in heads:
        nn.init.zeros_(head.bias)

    def made(*codes):
        first, second = (head(code) for head, code in zip(heads, codes, strict=True))
        return {"0.weight": first.view(6, 64, 96), "2.weight": second.view(6, 10, 64)}

    def found(*codes):
        return [(f.severity, f.where) for f in hf.diagnose(main, x, generated=lambda: made(*codes)).findings]

    common = c[:1].expand(6, 16)
    assert found(c, c) == []
    assert found(c, common) == [("note", ("2.weight",))]
    assert found(common, common) == [("error", ("0.weight", "2.weight"))]
    fixed = made(common, common)
    with pytest.raises(hf.HyperfanError, match="returned the very tensors of its last call"):
        hf.diagnose(main, x, generated=lambda: fixed)


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
        ({"generated": lambda: {"0.wieght": torch.zeros(64, 96)}}, "did you mean '0.weight'"),
        ({"generated": lambda: {"0.weight": torch.zeros(96, 64)}}, "it looks transposed"),
        (
            {"generated": lambda: {"0.weight": torch.zeros(3, 64, 96)}},
            r"returned 3 of '0.weight', \(3, 64, 96\), for 4 inputs: return one for all, \(64, 96\), or one for each",
        ),
        ({"generated": lambda: {}, "task": 1}, "belong to a HyperNet"),
        ({"generated": lambda: {"0.weight": torch.zeros(64, 96)}, "y": torch.ones(4, 10).long()}, "pass loss="),
        ({"generated": lambda: {"0.weight": torch.zeros(64, 96)}, "y": "cat"}, "pass loss="),
        ({"generated": lambda: {"0.weight": torch.zeros(64, 96)}, "loss": nn.MSELoss()}, "without y="),
    ],
)
def test_what_cannot_be_looked_at(arguments, message):
    with pytest.raises(hf.HyperfanError, match=message):
        hf.diagnose(mlp(), torch.randn(4, 96), **arguments)


def test_of_a_module_around_a_hypernet_it_is_said_where_that_is():
    x, _ = vectors()
    wrapped = nn.ModuleDict({"encoder": nn.Linear(3, 3), "inner": nn.Sequential(ours(mlp(), x))})
    with pytest.raises(hf.HyperfanError, match=r"ModuleDict is no HyperNet, and holds one: diagnose\(net\.inner\.0, x"):
        hf.diagnose(wrapped, x)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, hf.AdamW, hf.SGD])
def test_an_optimiser_that_holds_all_is_tried_at_its_rate(kind):
    x, y = vectors(32)
    net = ours(mlp(depth=1), x)
    opt = kind(net if kind.__module__.startswith("hyperfan") else net.parameters(), lr=1e-6)
    seen = hf.diagnose(net, x, y, optimiser=opt)
    assert seen.healthy
    assert seen == hf.diagnose(net, x, y, optimiser=kind.__name__.lower(), lr=1e-6)
    opt.param_groups[0]["lr"] = 10.0
    assert [f.name for f in hf.diagnose(net, x, y, optimiser=opt).findings] == ["learning rate too large"]
    assert hf.diagnose(net, x, optimiser=opt).healthy  # without a loss there is no step to be tried


def test_what_an_optimiser_does_not_hold_of_a_foreign_hypernet():
    x, y = vectors(32)
    own, mainnet = nn.Linear(32, 96 * 64), mlp(depth=1)
    code = torch.randn(32)
    look_at = partial(hf.diagnose, mainnet, x, y, generated=lambda: {"0.weight": own(code).view(64, 96)})
    found, *_ = look_at(optimiser=torch.optim.SGD(mainnet.parameters(), lr=1e-6)).findings
    assert (found.name, found.severity) == ("parameters that the optimiser does not hold", "error")
    assert found.evidence.startswith(f"{33 * 96 * 64:,} of ")
    both = torch.optim.SGD([*own.parameters(), *mainnet.parameters()], lr=1e-6)
    assert "parameters that the optimiser does not hold" not in [f.name for f in look_at(optimiser=both).findings]


def test_an_encoder_that_is_in_no_optimiser_is_missed():
    """Its parameters are those that the embedding passed was computed from."""
    x, y = vectors(32)
    encoder, net = nn.Linear(5, 16), ours(mlp(depth=1), x, hf.Embedding(16, given=True, per="net"))
    e = encoder(torch.randn(len(x), 5))
    found = hf.diagnose(net, x, y, embedding=e, optimiser=hf.AdamW(net, lr=1e-5)).findings
    (missed,) = (f for f in found if f.name == "parameters that the optimiser does not hold")
    assert (missed.where, missed.severity) == (("encoder 0", "encoder 1"), "warning")
    assert missed.remedy.startswith("hyperfan.AdamW(nn.ModuleList([net, encoder]), …)")
    both = hf.AdamW(nn.ModuleList([net, encoder]), lr=1e-5)
    found = hf.diagnose(net, x, y, embedding=e, optimiser=both).findings
    assert "parameters that the optimiser does not hold" not in [f.name for f in found]


@pytest.mark.parametrize(("learnt", "found"), [(False, True), (True, False)])
def test_codes_of_an_encoder_that_is_trained_need_not_differ_yet(learnt, found):
    """They learn to, and standardised their small deviation would multiply the encoder's steps."""
    x, y = vectors(100)
    e = (1.0 + 0.2 * torch.randn(100, 16)).requires_grad_(learnt)
    net = ours(mlp(depth=1), x, hf.Embedding(16, given=True, per="net"), example_embeddings=e.detach())
    names = [f.name for f in hf.diagnose(net, x, y, embedding=e).findings]
    assert ("conditions that are alike" in names) is found


def test_codes_of_an_encoder_that_are_off_scale_are_given_as_examples():
    x, y = vectors(100)
    e = (10.0 * torch.randn(100, 16)).requires_grad_()
    net = ours(mlp(depth=1), x, hf.Embedding(16, given=True, per="net"))
    (off,) = hf.diagnose(net, x, y, embedding=e).findings
    assert off.remedy.startswith("HyperNet(…, example_embeddings=e)")


def test_a_remedy_is_printed_once():
    torch.manual_seed(5)
    printed = str(look(FAULTS["exploding"].plant()))
    assert printed.count("mend:") > 1
    assert printed.count("mend:   as above") >= 1


def test_our_net_needs_no_function():
    x, _ = vectors()
    net = ours(mlp(), x)
    with pytest.raises(hf.HyperfanError, match="leave out generated="):
        hf.diagnose(net, x, generated=net.generate)


# ── what it says ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_prediction_below_its_target_is_explained_where_plain_nets_scatter():
    """Of one output the mean square is χ² with one degree of freedom, whose middle is 0.28 of its mean, the target."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64)), 16)
    well = hf.diagnose(net, torch.randn(64, 8))
    first, last = well.layers
    scattered = replace(well, layers=(first, replace(last, predicted=Scale(0.28, 0.01, 8.0))))
    assert "the target their mean, which is larger in '2': with few outputs they scatter, 95 %" in str(scattered)
    small = replace(well, layers=(first, replace(last, predicted=Scale(0.28, 0.2, 0.4))))
    assert not well.scatter_note + small.scatter_note
    assert "scatter" not in str(well)


def test_what_codes_scatter_adds_up_from_layer_to_layer_forward_and_backward(monkeypatch):
    """Beside twins that do not scatter themselves."""
    monkeypatch.setattr("hyperfan.probe.evidence.predicted_scale", lambda draws: Scale(1.0, 1.0, 1.0))
    layers = hf.diagnose(hf.HyperNet(mlp(), 16, fidelity="paper"), *vectors()).layers
    ahead = [math.log(r.predicted.high) for r in layers]
    back = [math.log(r.predicted_gradient.high) for r in layers]
    assert ahead[0] > 0
    assert ahead == pytest.approx([ahead[0] * i for i in range(1, len(layers) + 1)])
    assert back == pytest.approx(ahead[::-1])


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
    well = hf.diagnose(ours(mlp(), x), x, y)
    assert well.summary.startswith("Healthy: 5 layers")
    unknown = replace(well, layers=tuple(replace(r, target=None) for r in well.layers))
    assert unknown.summary.startswith("Nothing found, and little looked at: none of the 5 layers has a target")


@pytest.mark.parametrize("name", ["Xavier on the head", "overflow", "AdamW at the plain net's rate"])
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
    assert told["layers"][-1]["measured"]["value"] is None


def test_the_remedy_mends_it():
    """Every fault that net.reset_parameters() is said to mend is gone after it."""
    torch.manual_seed(5)
    for name in ("√3 left out", "d_k forgotten", "a head of zeros"):
        patient = FAULTS[name].plant()
        assert {f.remedy for f in look(patient).findings if f.name == FAULTS[name].name} == {RESTART}
        patient.net.reset_parameters()
        assert look(patient).healthy


def test_a_trunk_that_was_given_is_mended_by_drawing_it():
    """Which net.reset_parameters() does not."""
    torch.manual_seed(5)
    sick = saturated_trunk()
    sick.net.reset_parameters()
    (found,) = [f for f in look(sick).findings if f.name == "dead head: constant in the embedding"]
    assert "init_trunk=True" in found.remedy
    assert look(saturated_trunk(init_trunk=True)).healthy
    (found,) = look(FAULTS["a trunk that gets no gradient"].plant()).findings
    assert "detach()" in found.remedy


@pytest.mark.parametrize(("std", "common", "tells_std"), [(1.0, 300.0, False), (30.0, 300.0, False), (1.0, 0.0, True)])
def test_conditions_with_a_large_part_in_common_are_only_standardised(std, common, tells_std):
    """Whatever std= says of them, the next diagnosis would contradict it."""
    torch.manual_seed(0)
    x, y = vectors(20)
    net = ours(mlp(depth=1), x, hf.Embedding(4, given=True, per="net", std=std), trunk=(16,))
    found = hf.diagnose(net, x, y, embedding=common + (30.0 if common else 4.0) * torch.randn(20, 4)).findings
    remedies = [f.remedy for f in found if f.severity != "note"]
    assert remedies
    assert any("or std=" in r for r in remedies) == tells_std
    assert any("(e - e.mean(0)) / e.std(0)" in r for r in remedies)


def test_the_calls_that_mend_heads_of_ones_own_can_be_made():
    """A bias has the shape of its weight there, and weights are told that biases are generated too."""
    torch.manual_seed(0)
    main = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))
    heads = {name: nn.Linear(8, p.numel()) for name, p in main.named_parameters()}
    code, shapes = torch.randn(8), {name: p.shape for name, p in main.named_parameters()}
    with torch.no_grad():
        for name in shapes:
            heads[name].bias.zero_()
            heads[name].weight.mul_(5.0 if "bias" in name else 1.0)

    def made() -> dict[str, torch.Tensor]:
        return {name: head(code / code.square().mean().sqrt()).view(shapes[name]) for name, head in heads.items()}

    found = hf.diagnose(main, torch.randn(50, 20), generated=made).findings
    pattern = r"hyperfan\.(init\.\w+\(head\.weight, .*?item\(\)\))"
    calls = {call for f in found for call in re.findall(pattern, f.remedy)}
    assert any("bias=True" in call for call in calls)
    assert all(("bias=True" in call) != ("biases_generated=True" in call) for call in calls)
    for name, head in heads.items():
        shape, bias = tuple(shapes[name.replace("bias", "weight")]), "bias=True" if "bias" in name else "biases_gen"
        for call in (call for call in calls if f"{shape}" in call and bias in call):
            eval(f"hf.{call}", {"hf": hf, "head": head, "code": code})


def test_the_call_that_mends_a_head_behind_a_small_code_does():
    torch.manual_seed(0)
    main, x, c = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)), torch.randn(20, 8), torch.randn(20, 4)
    encoder, head = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32)), nn.Linear(32, 512)

    def found() -> list[Finding]:
        return list(hf.diagnose(main, x, generated=lambda: {"0.weight": head(encoder(c)).view(-1, 64, 8)}).findings)

    (by_default,) = found()
    assert "as nn.Linear does by default" in by_default.cause
    hf.init.hyperfan_in_uniform_(head.weight, (64, 8), "relu")
    nn.init.zeros_(head.bias)
    (small,) = found()
    assert small.cause.startswith("the head has the variance for a code of mean square 1")
    code, (call,) = encoder(c), re.findall(r"(hyperfan\.init.*?item\(\)\))", small.remedy)
    assert f"of mean square {code.square().mean():.2g} here" in small.remedy
    eval(call, {"hyperfan": hf, "head": head, "code": code})
    assert not found()


@pytest.mark.parametrize(
    ("output", "y", "classes"),
    [((8, 5), (8,), 5), ((8, 5, 6, 7), (8, 6, 7), 5), ((8, 6, 5), (8, 6), 5), ((8, 5, 6), (8, 6), 5)],
)
def test_classes_are_in_the_second_or_in_the_last_dimension(output, y, classes):
    """A classifier, a segmentation, a language model, and a tagger that has its classes before its places."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, math.prod(output[1:]))

        def forward(self, x):
            return self.layer(x).view(-1, *output[1:])

    torch.manual_seed(0)
    x = torch.randn(8, 16)
    diagnosis = hf.diagnose(ours(Net(), x), x, torch.randint(classes, y))
    assert diagnosis.expected_loss == math.log(classes)
    assert diagnosis.healthy


class Tokens(nn.Module):
    """A frozen readout of many tokens that was trained."""

    def __init__(self):
        super().__init__()
        self.a, self.lm_head = nn.Linear(16, 32), nn.Linear(32, 50)
        nn.init.normal_(self.lm_head.weight)
        self.lm_head.requires_grad_(False)

    def forward(self, x):
        return {"logits": self.lm_head(relu(self.a(x)))}


class TokensForCausalLM(Tokens):
    """One that predicts the next token."""


@pytest.mark.parametrize(
    ("kind", "cause", "remedy"),
    [(Tokens, "outputs are too large", "which is frozen"), (TokensForCausalLM, "shifts labels", "'labels': labels")],
)
def test_a_frozen_readout_is_not_to_be_scaled(kind, cause, remedy):
    torch.manual_seed(0)
    x, y = torch.randn(8, 6, 16), torch.randint(50, (8, 6))
    net = hf.HyperNet(kind(), 16, generate=["a.weight"], example=x)
    (found,) = [f for f in hf.diagnose(net, x, y).findings if f.name == "loss far from ln(classes)"]
    assert cause in found.cause
    assert remedy in found.remedy
    assert "scale" not in found.remedy


def test_several_outputs_need_a_loss_or_none():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(96, 10), nn.Linear(96, 5)

        def forward(self, x):
            return {"a": self.a(x), "b": self.b(x)}

    torch.manual_seed(0)
    x, y = vectors(40)
    net = ours(Two(), x)
    assert hf.diagnose(net, x).healthy  # a random direction in both
    with pytest.raises(hf.HyperfanError, match="puts out 2 tensors: pass loss="):
        hf.diagnose(net, x, y)
    assert hf.diagnose(net, x, y, loss=lambda out, y: cross_entropy(out["a"], y) + out["b"].square().mean()).healthy
    with pytest.raises(hf.HyperfanError, match="returned a tensor of shape"):
        hf.diagnose(net, x, y, loss=lambda out, y: cross_entropy(out["a"], y, reduction="none"))


@pytest.mark.parametrize(
    ("spoil", "cause", "remedy"),
    [
        (lambda net, x: (net, torch.where(x > 2, math.nan, x)), "the inputs hold values", "nan_to_num"),
        (lambda net, x: (with_nan(net), x), "the generated tensor '0.weight' holds values", "reset_parameters"),
    ],
)
def test_where_what_is_not_finite_came_from(spoil, cause, remedy):
    torch.manual_seed(0)
    x, y = vectors()
    net, x = spoil(ours(mlp(), x), x)
    found = next(f for f in hf.diagnose(net, x, y).findings if f.name == "values that are not finite")
    assert cause in found.cause
    assert remedy in found.remedy


@torch.no_grad()
def with_nan(net):
    net.heads.head("64x96").bias[3] = math.nan
    return net


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_noise_is_looked_at_as_in_training(noise):
    for seed in range(5):
        torch.manual_seed(seed)
        x, y = vectors()
        diagnosis = hf.diagnose(ours(mlp(), x, hf.Embedding(16, noise=noise)), x, y)
        assert "wrong scale of a head" not in {f.name for f in diagnosis.findings}


def test_the_share_of_noise_is_that_of_many_draws_though_few_are_looked_at():
    """U(−3, 3) has three times the variance of an embedding, whose 512 coordinates scatter by some per cent."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(96, 64)), hf.Embedding(512, noise=3.0))
    (found,) = (f for f in hf.diagnose(net, torch.randn(20, 96)).findings if f.name == "noise larger than signal")
    assert float(re.search(r"the noise is ([\d.]+) times the signal", found.evidence)[1]) == pytest.approx(3, rel=0.2)
