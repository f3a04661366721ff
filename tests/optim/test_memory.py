"""The output regulariser, against its formula written out."""

import copy
import itertools

import pytest
import torch
from safetensors.torch import load, save
from torch import nn
from torch.nn.functional import mse_loss

import hyperfan as hf
from hyperfan.errors import CallError, CheckpointError
from hyperfan.optim import Memory
from products import covered

BETA, RATE = 0.3, 0.1


def make(seed=0, **embedding):
    torch.manual_seed(seed)
    mainnet = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    config = hf.Embedding(3, trainable=True, per="net", tasks=3, **embedding)
    return hf.HyperNet(mainnet, config, generate="weights+biases", trunk=(4,))


def by_hand(net, tasks, step):
    """Each task's tensors from an MLP and heads that are written out, at θ + step, with embeddings as constants."""
    p = {name: q + step.get(name, 0.0) for name, q in net.named_parameters()}
    made = []
    for task in tasks:
        e = net.embeddings.weight[task].detach()
        h = torch.relu(e @ p["trunk.0.weight"].T + p["trunk.0.bias"])
        made.append(
            {
                t.name: (h @ p[f"heads.{head}.weight"] + p[f"heads.{head}.bias"]).view(t.shape)
                for t, head in zip(net.generated, net.heads.names, strict=True)
            }
        )
    return made


def train(net, optimiser, task, steps=3):
    for _ in range(steps):
        x = torch.randn(7, 2, dtype=torch.float64)
        optimiser.zero_grad()
        mse_loss(net(x, task=task), x.sum(1, keepdim=True)).backward()
        optimiser.step()


