"""Tasks that are added after a net was built, and tasks that are frozen."""

import copy
from typing import ClassVar

import pytest
import torch
from generator_suite import Case, GeneratorSuite
from small_nets import X, mlp
from test_heads import oracle
from torch import nn

import hyperfan as hf
from checks import assert_mean, assert_variance
from hyperfan.optim import Memory

TASKS = torch.tensor([1, 3, 0, 2])


def grown(embedding: hf.Embedding, **options):
    def make(mainnet: nn.Module) -> hf.HyperNet:
        net = hf.HyperNet(mainnet, embedding, **options)
        while net.embeddings.config.tasks < 4:
            net.add_task()
        return net

    return make


class TestGrown(GeneratorSuite):
    GRAPHS = ("per-sample",)
    CASES: ClassVar = {
        "per-sample": Case(grown(hf.Embedding(6, tasks=2, trainable=True)), oracle, lambda: {"task": TASKS}),
        "identities": Case(
            grown(hf.Embedding(4, tasks=2, per="net", trainable=True, identity=3), trunk=(16,)),
            oracle,
            lambda: {"task": TASKS},
        ),
    }


def build(tasks: int = 2, **options) -> hf.HyperNet:
    torch.manual_seed(0)
    return hf.HyperNet(mlp(), hf.Embedding(4, tasks=tasks, trainable=True, **options), generate="weights+biases")


def train(net, optimiser, task, steps=3):
    for _ in range(steps):
        optimiser.zero_grad()
        net(torch.randn(5, 6), task=task).square().sum().backward()
        optimiser.step()


OPTIMISERS = {
    "torch.SGD": lambda net: torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=0.1),
    "torch.AdamW": lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1),
    "SGD": lambda net: hf.SGD(net, lr=1e-3, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda net: hf.AdamW(net, lr=1e-3, weight_decay=0.1),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("task", [int, lambda i: torch.full((5,), i)], ids=["number", "tensor"])
def test_momentum_and_decay_leave_earlier_tasks_alone(optimiser, task):
    net = build(tasks=1)
    opt = optimiser(net)
    train(net, opt, task(0))
    learnt = []
    for i in (1, 2):
        own = net.add_task()
        before = own.detach().clone()
        opt.add_param_group({"params": own})
        learnt.append(net.embeddings.conditions.detach().clone()[:i])
        train(net, opt, task(i))
        assert torch.equal(net.embeddings.conditions[:i], learnt[-1])
        assert not torch.equal(own, before)


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_a_frozen_task_keeps_its_embedding_whatever_the_optimiser_holds(optimiser):
    net = build()
    added = net.add_task()
    opt = optimiser(net)
    for i in (0, 1, 2):
        train(net, opt, i)
    net.freeze_task(0)
    net.freeze_task(2)
    before = net.embeddings.conditions.detach().clone()
    train(net, opt, 1)
    train(net, opt, torch.tensor([0, 1, 2, 2, 1]))
    after = net.embeddings.conditions
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[2], before[2])
    assert not torch.equal(after[1], before[1])
    assert not added.requires_grad
    assert net.embeddings.frozen == [2, 0]


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_an_optimiser_that_learns_of_a_task_gives_torchs_results(kind):
    nets = [build().double() for _ in range(2)]
    options = {"lr": 1e-2, "weight_decay": 0.1}
    opts = [getattr(hf, kind)(nets[0], **options), getattr(torch.optim, kind)(nets[1].parameters(), **options)]
    for step, task in enumerate((0, 2, 1, 3, 2, 0)):
        for net, opt in zip(nets, opts, strict=True):
            if step in (1, 3):
                new = net.add_task(generator=torch.Generator().manual_seed(step))
                opt.add_param_group({"params": new, "lr": 1e-1})
            opt.zero_grad()
            x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            net(x, task=task).square().sum().backward()
            opt.step()
    for (name, a), (_, b) in zip(*(net.state_dict().items() for net in nets), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=name)


