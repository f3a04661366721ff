"""``torch.utils.checkpoint`` inside a mainnet: the same gradients as without, and the right tensors in every rerun."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as torch_checkpoint

import hyperfan as hf
from checks import assert_close

TASKS = {"one code": 1, "a code per sample": torch.tensor([1, 2, 0]), "grouped": torch.tensor([1, 2, 0])}
HEADS = ("shared", "separate", hf.LoRA(2), hf.LowRank(2))


class Blocks(nn.Module):
    """One block is used twice, and reads its weight without a gradient too."""

    def __init__(self, reentrant, dropout=0.0):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.dropout, self.reentrant = nn.Dropout(dropout), reentrant

    def block(self, h):
        with torch.no_grad():
            scale = 1 + self.b.weight.square().sum()
        return self.dropout(torch.tanh(self.b(h))) * scale

    def forward(self, x):
        h = torch.tanh(self.a(x))
        for _ in range(2):
            if self.reentrant is None:
                h = self.block(h)
            else:
                h = torch_checkpoint.checkpoint(self.block, h, use_reentrant=self.reentrant)
        return self.c(h)


def trained(reentrant, heads, tasks, optimiser=None, dropout=0.0):
    """Inputs' gradient and, of all parameters, gradients, or values after a step; two calls before one backward."""
    torch.manual_seed(0)
    embedding = hf.Embedding(4, tasks=3, trainable=True)
    mainnet = Blocks(reentrant, dropout).double()
    net = hf.HyperNet(mainnet, embedding, trunk=(5,), nonlinearity="tanh", heads=heads)
    for p in net.heads.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.3)
    opt = None if optimiser is None else optimiser(net, lr=0.1)
    grouped = {"grouped": True} if tasks == "grouped" else {}
    x = torch.randn((3, 2, 6) if grouped else (3, 6), dtype=torch.float64, requires_grad=True)
    first, second = TASKS[tasks], 0 if tasks == "one code" else torch.tensor([0, 0, 1])
    out, later = net(x, task=first, **grouped), net(2 * x, task=second, **grouped)
    (out.square().sum() + later.sum()).backward()
    if net.per_sample.mixing:
        assert set(net.per_sample.mixing.values()) == {None}  # not by vmap
    if opt is not None:
        opt.step()
    return [x.grad, *[p.grad if opt is None else p.detach().clone() for p in net.parameters()]]


@pytest.mark.parametrize(("heads", "tasks"), list(itertools.product(HEADS, TASKS)), ids=str)
def test_gradients_are_those_without_checkpoints(heads, tasks):
    expected = trained(None, heads, tasks)
    for reentrant in (False, True):
        for ours, theirs in zip(trained(reentrant, heads, tasks), expected, strict=True):
            assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:.*with a dense gradient from now on")  # of reentrant checkpoints, which add to it
@pytest.mark.parametrize("optimiser", [hf.SGD, hf.AdamW])
@pytest.mark.parametrize("tasks", ["one code", "a code per sample"])
def test_optimisers_step_alike(optimiser, tasks):
    expected = trained(None, "separate", tasks, optimiser)
    for reentrant in (False, True):
        for ours, theirs in zip(trained(reentrant, "separate", tasks, optimiser), expected, strict=True):
            assert_close(ours, theirs)


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_is_drawn_as_in_the_forward_pass(reentrant):
    for ours, theirs in zip(
        trained(reentrant, "separate", "one code", dropout=0.5),
        trained(None, "separate", "one code", dropout=0.5),
        strict=True,
    ):
        assert_close(ours, theirs)


def test_constant_codes_held_by_an_optimiser():
    """Where no code is made at all: SGD trains what the heads make in their place."""
    found = []
    for reentrant in (None, False, True):
        torch.manual_seed(0)
        net = hf.HyperNet(Blocks(reentrant).double(), 4, nonlinearity="tanh")
        opt = hf.SGD(net, lr=0.1)
        x = torch.randn(3, 6, dtype=torch.float64)
        for _ in range(3):
            opt.zero_grad()
            net(x).square().sum().backward()
            opt.step()
        found.append(list(net.state_dict().values()))
    for plain, again, inner in zip(*found, strict=True):
        assert_close(again, plain)
        assert_close(inner, plain)


@pytest.mark.parametrize("reentrant", [False, True])
def test_nothing_stays_behind(reentrant):
    before = torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator
    net = hf.HyperNet(Blocks(reentrant), 4, nonlinearity="tanh")
    net(torch.randn(3, 6)).sum().backward()
    assert net.mainnet.b.weight is None
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        net(torch.randn(3, 5))
    assert net.mainnet.b.weight is None
    assert before == (torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator)
    outside = torch.randn(3, 5, requires_grad=True)
    torch_checkpoint.checkpoint(nn.Linear(5, 5), outside, use_reentrant=reentrant).sum().backward()
    assert outside.grad is not None


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_function_that_runs_by_vmap_is_refused_in_one_line(reentrant):
    class Unknown(Blocks):
        def forward(self, x):
            return torch.linalg.vector_norm(super().forward(x), dim=-1) + torch.special.i0(x).sum()

    net = hf.HyperNet(Unknown(reentrant), hf.Embedding(4, tasks=3), nonlinearity="tanh")
    with pytest.raises(hf.HyperfanError, match="checkpoint net's call instead"):
        net(torch.randn(3, 6), task=torch.tensor([0, 1, 2]))