@pytest.mark.parametrize("lookahead", ["none", "rate", "step"])
def test_drift_is_the_formula_forward_and_backward(lookahead):
    net = make()
    past = by_hand(net, [0, 1], {})
    past = [{name: tensor.detach() for name, tensor in one.items()} for one in past]
    memory = Memory(net, tasks=[0, 1])
    train(net, torch.optim.SGD(net.parameters(), lr=RATE), task=2)
    given = {"none": 0.0, "rate": RATE, "step": {n: torch.ones_like(p) for n, p in net.named_parameters()}}[lookahead]
    step = {n: -RATE * p.grad for n, p in net.named_parameters() if p.grad is not None}
    step = {"none": {}, "rate": step, "step": given}[lookahead]
    now = by_hand(net, [0, 1], step)
    expected = sum((now[j][name] - past[j][name]).square().sum() for j in (0, 1) for name in now[j]) / 2
    found = memory.drift(lookahead=given)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert found > 0
    others = [p for name, p in net.named_parameters() if name != "embeddings.weight"]
    for one, other in zip(torch.autograd.grad(found, others), torch.autograd.grad(expected, others), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_embeddings_and_old_gradients_are_left_alone():
    net = make()
    memory = Memory(net, tasks=[0])
    train(net, torch.optim.SGD(net.parameters(), lr=RATE), task=1)
    before = {name: p.grad.clone() for name, p in net.named_parameters()}
    found = torch.autograd.grad(memory.drift(lookahead=RATE), list(net.parameters()), allow_unused=True)
    names = [name for name, _ in net.named_parameters()]
    assert [n for n, g in zip(names, found, strict=True) if g is None] == ["embeddings.weight"]
    for name, p in net.named_parameters():
        assert torch.equal(p.grad, before[name])


def test_nothing_has_drifted_at_first_and_without_tasks_never():
    net = make()
    assert Memory(net, tasks=[0, 2]).drift() == 0
    none = Memory(net, tasks=[])
    train(net, torch.optim.SGD(net.parameters(), lr=RATE), task=1)
    assert none.drift(lookahead=RATE) == 0


def test_what_is_remembered_has_no_noise_and_does_not_change():
    net = make(noise=0.5).train()
    memory = Memory(net, tasks=[0])
    assert memory.drift() == 0
    before = {name: tensor.clone() for name, tensor in memory.remembered.items()}
    train(net, hf.SGD(net, lr=RATE), task=0)
    for name, tensor in memory.remembered.items():
        assert torch.equal(tensor, before[name])


def held_back(net, optimiser, memory, lookahead, steps):
    """The losses of training on a second task, with the regulariser."""
    losses = []
    for _ in range(steps):
        x = torch.randn(7, 2, dtype=torch.float64)
        optimiser.zero_grad()
        loss = mse_loss(net(x, task=1), x.prod(1, keepdim=True))
        loss.backward()
        (BETA * memory.drift(lookahead=lookahead)).backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_it_trains_alike_with_our_sgd_and_with_torch():
    losses = []
    for optimiser in (lambda net: hf.SGD(net, lr=RATE), lambda net: torch.optim.SGD(net.parameters(), lr=RATE)):
        net = make()
        opt = optimiser(net)
        torch.manual_seed(1)
        train(net, opt, task=0)
        memory = Memory(net, tasks=[0])
        losses += held_back(net, opt, memory, RATE, steps=5)
    assert losses[:5] == pytest.approx(losses[5:], rel=1e-12)


def test_it_holds_earlier_tasks():
    """With a strong pull the first task's tensors stay near, without one they go."""
    moved = []
    for beta in (0.0, 1.0):
        net = make()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        memory = Memory(net, tasks=[0])
        torch.manual_seed(2)
        for _ in range(200):
            x = torch.randn(7, 2, dtype=torch.float64)
            opt.zero_grad()
            mse_loss(net(x, task=1), x.sum(1, keepdim=True)).backward()
            if beta:
                (beta * memory.drift(lookahead=0.05)).backward()
            opt.step()
        moved.append(memory.drift().item())
    assert moved[1] < 0.1 * moved[0]


def test_a_lookahead_that_would_do_nothing_is_refused():
    net = make()
    memory = Memory(net, tasks=[0])
    with pytest.raises(CallError, match="there are none yet: call its backward"):
        memory.drift(lookahead=RATE)
    with pytest.raises(CallError, match=r"names 'trunk\.0\.wait', which is no parameter: did you mean"):
        memory.drift(lookahead={"trunk.0.wait": torch.zeros(4, 3)})
    with pytest.raises(CallError, match="which is positive"):
        memory.drift(lookahead=-RATE)


def test_parameters_that_nothing_holds_are_named():
    mainnet = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1))
    net = hf.HyperNet(mainnet, hf.Embedding(3, tasks=2, trainable=True))
    Memory(net, tasks=[])  # there is nothing to forget yet
    with pytest.warns(hf.HyperfanWarning, match=r"0\.bias, 2\.bias of the mainnet are not generated"):
        Memory(net, tasks=[0])
    net.mainnet.requires_grad_(False)
    Memory(net, tasks=[0])


def test_chunks_are_remembered_too():
    mainnet = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    embedding = hf.Embedding(3, trainable=True, per="net", tasks=2)
    chunks = hf.Chunks(size=6, flat=True, embedding=2)
    net = hf.HyperNet(mainnet, embedding, heads=chunks, generate="weights+biases", trunk=(4,))
    memory, rate = Memory(net, tasks=[0]), 0.01
    x = torch.randn(7, 2, dtype=torch.float64)
    mse_loss(net(x, task=1), x.sum(1, keepdim=True)).backward()
    ahead = memory.drift(lookahead=rate)
    e = net.embeddings.weight.detach().clone()
    torch.optim.SGD(net.parameters(), lr=rate).step()
    with torch.no_grad():
        net.embeddings.weight.copy_(e)
    assert ahead.item() == pytest.approx(memory.drift().item(), rel=1e-9)
    assert ahead > 0


def test_a_net_without_tasks_cannot_remember():
    net = hf.HyperNet(nn.Linear(2, 1), embedding=3)
    with pytest.raises(CallError, match="no tasks to remember: build a HyperNet with Embedding"):
        Memory(net, tasks=[0])
    with pytest.raises(CallError, match="tasks 0 to 2"):
        Memory(make(), tasks=[3])
    with pytest.raises(CallError, match=r"range\(2\) for the first 2"):
        Memory(make(), tasks=2)
    with pytest.raises(CallError, match="build a HyperNet"):
        Memory(nn.Linear(2, 1), tasks=[0])


