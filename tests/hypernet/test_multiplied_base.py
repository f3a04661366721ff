"""A base that what is generated multiplies: W = W⁰ ⊙ (1 + M)."""

import copy
from typing import ClassVar

import pytest
import test_low_rank
import torch
from generator_suite import Case, GeneratorSuite
from torch import Tensor, nn

import hyperfan as hf
from checks import assert_close, assert_variance

CODES = 30
HEADS = {
    "separate": "separate",
    "low rank": hf.LowRank(4),
    "flat chunks": hf.Chunks(size=500, flat=True, inputs=0, embedding=8),
}


def oracle(net: hf.HyperNet, task=None, embedding=None) -> dict[str, Tensor]:
    """What heads make, on its base where there is one; a norm's parameters have none."""
    if isinstance(net.heads.config, hf.LowRank):
        made = test_low_rank.oracle(net, task, embedding)
    else:
        made, scaled = {}, net.codes(task=task, embedding=embedding) * net.heads.scale
        for i, t in enumerate(net.generated):
            head = net.heads.head(net.heads.names[i])
            flat = torch.einsum("...k,kp->...p", scaled[..., i, :], head.weight) + head.bias
            made[t.name] = flat.reshape(*flat.shape[:-1], *t.shape)
    based = net.heads.base
    return {name: based.value(name) * (1 + made[name]) if name in based else made[name] for name in made}


def case(embedding, call=dict, **options) -> Case:
    return Case(lambda mainnet: hf.HyperNet(mainnet, embedding, base_op="multiply", **options), oracle, call)


def given(*shape):
    return lambda: {"embedding": torch.randn(*shape, generator=torch.Generator().manual_seed(2))}


class TestMultipliedBase(GeneratorSuite):
    GRAPHS = ("given per sample",)
    CASES: ClassVar = {
        "separate": case(6, heads="separate", share=0.4),
        "shared": case(6, share=0.1, generate="*"),
        "low rank": case(6, heads=hf.LowRank(2), share=0.3),
        "the mainnet's": case(6, share=0.2, base="mainnet"),
        "given per sample": case(hf.Embedding(6, given=True, per="net"), given(4, 6), trunk=(8,), share=0.2),
    }


def mainnet():
    return nn.Sequential(nn.Linear(40, 100), nn.Tanh(), nn.Linear(100, 60))


def conditioned(**settings):
    embedding = hf.Embedding(32, given=True, per="net", distribution="normal", normalise=True)
    return hf.HyperNet(mainnet(), embedding, base_op="multiply", **settings)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_variance_and_correlation(heads, share):
    """Var(W⁰) = (1 − ρ)·v and Var(M) = ρ/(1 − ρ) make Var(W) = v, and codes of cosine 0 a correlation of 1 − ρ."""
    net = conditioned(heads=HEADS[heads], share=share)
    made = net.generate(embedding=torch.linalg.qr(torch.randn(32, 32))[0][:CODES])
    for row in net.plan.rows[:2]:
        base, w = net.heads.base.value(row.tensor), made[row.tensor]
        assert row.base == pytest.approx((1 - share) * row.target)
        assert_variance(base, row.base)
        factor = (w / base - 1).flatten(1)
        assert factor.square().mean().item() == pytest.approx(share / (1 - share), rel=0.25)
        assert w.square().mean().item() == pytest.approx(row.target, rel=0.2)
        if heads != "flat chunks":  # whose codes have the pieces' embeddings in common
            apart = (w - w.mean(0)).square().mean().item()  # ρ·v·(1 − 1/n)
            assert apart == pytest.approx(row.target * share * (1 - 1 / CODES), rel=0.3)


def test_the_exact_start_and_its_plan():
    """With one code for each tensor Var(M) is met by the head's variance, whatever v is."""
    net = hf.HyperNet(mainnet(), hf.Embedding(50), heads="separate", share=0.2, base_op="multiply")
    for i, row in enumerate(net.plan.rows[:2]):
        assert_variance(net.heads.head(net.heads.names[i]).weight, row.variance)
        assert row.variance * row.moment == pytest.approx(0.2 / 0.8)
        assert row.equation == "v = gain/fan_in; Var(H) = v/‖c·h‖² for v = 0.2/0.8, times the base"


def test_none_of_it_is_a_plain_net_that_codes_can_change():
    net = conditioned(share=0.0)
    a, b = (net.generate(embedding=torch.randn(32))["0.weight"] for _ in range(2))
    assert torch.equal(a, b)
    assert_variance(a, net.plan.rows[0].target)
    net(torch.randn(3, 40), embedding=torch.randn(3, 32)).sum().backward()
    assert net.heads.head("0/weight").weight.grad.any()


@pytest.mark.parametrize("heads", HEADS)
def test_a_code_per_sample_or_group_equals_a_loop(heads):
    net = conditioned(heads=HEADS[heads], share=0.3).double()
    x, e = torch.randn(5, 2, 40).double(), torch.randn(5, 32).double()
    each = torch.stack([net(x[i], embedding=e[i]) for i in range(5)])
    assert_close(net(x, embedding=e, grouped=True), each)
    assert_close(net(x[:, 0], embedding=e), each[:, 0])


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
@pytest.mark.parametrize("heads", ["shared", "separate", hf.LowRank(2)], ids=str)
@pytest.mark.parametrize("per_sample", [False, True])
def test_optimisers_train_it_like_torch(optimiser, heads, per_sample):
    embedding = hf.Embedding(16, given=True) if per_sample else 16
    net = hf.HyperNet(mainnet(), embedding, heads=heads, share=0.4, base_op="multiply").double()
    other = copy.deepcopy(net)
    opt, dense = getattr(hf, optimiser)(net, lr=1e-2), getattr(torch.optim, optimiser)(other.parameters(), lr=1e-2)
    opt.use(kind := "factored" if per_sample else "collapsed")  # even though heads so small gain nothing
    assert {row.kind for row in opt.plan.rows} == {kind}
    for _ in range(5):
        x, e = torch.randn(4, 40).double(), torch.randn(4, 2, 16).double()
        for each, its in ((net, opt), (other, dense)):
            its.zero_grad()
            each(x, **({"embedding": e} if per_sample else {})).square().mean().backward()
            its.step()
    for (name, p), q in zip(net.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12, msg=name)


def test_a_frozen_base_is_held_once_and_not_saved(tmp_path):
    main = mainnet().requires_grad_(False)
    net = hf.HyperNet(main, 8, base="mainnet", share=0.01, base_op="multiply")
    assert net.heads.base.value("0.weight").data_ptr() == main[0].weight.data_ptr()
    assert not any("base" in name for name in net.state_dict())
    net.save_pretrained(tmp_path)
    again, x = hf.HyperNet.from_pretrained(tmp_path, main), torch.randn(2, 40)
    assert again.heads.base.multiply
    assert torch.equal(again(x), net(x))


BAD = {
    "all of it": ({"share": 1.0}, r"share=1 with base_op='multiply': .*: give a share below 1, such as 0\.1"),
    "no share": ({}, r"say with share= how much of the variance should be generated"),
    "operation": ({"base_op": "times", "share": 0.1}, "base_op='times': use 'add' or 'multiply'"),
    "zero": (
        {"share": 0.1, "base": {"0.weight": torch.zeros(100, 40)}},
        r"the base of '0\.weight' is zero and frozen.*use base_op='add'",
    ),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line(settings, message):
    with pytest.raises(hf.HyperfanError, match=message) as error:
        hf.HyperNet(mainnet(), 8, **{"base_op": "multiply", **settings})
    assert "\n" not in str(error.value)