def test_new_tasks_are_drawn_as_the_others_were():
    net = hf.HyperNet(mlp(), hf.Embedding(5000, tasks=1, std=0.5, distribution="normal"))
    state = torch.get_rng_state()
    own = net.add_task(generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(own, net.add_task(generator=torch.Generator().manual_seed(1)))
    assert_variance(own, 0.25)
    assert own.abs().max() > 0.5 * 3**0.5
    assert not own.requires_grad  # as the others
    assert "5000, 3 tasks (2 added)" in repr(net.embeddings)


def test_new_codes_are_never_zero():
    net = hf.HyperNet(mlp(), hf.Embedding(4, tasks=1), trunk=(2,))  # every fourth code is
    for _ in range(10):
        net.add_task()
        assert net.codes(task=net.embeddings.config.tasks - 1).any(-1).all()
    net.trunk.requires_grad_(False)[0].weight.zero_()
    with pytest.raises(hf.HyperfanError, match="exactly zero"):
        net.add_task()
    assert net.embeddings.config.tasks == 11
    assert len(net.embeddings.task_parameters) == 10


def test_a_reset_draws_added_tasks_too():
    net = hf.HyperNet(mlp(), hf.Embedding(4, tasks=1), trunk=(2,))
    net.add_task()
    before = net.embeddings.conditions.clone()
    net.reset_parameters()
    assert not (net.embeddings.conditions == before).any()
    codes = torch.stack([net.codes(task=i) for i in range(2)])
    moments = torch.tensor([row.moment for row in net.plan.rows[:3]])
    torch.testing.assert_close(moments, codes.square().sum(-1).mean(0))


def test_a_reset_draws_all_tasks_but_those_that_are_frozen():
    net = hf.HyperNet(mlp(), hf.Embedding(8, tasks=2, trainable=True))
    added = net.add_task()
    net.freeze_task(0)
    before = [net.codes(task=task).detach().clone() for task in range(3)]
    net.reset_parameters()
    assert torch.equal(net.codes(task=0), before[0])
    assert not any(torch.equal(net.codes(task=task), before[task]) for task in (1, 2))
    assert added.requires_grad


def test_checkpoints_keep_what_was_added_and_frozen(tmp_path):
    net = build(tasks=3)
    net.add_task()
    net.add_task()
    net.freeze_task(1)
    net.freeze_task(4)
    net.save_pretrained(tmp_path / "net")
    loaded = hf.HyperNet.from_pretrained(tmp_path / "net", mlp())
    for twin in (loaded, copy.deepcopy(net)):
        assert twin.embeddings.frozen == [4, 1]
        assert [p.requires_grad for p in twin.parameters()] == [p.requires_grad for p in net.parameters()]
        assert all(torch.equal(twin(X, task=i), net(X, task=i)) for i in range(5))
        twin.add_task()
        assert twin(X, task=5).shape == (2, 2)


def test_a_state_with_other_tasks_says_what_is_missing():
    net = build()
    net.add_task()
    with pytest.raises(RuntimeError, match=r"tasks \[2\] have embeddings of their own in the state, tasks \[\] in"):
        build().load_state_dict(net.state_dict())
    with pytest.raises(RuntimeError, match=r"tasks \[\] have embeddings of their own in the state, tasks \[2\] in the"):
        net.load_state_dict(build().state_dict())


def test_memory_holds_added_tasks_and_never_moves_their_embeddings():
    net = build(tasks=1)
    net.add_task()
    memory = Memory(net, tasks=[0, 1])
    past = [net.generate(task=i) for i in (0, 1)]
    new = net.add_task()
    opt = hf.SGD(net, lr=1e-2)
    train(net, opt, 2)
    expected = sum((net.generate(task=i)[n] - t).square().sum() for i in (0, 1) for n, t in past[i].items()) / 2
    opt.zero_grad()
    found = memory.drift()
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=0)
    found.backward()
    assert all(p.grad is None for p in (net.embeddings.weight, *net.embeddings.task_parameters.values()))
    assert new is net.embeddings.task_parameters[2]


def test_the_drift_of_a_sample_is_expected_to_be_that_of_all():
    net = build(tasks=6)
    memory = Memory(net, tasks=range(5))
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    train(net, opt, 5)
    full, each = memory.drift().detach(), [Memory(net, tasks=[i]) for i in range(5)]
    for one in each:
        one.remembered = {name: t[one.tasks] for name, t in memory.remembered.items()}
    alone = torch.stack([one.drift().detach() for one in each])
    g = torch.Generator().manual_seed(0)
    found = torch.stack([memory.drift(sample=2, generator=g).detach() for _ in range(200)])
    assert_mean(found, full.item())
    pairs = (alone[:, None] + alone).div(2)[torch.triu(torch.ones(5, 5), 1).bool()]
    assert (found[:, None] - pairs).abs().min(1).values.max() < 1e-4 * full
    torch.testing.assert_close(memory.drift(sample=9, lookahead=opt), memory.drift(lookahead=opt))
    state = torch.get_rng_state()
    memory.drift(sample=1, generator=g).backward()
    assert torch.equal(torch.get_rng_state(), state)


BAD = {
    "add": (lambda: hf.HyperNet(mlp(), 4).add_task(), r"has no tasks: build it with Embedding\(…, tasks=1\)"),
    "freeze": (lambda: hf.HyperNet(mlp(), 4).freeze_task(0), "has no tasks"),
    "number": (lambda: build().freeze_task(2), "task=2, but the net has tasks 0 to 1"),
    "tensor": (lambda: build().freeze_task(torch.tensor([0, 1])), "takes one task, an integer from 0 to 1"),
    "sample": (lambda: Memory(build(), tasks=[0]).drift(sample=0), r"drift\(sample=0\)"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_refusals(call, message):
    with pytest.raises(hf.HyperfanError, match=message):
        call()


@pytest.mark.parametrize("optimiser", [hf.SGD, hf.AdamW])
def test_a_task_that_is_not_in_the_optimiser_is_named_once(optimiser):
    torch.manual_seed(0)
    net = hf.HyperNet(nn.Linear(6, 5), hf.Embedding(4, tasks=1, trainable=True, per="net"), trunk=(8,))
    opt = optimiser(net, lr=1e-3)

    def step() -> None:
        opt.zero_grad()
        net(torch.randn(3, 6), task=1).square().sum().backward()
        opt.step()

    new = net.add_task()
    before = new.detach().clone()
    with pytest.warns(hf.HyperfanWarning, match=r"task 1 has a gradient.*add_param_group.*freeze_task\(1\)"):
        step()
    step()  # without another warning, which would be an error
    assert torch.equal(new, before)
    opt.add_param_group({"params": new})
    step()
    assert not torch.equal(new, before)
    net.add_task()
    net.freeze_task(2)
    opt.zero_grad()
    net(torch.randn(3, 6), task=2).square().sum().backward()
    opt.step()
    others = optimiser(net, params=net.heads.parameters(), lr=1e-3)  # which trains no embeddings
    step()
    others.step()