@pytest.mark.parametrize(
    ("embedding", "heads"),
    [
        (hf.Embedding(3, tasks=2, trainable=True), "shared"),
        (hf.Embedding(3, tasks=2, trainable=True), hf.Chunks(inputs=0)),
        (hf.Embedding(3, tasks=2, trainable=True, per="net"), hf.Chunks(size=7, flat=True, embedding=4)),
        (hf.Embedding(3, tasks=2, trainable=True), hf.LowRank(2)),
    ],
    ids=["shared", "chunks", "flat", "low rank"],
)
def test_no_task_to_remember_costs_nothing_whatever_makes_the_tensors(embedding, heads):
    net = hf.HyperNet(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        embedding,
        heads=heads,
        trunk=(5,),
        generate="weights+biases",
    )
    drift = Memory(net, tasks=range(0)).drift(lookahead=0.1)
    assert drift.item() == 0
    drift.backward()
    assert Memory(net, tasks=range(1)).drift().item() == 0


class TwoDtypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 4).double(), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x.double()).float())


@pytest.mark.parametrize("heads", ["shared", hf.Chunks(), hf.LowRank(2)], ids=str)
def test_a_step_ahead_where_tensors_have_different_dtypes(heads):
    torch.manual_seed(0)
    x = torch.randn(7, 2)
    embedding = hf.Embedding(3, tasks=2, trainable=True)
    net = hf.HyperNet(TwoDtypes(), embedding, heads=heads, generate="weights+biases", example=x)
    memory = Memory(net, tasks=[0])
    net(x, task=1).square().sum().backward()
    ahead = memory.drift(lookahead=RATE)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.grad is not None and not name.startswith("embeddings."):
                p.sub_(RATE * p.grad)
    torch.testing.assert_close(ahead.float(), memory.drift().float())  # some of it in single precision


# ── the look-ahead of an optimiser ─────────────────────────────────────────────────────────────────────────────────

OPTIMISERS = {
    "plain": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9, "dampening": 0.2, "maximize": True}),
    "Nesterov": ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "Adam": ("Adam", {"betas": (0.8, 0.95), "weight_decay": 0.1}),
    "AMSGrad": ("Adam", {"amsgrad": True, "maximize": True}),
    "AdamW": ("AdamW", {"weight_decay": 0.1, "eps": 1e-3}),
}
NETS = {
    "trunk": {"embedding": hf.Embedding(3, trainable=True, per="net", tasks=3), "trunk": (4,)},
    "embeddings": {"embedding": hf.Embedding(3, trainable=True, tasks=3)},
    "constant": {"embedding": hf.Embedding(3, tasks=3), "heads": "separate"},
    "joined": {"embedding": hf.Embedding(3, trainable=True, per="net", tasks=3, identity=2), "trunk": (4,)},
    "chunks": {"embedding": hf.Embedding(3, trainable=True, tasks=3), "heads": hf.Chunks()},
    "identities": {
        "embedding": hf.Embedding(3, trainable=True, per="net", tasks=3),
        "heads": hf.Chunks(size=6, flat=True, embedding=2),
        "trunk": (4,),
    },
    "low rank": {"embedding": hf.Embedding(3, trainable=True, tasks=3), "heads": hf.LowRank(1)},
    "LoRA": {"embedding": hf.Embedding(3, trainable=True, tasks=3), "heads": hf.LoRA(1)},
    "multiplied": {"embedding": hf.Embedding(3, trainable=True, tasks=3), "share": 0.3, "base_op": "multiply"},
}


def net_of(name):
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    return hf.HyperNet(mainnet, generate="weights+biases", **NETS[name])


def optimiser_of(net, ours, name, **more):
    """In two groups with rates and decays of their own."""
    kind, options = OPTIMISERS[name]
    biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
    others = [p for n, p in net.named_parameters() if not n.endswith("bias")]
    groups = [{"params": others}, {"params": biases, "lr": 0.03, "weight_decay": 0.02}]
    options = {"lr": 0.01, **options, **more}
    return getattr(hf, kind)(net, params=groups, **options) if ours else getattr(torch.optim, kind)(groups, **options)


