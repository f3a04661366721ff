"""A condition for the net joined with an identity for each tensor, so that tensors of one shape share a head."""

import statistics
from typing import ClassVar

import pytest
import torch
from generator_suite import GeneratorSuite
from test_heads import case, given, trunk
from torch import nn

import hyperfan as hf
from checks import assert_close, assert_mean, assert_variance

GIVEN = hf.Embedding(4, given=True, per="net", identity=2)
TASKS = hf.Embedding(3, tasks=3, per="net", trainable=True, identity=hf.Embedding(3, std=0.5))


class TestIdentities(GeneratorSuite):
    GRAPHS = ("tasks",)
    CASES: ClassVar = {
        "given": case(GIVEN, given(4), trunk=(16, 16)),
        "given-per-sample": case(GIVEN, given(4, 4), trunk=(8,)),
        "given-without-trunk": case(GIVEN, given(4, 4), generate="weights+biases"),
        "tasks": case(TASKS, lambda: {"task": 2}),
        "tasks-per-sample": case(TASKS, lambda: {"task": torch.tensor([0, 2, 1, 2])}, trunk=(16,)),
        "noise": case(hf.Embedding(4, per="net", noise=0.2, identity=2), trunk=(16,), heads="separate"),
        "parts": case(
            hf.Embedding(3, tasks=3, per="net", identity={"layer": 2, "module": hf.Embedding(1, std=0.5)}),
            lambda: {"task": 2}, trunk=(16,), heads="module", generate=["6.*", "8.*"],
        ),
        "normalised-module": case(
            hf.Embedding(4, given=True, per="net", normalise=True, identity=2), given(4), module=trunk
        ),
    }  # fmt: skip


def main() -> nn.Sequential:
    """Three weights of one shape; the last reads tanh, the second ReLU: each has a target of its own."""
    return nn.Sequential(nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 60))


def build(embedding: hf.Embedding, **options) -> hf.HyperNet:
    torch.manual_seed(0)
    return hf.HyperNet(main(), embedding, **{"generate": "weights", **options})


def test_heads_are_shared_by_default_and_codes_are_one_for_each_condition_and_tensor():
    net = build(hf.Embedding(8, given=True, per="net", identity=4), trunk=(16,))
    assert [part.name for part in net.heads.parts()] == ["60x60"]
    assert net.codes(embedding=torch.randn(5, 8)).shape == (5, 3, 16)
    assert net.codes(embedding=torch.randn(8)).shape == (3, 16)
    first, second, _ = net.generate(embedding=torch.randn(8)).values()
    assert not torch.equal(first, second)


def test_an_identity_is_trained_unless_said_otherwise_and_drawn_as_the_condition():
    net = build(hf.Embedding(8, given=True, per="net", std=0.1, identity=3000))
    assert isinstance(net.embeddings.identity, nn.Parameter)
    assert_variance(net.embeddings.identity, 0.01)
    fixed = build(hf.Embedding(8, tasks=2, per="net", trainable=True, identity=hf.Embedding(3000, std=0.5)))
    assert isinstance(fixed.embeddings.weight, nn.Parameter)
    assert not isinstance(fixed.embeddings.identity, nn.Parameter)
    assert_variance(fixed.embeddings.identity, 0.25)


