"""The output regulariser, against its formula written out."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import hyperfan as hf
from hyperfan.errors import CallError
from hyperfan.optim import Memory

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


def test_it_trains_alike_with_our_sgd_and_with_torch():
    losses = []
    for optimiser in (lambda net: hf.SGD(net, lr=RATE), lambda net: torch.optim.SGD(net.parameters(), lr=RATE)):
        net = make()
        opt = optimiser(net)
        torch.manual_seed(1)
        train(net, opt, task=0)
        memory = Memory(net, tasks=[0])
        for _ in range(5):
            x = torch.randn(7, 2, dtype=torch.float64)
            opt.zero_grad()
            loss = mse_loss(net(x, task=1), x.prod(1, keepdim=True))
            loss.backward()
            (BETA * memory.drift(lookahead=RATE)).backward()
            opt.step()
            losses.append(loss.item())
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
    ],
    ids=["shared", "chunks", "flat"],
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