def backward(net, task, loss=lambda found: found.square().sum()):
    x = torch.randn(3, 2, dtype=torch.float64)
    loss(net(x, task=task)).backward()


def seen(net, optimiser):
    """Parameters, gradients and state, as copies."""
    entries = [optimiser.state.get(p, {}) for p in net.parameters()]
    state = [torch.as_tensor(entry[key]).clone() for entry in entries for key in sorted(entry)]
    gradients = [p.grad.to_dense().clone() for p in net.parameters() if p.grad is not None]
    return [p.detach().clone() for p in net.parameters()] + gradients + state


def drift_after_a_real_step(net, optimiser, memory):
    """The drift of a copy that the optimiser's copy has stepped, but for the tasks' embeddings; and its gradients."""
    gradients = [None if p.grad is None else p.grad.to_dense().clone() for p in net.parameters()]
    net, optimiser, memory = copy.deepcopy((net, optimiser, memory))
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        p.grad = gradient
    embeddings = net.embeddings.weight.detach().clone()
    optimiser.step()
    with torch.no_grad():
        net.embeddings.weight.copy_(embeddings)
    return memory.drift(), _moved(memory.drift(), net)


def _moved(drift, net):
    return torch.autograd.grad(drift, [*net.parameters()], allow_unused=True)


def check_lookahead(net, optimiser, memory):
    before = seen(net, optimiser)
    found = memory.drift(lookahead=optimiser)
    gradients = _moved(found, net)
    for one, other in zip(seen(net, optimiser), before, strict=True):
        assert torch.equal(one, other)
    expected, expected_gradients = drift_after_a_real_step(net, optimiser, memory)
    assert found > 0
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=0)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one.to_dense(), other.to_dense(), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("ours", "name", "of"), covered(list(itertools.product([False, True], OPTIMISERS, NETS)), tuple)
)
def test_it_looks_where_the_optimiser_will_step(ours, name, of):
    """At the first step, and with momentum or moments of some steps that had the drift's gradients too."""
    net = net_of(of)
    optimiser = optimiser_of(net, ours, name)
    memory = Memory(net, tasks=[0, 2])
    for step in range(3):
        optimiser.zero_grad()
        backward(net, task=1)
        if step in (0, 2):
            check_lookahead(net, optimiser, memory)
        (BETA * memory.drift(lookahead=optimiser)).backward()
        optimiser.step()


