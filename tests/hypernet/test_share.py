"""A share of the variance is generated, and the rest is a base that all codes have in common."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import SIGMAS, assert_mean, assert_variance
from hyperfan.errors import HyperfanError, InitError
from hyperfan.optim import Memory

HEADS = {
    "separate": "separate",
    "low rank": hf.LowRank(4),
    "flat chunks": hf.Chunks(size=500, flat=True, inputs=0, embedding=8),
}
LORA = hf.LoRA(4)
CODES = 30


def mainnet():
    return nn.Sequential(nn.Linear(40, 100), nn.Tanh(), nn.Linear(100, 60))


def conditioned(**settings):
    embedding = hf.Embedding(32, given=True, per="net", distribution="normal", normalise=True)
    return hf.HyperNet(mainnet(), embedding, **settings)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_variance_and_correlation(heads, share):
    """Var(W) stays at its target. Two codes of cosine 0 make weights of correlation 1 − ρ."""
    net = conditioned(heads=HEADS[heads], share=share)
    made = net.generate(embedding=torch.linalg.qr(torch.randn(32, 32))[0][:CODES])
    for row in net.plan.rows[:2]:
        w = made[row.tensor].flatten(1)
        assert row.base == pytest.approx((1 - share) * row.target)
        assert w.square().mean().item() == pytest.approx(row.target, rel=0.15)
        if heads != "flat chunks":  # whose codes have the pieces' embeddings in common
            apart = (w - w.mean(0)).square().mean().item()  # ρ·v·(1 − 1/n)
            assert apart == pytest.approx(row.target * share * (1 - 1 / CODES), rel=0.25)


def test_all_of_it_is_as_without():
    torch.manual_seed(0)
    plain = hf.HyperNet(mainnet(), 8)
    torch.manual_seed(0)
    shared = hf.HyperNet(mainnet(), 8, share=1.0)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), shared.parameters(), strict=True))
    assert shared.heads.base is None
    assert "base variance" not in str(shared.plan)
    assert "base variance" in str(hf.HyperNet(mainnet(), 8, share=0.5).plan)


def test_none_of_it_is_a_plain_net_that_codes_can_change():
    net = conditioned(share=0.0)
    a, b = (net.generate(embedding=torch.randn(32))["0.weight"] for _ in range(2))
    assert torch.equal(a, b)
    assert_variance(a, net.plan.rows[0].target)
    net(torch.randn(3, 40), embedding=torch.randn(3, 32)).sum().backward()
    assert net.heads.head("0/weight").weight.grad.any()


def test_separate_heads_hold_it_in_their_bias_and_others_beside():
    assert conditioned(share=0.5).heads.base is None
    net = conditioned(share=0.5, heads=hf.LowRank(2))
    assert {name for name, _ in net.named_parameters() if "base" in name} == {
        "heads.base.0/weight",
        "heads.base.0/bias",
        "heads.base.2/weight",
        "heads.base.2/bias",
    }


@pytest.mark.parametrize("heads", HEADS)
def test_a_code_per_sample_equals_a_loop(heads):
    net = conditioned(heads=HEADS[heads], share=0.3).double()
    x, e = torch.randn(5, 40).double(), torch.randn(5, 32).double()
    each = torch.cat([net(x[i : i + 1], embedding=e[i]) for i in range(5)])
    torch.testing.assert_close(net(x, embedding=e), each, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
@pytest.mark.parametrize("heads", ["shared", "separate"])
def test_optimisers_train_it_like_torch(optimiser, heads):
    net = hf.HyperNet(mainnet(), 6, heads=heads, share=0.4).double()
    other = copy.deepcopy(net)
    opt, oracle = getattr(hf, optimiser)(net, lr=1e-2), getattr(torch.optim, optimiser)(other.parameters(), lr=1e-2)
    for _ in range(5):
        x = torch.randn(4, 40).double()
        for each, its in ((net, opt), (other, oracle)):
            its.zero_grad()
            each(x).square().mean().backward()
            its.step()
    for (name, p), q in zip(net.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12, msg=name)


def test_a_memory_looks_ahead_along_the_base_too():
    torch.manual_seed(0)
    embedding = hf.Embedding(4, per="net", tasks=2, trainable=True)
    net = hf.HyperNet(mainnet(), embedding, heads=hf.LowRank(2), generate="weights+biases", share=0.5).double()
    memory = Memory(net, tasks=[0])
    net(torch.randn(4, 40).double(), task=1).square().mean().backward()
    ahead = memory.drift(lookahead=0.1)
    moved = copy.deepcopy(net)
    with torch.no_grad():
        for p, q in zip(moved.parameters(), net.parameters(), strict=True):
            if q.grad is not None and q is not net.embeddings.weight:
                p -= 0.1 * q.grad
    now, then = moved.generate(task=0), {name: t[0] for name, t in memory.remembered.items()}
    torch.testing.assert_close(ahead, sum((now[n] - then[n]).square().sum() for n in now))


# ── the default ────────────────────────────────────────────────────────────────────────────────────────────────────

GIVEN, TASKS = hf.Embedding(8, given=True, per="net"), hf.Embedding(8, tasks=3, per="net")


@pytest.mark.parametrize(
    ("embedding", "settings", "share"),
    [
        (GIVEN, {}, 0.01),
        (TASKS, {}, 0.5),
        (GIVEN, {"init": "hyperfan-out", "trunk": (16,)}, 0.01),
        (hf.Embedding(8, tasks=3), {"heads": "separate"}, 0.5),
        (hf.Embedding(8), {"heads": "separate"}, 1),  # constant codes
        (8, {}, 1),
        (GIVEN, {"fidelity": "paper"}, 1),
        (GIVEN, {"init": "m2"}, 1),  # which sets heads
        (GIVEN, {"heads": hf.LowRank(2)}, 1),  # whose base would be as large as the mainnet
        (TASKS, {"heads": hf.Chunks(size=500, flat=True, embedding=4)}, 1),
        (GIVEN, {"share": 0.3}, 0.3),
        (GIVEN, {"share": 1}, 1),
    ],
    ids=str,
)
def test_by_default_it_is_below_one_under_a_condition_where_that_costs_nothing(embedding, settings, share):
    net = hf.HyperNet(mainnet(), embedding, **settings)
    assert net.share == share
    alike = hf.HyperNet(mainnet(), embedding, **{**settings, "share": 1.0})
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in alike.parameters())
    row = net.plan.rows[0]
    if row.target is not None:
        assert row.base == pytest.approx((1 - share) * row.target)


def test_the_default_is_saved_as_it_was_and_a_method_that_sets_heads_ends_it(tmp_path):
    net = hf.HyperNet(mainnet(), GIVEN)
    net.save_pretrained(tmp_path / "a")
    assert hf.HyperNet.from_pretrained(tmp_path / "a", mainnet()).share == 0.01
    net.restart_("m2")
    assert net.share == 1
    net.save_pretrained(tmp_path / "b")
    assert hf.HyperNet.from_pretrained(tmp_path / "b", mainnet()).share == 1


def test_a_restart_has_the_share_of_a_new_net():
    net = hf.HyperNet(mainnet(), GIVEN)
    net.restart_("kaiming-fan-in")
    net.restart_("hyperfan-in")
    assert net.share == hf.HyperNet(mainnet(), GIVEN).share == 0.01
    net = hf.HyperNet(mainnet(), GIVEN, init="kaiming-fan-in")
    net.restart_("hyperfan-in")
    assert net.share == 0.01
    net = hf.HyperNet(mainnet(), GIVEN, share=0.3)
    net.restart_("kaiming-fan-in")
    net.restart_("hyperfan-in")
    assert net.share == 0.3


@pytest.mark.parametrize("settings", [{"base_op": "multiply"}, {"heads": hf.LowRank(2)}], ids=str)
def test_a_base_that_a_method_would_leave_at_zero_is_no_restart(settings):
    net = hf.HyperNet(mainnet(), GIVEN, share=0.3, **settings)
    before = {name: p.clone() for name, p in net.named_parameters()}
    with pytest.raises(InitError, match="'kaiming-fan-in' sets the heads"):
        net.restart_("kaiming-fan-in")
    assert net.init.name == "hyperfan-in"
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())


def test_the_default_does_not_hang_on_the_shapes_of_layers():
    for widths in ((6, 5, 4), (6, 5, 5, 5, 4)):
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        net = hf.HyperNet(nn.Sequential(*layers), hf.Embedding(4, tasks=3, trainable=True))
        assert net.share == 1, widths


# ── given bases ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_mainnet_as_base():
    main = mainnet()
    net = hf.HyperNet(main, 8, base="mainnet", share=0.001)
    assert "on the base given" in net.plan.rows[0].equation
    assert (net.generate()["0.weight"] - main[0].weight).std() < 0.2 * main[0].weight.std()
    assert isinstance(net.heads.base.value("0.weight"), nn.Parameter)
    before = main[0].weight.clone()
    net(torch.randn(3, 40)).sum().backward()
    hf.SGD(net, lr=0.1).step()
    assert torch.equal(main[0].weight, before)
    assert not torch.equal(net.heads.base.value("0.weight"), before)


def test_a_base_under_a_condition_has_the_share_that_suits_conditions():
    net = hf.HyperNet(mainnet(), GIVEN, base="mainnet")
    assert net.share == 0.01
    net.restart_("hyperfan-in")
    assert net.share == 0.01
    with pytest.raises(InitError, match=r"base_op= speaks of a base.*share=0.1"):
        hf.HyperNet(mainnet(), 8, base_op="multiply")


def test_a_frozen_base_is_held_once_and_not_saved(tmp_path):
    main = mainnet().requires_grad_(False)
    net = hf.HyperNet(main, 8, base="mainnet", share=0.01)
    assert net.heads.base.value("0.weight").data_ptr() == main[0].weight.data_ptr()
    assert not any("base" in name for name in net.state_dict())
    x = torch.randn(2, 40)
    net.save_pretrained(tmp_path)
    again = hf.HyperNet.from_pretrained(tmp_path, main)
    torch.testing.assert_close(again(x), net(x))
    with pytest.raises(InitError, match=r"the base of '0\.weight' is frozen"):
        net.rescale_({"0.weight": 2.0})


def test_a_frozen_base_of_other_values_is_noticed(tmp_path):
    main, x = mainnet().requires_grad_(False), torch.randn(2, 40)
    net = hf.HyperNet(main, GIVEN, heads=hf.LoRA(2), trunk=(8,))
    net.save_pretrained(tmp_path)
    again = hf.HyperNet.from_pretrained(tmp_path, copy.deepcopy(main))
    e = torch.randn(GIVEN.size)
    torch.testing.assert_close(again(x, embedding=e), net(x, embedding=e))
    with pytest.warns(hf.HyperfanWarning, match=r"value of '0\.weight' and of 3 more is not saved .* other values"):
        hf.HyperNet.from_pretrained(tmp_path, mainnet())


@pytest.mark.parametrize("heads", HEADS)
def test_a_trained_base_is_saved(tmp_path, heads):
    net = conditioned(heads=HEADS[heads], share=0.5)
    net.save_pretrained(tmp_path)
    again, e = hf.HyperNet.from_pretrained(tmp_path, mainnet()), torch.randn(32)
    assert again.share == 0.5
    assert all(
        torch.equal(a, b)
        for a, b in zip(net.generate(embedding=e).values(), again.generate(embedding=e).values(), strict=True)
    )


def test_some_bases_given_and_others_drawn():
    given = {"0.weight": torch.full((100, 40), 3.0)}
    net = hf.HyperNet(mainnet(), 8, base=given, share=0.1)
    assert net.generate()["0.weight"].mean().item() == pytest.approx(3.0, abs=0.1)
    assert_variance(net.heads.base.value("2.weight"), 0.9 * net.plan.rows[1].target)


@pytest.mark.parametrize(
    ("init", "heads"), [("beck2022-bias", "separate"), ("ortiz2023", "separate"), ("m2", "separate"), ("m2", LORA)]
)
def test_the_plan_of_a_rescaled_tensor_has_its_base_too(init, heads):
    """Of a method without targets the plan then says what the tensor has."""
    net = hf.HyperNet(mainnet(), 20, heads=heads, init=init, base="start" if heads is LORA else None)
    assert net.plan.rows[0].target is None
    net.rescale_({"0.weight": 2.0})
    assert_variance(net.generate()["0.weight"], net.plan.rows[0].target)


def test_a_tensor_is_rescaled_with_its_base():
    net = conditioned(heads=hf.LowRank(4), share=0.5)
    e = torch.randn(32)
    before = net.generate(embedding=e)
    row = net.plan.rows[0]
    net.rescale_({"0.weight": 2.0})
    after = net.generate(embedding=e)
    torch.testing.assert_close(after["0.weight"], 2 * before["0.weight"])
    assert (net.plan.rows[0].base, net.plan.rows[0].target) == (4 * row.base, 4 * row.target)
    assert torch.equal(after["2.weight"], before["2.weight"])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"share": 1.5}, InitError, "share=1.5: it is the part of the variance that is generated, from 0 to 1"),
        ({"share": -0.1}, InitError, "share=-0.1"),
        ({"share": "0.1"}, InitError, "share='0.1'"),
        ({"base": {"0.weight": [0.0]}, "share": 0.1}, HyperfanError, "base= has a list for '0.weight'"),
        ({"share": 0.0, "heads": hf.LowRank(2)}, InitError, "nothing of '0.weight' would be generated"),
        ({"share": 0.5, "init": "m2"}, InitError, "'m2' sets the heads and no variance of what they make"),
        ({"base": "mainnet"}, InitError, "say with share= how much of the variance should be generated"),
        ({"base": "mainet", "share": 0.1}, HyperfanError, "base='mainet': use 'start', 'mainnet', or tensors by name"),
        (
            {"base": {"1.weight": torch.zeros(1)}, "share": 0.1},
            HyperfanError,
            "base= has '1.weight', which is not generated",
        ),
        ({"base": {"0.weight": torch.zeros(1)}, "share": 0.1}, HyperfanError, "of shape (1,); it should be (100, 40)"),
    ],
)
def test_bad_input_is_one_line(settings, error, message):
    with pytest.raises(error) as raised:
        hf.HyperNet(mainnet(), 8, **settings)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("widths", [(40,), (24, 64)], ids=str)
def test_under_given_conditions_codes_are_small_and_weights_have_their_variance(widths):
    """So that a step moves the base more; on paper, with tasks, or without a base codes stay.

    Errors: one draw of the trunk, whose layers each have ‖w‖² of fan_in·width values, of relative variance 2 at most.
    """
    error = math.sqrt(sum(2 / (fan_in * width) for fan_in, width in itertools.pairwise((12, *widths))))
    main, given = nn.Sequential(nn.Linear(60, 50), nn.ReLU(), nn.Linear(50, 40)), {"given": True, "per": "net"}
    net = hf.HyperNet(main, hf.Embedding(12, **given), trunk=widths)
    codes = net.codes(embedding=net.embeddings.draw_(torch.empty(2000, 12)))[:, 0]
    row = next(row for row in net.plan.rows if row.made_by == "head")
    assert row.moment == pytest.approx(1, rel=SIGMAS * error)
    assert_mean(codes.square().sum(-1), row.moment)
    assert "for codes of ‖h‖² = 1" in str(net.plan)
    plans = net.plan, hf.HyperNet(main, hf.Embedding(12, **given), trunk=widths, share=1.0).plan
    small, large = ([row.variance for row in plan.rows if row.made_by == "trunk" and row.variance] for plan in plans)
    factors = [a / b for a, b in zip(small, large, strict=True)]
    assert factors == pytest.approx([math.prod(factors) ** (1 / len(widths))] * len(widths))  # each layer has its part
    examples = 10 * torch.randn(2000, 12)
    net = hf.HyperNet(main, hf.Embedding(12, **given), trunk=widths, example_embeddings=examples)
    moment = next(row for row in net.plan.rows if row.made_by == "head").moment
    assert moment == pytest.approx(1, rel=SIGMAS * error)
    with torch.device("meta"):
        empty = nn.Linear(60, 50)
    assert hf.HyperNet(empty, hf.Embedding(12, **given), trunk=widths).plan.rows[0].moment == pytest.approx(1)
    for embedding, options in (
        (hf.Embedding(12, **given), {"share": 1.0}),
        (hf.Embedding(12, **given), {"fidelity": "paper", "share": 0.5}),
        (hf.Embedding(12, tasks=3, per="net"), {}),
    ):
        other = hf.HyperNet(main, embedding, trunk=widths, **options)
        assert "for codes of" not in str(other.plan)
        moment = next(row for row in other.plan.rows if row.made_by == "head").moment
        assert moment == widths[-1] if "fidelity" in options else moment > 5