OPTIONS = {
    "no trunk": {},
    "trunk": {"trunk": (64,)},
    "module": {"trunk": nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 32))},
    "biases": {"trunk": (64,), "generate": "weights+biases"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("identity", [4, hf.Embedding(4, std=2.0)], ids=["int", "wide"])
def test_every_tensor_is_on_target_on_average_over_conditions(options, identity):
    """Conditions come with one ‖h‖² or another, about the plan's; given these, values of a tensor are independent."""
    net = build(hf.Embedding(8, given=True, per="net", std=0.7, identity=identity), **options)
    e = net.embeddings.draw_(torch.empty(400, 8))
    made, squares = net.generate(embedding=e), net.codes(embedding=e).square().sum(-1)
    rows = {row.tensor: row for row in net.plan.rows if row.made_by == "head"}
    assert len({rows[f"{i}.weight"].target for i in (0, 2, 4)}) == 3
    for norms, (name, row) in zip(squares.T, rows.items(), strict=True):
        assert_mean(norms, row.moment)
        assert_mean(made[name].square().mean(0) * row.moment / norms.mean(), row.target)


@pytest.mark.parametrize("identity", [4, hf.Embedding(4, std=2.0)], ids=["int", "wide"])
def test_normalised_codes_are_on_target_under_every_condition(identity):
    net = build(hf.Embedding(8, given=True, per="net", normalise=True, identity=identity), trunk=(64,))
    made = net.generate(embedding=torch.randn(5, 8))
    for row in (row for row in net.plan.rows if row.made_by == "head"):
        for one in made[row.tensor]:
            assert_variance(one, row.target)


def test_stored_conditions_are_met_exactly_on_average_over_tasks():
    """‖h‖² in the plan is the mean over tasks of each tensor's own codes."""
    for options in OPTIONS.values():
        embedding = hf.Embedding(8, tasks=6, per="net", identity=4)
        net = build(embedding, **options)
        codes = torch.stack([net.codes(task=i) for i in range(6)]).detach()
        moments = [row.moment for row in net.plan.rows if row.made_by == "head"]
        torch.testing.assert_close(torch.tensor(moments), codes.square().sum(-1).mean(0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("trunk", [None, (50,)], ids=str)
def test_the_expected_moment_is_that_of_many_draws(trunk):
    with torch.device("meta"):
        empty = main()
    embedding = hf.Embedding(8, given=True, per="net", std=0.7, noise=0.6, identity=hf.Embedding(4, std=2.0))
    plan = hf.HyperNet(empty, embedding, generate="weights", trunk=trunk).plan
    moments = {r.moment for r in plan.rows if r.made_by == "head"}
    expected = 8 * (0.49 + 0.12) + 4 * 4.0
    assert list(moments) == [pytest.approx(expected if trunk is None else 50 * expected / 12 / 2)]
    net, seen = build(embedding, trunk=trunk), []
    for _ in range(20):
        net.reset_parameters()
        seen.append(statistics.fmean(r.moment for r in net.plan.rows if r.made_by == "head"))
    assert_mean(torch.tensor(seen), expected if trunk is None else 50 * expected / 12 / 2)


def test_on_paper_var_e_is_the_mean_over_coordinates():
    net = build(hf.Embedding(8, given=True, per="net", identity=hf.Embedding(4, std=2.0)), fidelity="paper")
    assert [r.moment for r in net.plan.rows if r.made_by == "head"] == [pytest.approx(8 + 4 * 4.0)] * 3


def test_groups_and_samples_equal_a_loop():
    net = build(hf.Embedding(8, given=True, per="net", identity=4), trunk=(16,)).double()
    x, codes = torch.randn(3, 5, 60, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
    loop = torch.stack([net(x[i], embedding=codes[i]) for i in range(3)])
    assert_close(net(x, embedding=codes, grouped=True), loop)
    assert_close(net(x[:, 0], embedding=codes), loop[:, 0])


def test_chunks_take_their_identities_from_the_condition():
    nets = [
        build(hf.Embedding(8, given=True, per="net", **own), trunk=(16,), heads=hf.Chunks(size=20, inputs=0, **chunks))
        for own, chunks in (({"identity": 4}, {}), ({}, {"embedding": 4}))
    ]
    e = torch.randn(8)
    for a, b in zip(*(net.generate(embedding=e).values() for net in nets), strict=True):
        assert torch.equal(a, b)


def test_many_identities_are_averaged_over_in_little_memory():
    """A condition for each of 4096 draws and each of 100 tensors would be 409,600 codes at once."""
    layers = [layer for _ in range(100) for layer in (nn.Linear(2, 2), nn.Tanh())]
    rows = []

    class Watched(nn.Linear):
        def forward(self, e):
            rows.append(len(e))
            return super().forward(e)

    hf.HyperNet(nn.Sequential(*layers), hf.Embedding(3, given=True, per="net", identity=3), trunk=Watched(6, 4))
    assert max(rows) <= 2**14
    assert 2**17 < sum(rows) < 2**18 + 4