@pytest.mark.parametrize("option", ["foreach", "fused", "differentiable"])
@pytest.mark.parametrize("name", ["Nesterov", "AMSGrad"])
def test_it_leaves_gradients_alone_whatever_runs_the_step(name, option):
    net = net_of("trunk")
    optimiser = optimiser_of(net, False, name, **{option: True})
    memory = Memory(net, tasks=[0])
    backward(net, task=1)
    before = seen(net, optimiser)
    found = memory.drift(lookahead=optimiser)
    assert all(map(torch.equal, seen(net, optimiser), before))
    plain = optimiser_of(net, False, name)
    torch.testing.assert_close(found, memory.drift(lookahead=plain), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_it_trains_alike_by_our_optimisers_and_by_torch(name):
    losses = []
    for ours in (True, False):
        net = net_of("embeddings")
        optimiser = optimiser_of(net, ours, name)
        memory = Memory(net, tasks=[0])
        torch.manual_seed(1)
        losses += held_back(net, optimiser, memory, optimiser, steps=10)
    assert losses[:10] == pytest.approx(losses[10:], rel=1e-9)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_collapsed_net_beside_it_is_left_alone(name):
    """The optimiser of both may hold the head of the other in another form, never those of a net with tasks."""
    kind, options = OPTIMISERS[name]
    ends = []
    for looking in (True, False):
        nets = nn.ModuleList([net_of("trunk"), hf.HyperNet(nn.Linear(2, 3).double(), embedding=4)])
        optimiser = getattr(hf, kind)(nets, lr=0.01, **options)
        memory = Memory(nets[0], tasks=[0])
        torch.manual_seed(1)
        for _ in range(4):
            optimiser.zero_grad()
            backward(nets[0], task=1)
            nets[1](torch.randn(3, 2, dtype=torch.float64)).square().sum().backward()
            if looking:
                memory.drift(lookahead=optimiser)
            optimiser.step()
        *of_tasks, beside = (row.kind for row in optimiser.plan.rows)
        assert set(of_tasks) == {"factored"}
        assert beside == ("factored" if name == "Adam" else "collapsed")
        ends.append([*nets.state_dict().values(), *seen(nets, optimiser)])
    for one, other in zip(*ends, strict=True):
        assert torch.equal(one, other)


def test_an_optimiser_whose_step_is_unknown_is_refused():
    net = make()
    memory = Memory(net, tasks=[0])
    with pytest.raises(CallError, match="there are none yet: call its backward"):
        memory.drift(lookahead=torch.optim.Adam(net.parameters()))
    backward(net, task=1)
    with pytest.raises(CallError, match="not of RMSprop: pass that step, as a mapping from parameter names to tensors"):
        memory.drift(lookahead=torch.optim.RMSprop(net.parameters()))
    with pytest.raises(CallError, match="not of str: pass that step"):
        memory.drift(lookahead="adam")
    with pytest.raises(
        CallError, match="an optimiser of other parameters than this net's: pass the one that trains it"
    ):
        memory.drift(lookahead=torch.optim.SGD(make().parameters(), lr=RATE))


# ── saving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("of", NETS)
def test_a_memory_is_saved_and_restored(of):
    net = net_of(of)
    memory = Memory(net, tasks=[2, 0])
    train(net, torch.optim.SGD(net.parameters(), lr=RATE), task=1)
    resumed = Memory(net, tasks=[])
    state = load(save(memory.state_dict()))
    resumed.load_state_dict(state)
    assert resumed.tasks == [2, 0]
    assert resumed.drift() == memory.drift() > 0
    for tensor in [*state.values(), *memory.state_dict().values()]:
        tensor.zero_()
    assert resumed.drift() == memory.drift() > 0


def test_the_memory_of_another_net_is_refused_and_nothing_is_loaded():
    memory = Memory(make(), tasks=[0])
    before = memory.state_dict()
    narrow = hf.HyperNet(nn.Linear(2, 5), hf.Embedding(3, tasks=5, per="net"), generate="weights+biases")
    for state, message in (
        (Memory(narrow, tasks=[1]).state_dict(), r"'remembered\.weight' is \[1, 5, 2\] in it, and unknown here"),
        (
            {**before, "tasks": torch.tensor([0, 1])},
            r"'remembered\.0\.weight' is \[1, 5, 2\] in it, and \[2, 5, 2\] here",
        ),
        ({}, r"is missing in it, and \[0, 5, 2\] here"),
        ({**before, "tasks": torch.tensor([3])}, "it has task 3, and the net tasks 0 to 2"),
    ):
        with pytest.raises(CheckpointError, match=f"not a memory of this net: .*{message}"):
            memory.load_state_dict(state)
    for name, tensor in memory.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_memory_is_restored_in_the_dtype_of_its_net():
    memory = Memory(make(), tasks=[0])
    memory.load_state_dict({name: t if name == "tasks" else t.float() for name, t in memory.state_dict().items()})
    assert {t.dtype for t in memory.remembered.values()} == {torch.float64}


def test_the_mean_over_a_sample_of_the_tasks():
    net = net_of("embeddings")
    memory, alone = Memory(net, tasks=[0, 1, 2]), [Memory(net, tasks=[task]) for task in range(3)]
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1)
    means = [(a + b) / 2 for a, b in itertools.combinations([each.drift().item() for each in alone], 2)]
    found = [memory.drift(sample=2, generator=torch.Generator().manual_seed(i)).item() for i in range(20)]
    assert {min(range(3), key=lambda k: abs(means[k] - one)) for one in found} == {0, 1, 2}
    assert all(min(abs(mean - one) for mean in means) < 1e-12 * one for one in found)
