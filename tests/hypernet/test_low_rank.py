"""Weights of low rank: products of two generated factors."""

import copy
from functools import partial
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from generator_suite import Case, GeneratorSuite, overlap
from torch import Tensor, nn

import hyperfan as hf
from checks import assert_close
from hyperfan.errors import HyperfanError
from hyperfan.generators.stand_in import Product
from hyperfan.init import available


def oracle(net: hf.HyperNet, task=None, embedding=None) -> dict[str, Tensor]:
    """One tensor at a time, its factors by their definition, multiplied in einsum."""
    made, config, first = {}, net.heads.config, 0
    for i, t in enumerate(net.generated):
        ranks = config.rank if config.code_per == "rank" and t.role == "weight" else 1
        codes = [net.codes(task=task, embedding=embedding)[..., first + r, :] for r in range(ranks)]
        first, h = first + ranks, codes[0]
        heads = [net.heads.head(name) for name in net.heads.layouts[net.heads.names[i]].heads]
        factors = [
            torch.stack([torch.einsum("...k,kp->...p", h, head.weight) + head.bias for h in codes], -1).flatten(-2)
            for head in heads
        ]
        if t.role == "weight":
            left, right = (f.unflatten(-1, (-1, net.heads.config.rank)) for f in factors)
            factors = [torch.einsum("...ir,...jr->...ij", left, right)]
        made[t.name] = factors[0].reshape(*h.shape[:-1], *t.shape) * net.heads.scale[i]
    return made


def case(embedding, rank, call=dict, code_per="tensor", **options) -> Case:
    heads = hf.LowRank(rank, code_per)
    return Case(lambda mainnet: hf.HyperNet(mainnet, embedding, heads=heads, **options), oracle, call)


def given(*shape):
    return lambda: {"embedding": torch.randn(*shape, generator=torch.Generator().manual_seed(2))}


class TestLowRank(GeneratorSuite):
    GRAPHS = ("given per sample",)
    CASES: ClassVar = {
        "fixed": case(6, 2),
        "everything": case(6, 3, generate="*"),
        "tasks": case(hf.Embedding(6, tasks=3, trainable=True), 1, lambda: {"task": 2}, trunk=(8,)),
        "given per sample": case(hf.Embedding(6, given=True, per="net"), 2, given(4, 6), trunk=(8,)),
        "per rank": case(6, 3, code_per="rank", generate="*"),
        "per rank, given": case(
            hf.Embedding(6, given=True, per="net", identity=2), 2, given(4, 6), code_per="rank", trunk=(8,)
        ),
    }

    def code_moment(self, net, h):
        return overlap(h)

    @pytest.mark.parametrize("fidelity", ["exact", "paper"])
    @pytest.mark.parametrize("init", [m.name for m in available() if m.name != "beck2022-bias"])  # which is refused
    def test_every_method_starts_it_at_its_target(self, init, fidelity):
        """Exactly, once scaled by what was drawn; on paper within the scatter of one draw of 30 codes and 20 ranks."""
        torch.manual_seed(0)
        mainnet = nn.Sequential(nn.Linear(60, 50), nn.ReLU(), nn.Linear(50, 40))
        net = hf.HyperNet(
            mainnet, hf.Embedding(30, normalise=init != "m4"), heads=hf.LowRank(20), init=init, fidelity=fidelity
        )
        made = net.generate()
        for row in net.plan.rows[:2]:
            square = made[row.tensor].square().mean().item()
            assert row.variance > 0
            assert square > 0
            if row.target is not None:
                assert square == pytest.approx(row.target, rel=1e-4 if fidelity == "exact" else 0.25)
            else:  # what the plan's numbers say: c²·r·(Var(H)·‖h‖²)², and a base
                h2 = net.codes()[net.heads.names.index(row.head)].square().sum().item()
                assert square == pytest.approx(row.scale**2 * 20 * (row.variance * h2) ** 2 + row.base, rel=0.25)

    def test_weights_have_their_rank_and_biases_a_head(self):
        torch.manual_seed(0)
        mainnet = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 6))
        net = hf.HyperNet(mainnet.double(), 10, heads=hf.LowRank(3), generate="weights+biases")
        made = net.generate()
        assert torch.linalg.matrix_rank(made["0.weight"].flatten(1)) == 3
        assert torch.linalg.matrix_rank(made["3.weight"]) == 3
        assert [part.name for part in net.heads.parts()][:3] == ["0/weight-left", "0/weight-right", "0/bias"]

    def test_sgd_collapses_both_factors(self):
        """As torch.optim.SGD on dense gradients, and without one: no other file knows of low rank."""
        x = torch.randn(5, 7, dtype=torch.float64)
        nets = []
        for _ in range(2):
            torch.manual_seed(0)
            mainnet = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 4)).double()
            nets.append(hf.HyperNet(mainnet, 9, heads=hf.LowRank(2)))
        ours, theirs = (
            hf.SGD(nets[0], lr=1e-4, momentum=0.9),
            torch.optim.SGD(nets[1].parameters(), lr=1e-4, momentum=0.9),
        )
        assert {row.kind for row in ours.plan.rows} == {"collapsed"}
        for _ in range(10):
            for net, opt in zip(nets, (ours, theirs), strict=True):
                opt.zero_grad()
                net(x).square().sum().backward()
                opt.step()
        for (name, a), (_, b) in zip(nets[0].named_parameters(), nets[1].named_parameters(), strict=True):
            torch.testing.assert_close(a, b, msg=name)

    @pytest.mark.parametrize("rank", [0, -1, 2.0, True])
    def test_a_rank_is_a_positive_integer(self, rank):
        with pytest.raises(HyperfanError, match="give an integer from 1"):
            hf.LowRank(rank)

    @pytest.mark.parametrize("rank", [5, 9])
    def test_a_rank_that_no_matrix_has_is_refused(self, rank):
        mainnet = nn.Sequential(nn.Conv2d(2, 9, 3), nn.Flatten(), nn.Linear(36, 4))
        with pytest.raises(
            HyperfanError, match=rf"rank {rank} is more than '2\.weight' has.*4 × 36.*at most 4, or leave"
        ):
            hf.HyperNet(mainnet, 6, heads=hf.LowRank(rank))


def layers() -> nn.Module:
    """Linear layers with and without a bias, and convolutions of which one is cut into groups."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.Tanh(), nn.Conv2d(6, 4, 2, bias=False), nn.Tanh(),
        nn.Conv2d(4, 4, 1, groups=2), nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3, bias=False),
    ).double()  # fmt: skip


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("grouped", [None, False, True])
def test_no_weight_is_made_to_run_a_layer(grouped, share, monkeypatch):
    """Ordinary, per-sample and grouped calls equal those with the weights, one by one, forward and backward."""
    net = hf.HyperNet(layers(), hf.Embedding(7, given=True, per="net"), heads=hf.LowRank(2), share=share)
    e = torch.randn(7) if grouped is None else torch.randn(4, 7)
    e = e.double().requires_grad_()
    x = torch.randn(*((4, 2) if grouped else (4,)), 3, 5, 5, dtype=torch.float64, requires_grad=True)
    wanted = [e, x, *net.parameters()]
    if grouped is None:
        slow = net.run(net.generate(embedding=e), x)
    else:
        slow = torch.stack([net.run(net.generate(embedding=e[i]), x[i] if grouped else x[i : i + 1]) for i in range(4)])
    made = []
    make = Product.make
    monkeypatch.setattr(Product, "make", lambda self: made.append(tuple(self.shape)) or make(self))
    fast = net(x, embedding=e, **({} if grouped is None else {"grouped": grouped}))
    assert set(made) <= {(4, 2, 1, 1)}  # of the layer in groups
    assert_close(fast, slow.view(fast.shape))
    target = torch.randn_like(fast)
    for a, b in zip(
        *(torch.autograd.grad((o.view(fast.shape) * target).sum(), wanted) for o in (fast, slow)), strict=True
    ):
        assert_close(a, b)


@pytest.mark.parametrize("right", ["own", "common"])
@pytest.mark.parametrize("based", [False, True])
@pytest.mark.parametrize("kernel", [(), (3,), (3, 2), (2, 1, 2)])
def test_a_product_stands_for_the_weights_of_many_samples(kernel, based, right):
    """Inputs of all samples, one behind the other, against a loop."""
    n, batch, channels, outputs, rank = 3, 2, 4, 5, 2
    left, columns = torch.randn(n, outputs, rank).double(), channels * torch.Size(kernel).numel()
    right = torch.randn(*((n,) if right == "own" else ()), rank, columns).double()
    base = torch.randn(outputs, channels, *kernel).double() if based else None
    product = Product(left, right, base, (outputs, channels, *kernel))
    assert product.make().shape == (n, outputs, channels, *kernel)
    x = torch.randn(n, batch, channels, *([5] * len(kernel))).double()
    if not kernel:
        fast, run = product.linear(x, None), F.linear
    else:
        run = partial(getattr(F, f"conv{len(kernel)}d"), stride=2, padding=1)
        convolve = getattr(F, f"conv{len(kernel)}d")
        fast = product.convolution(convolve, x.flatten(0, 1), None, (2, 1, 1)).unflatten(0, (n, batch))
    assert_close(fast, torch.stack([run(x[i], product.make()[i]) for i in range(n)]))


@pytest.mark.parametrize("heads", [hf.LowRank(2), hf.LoRA(2)])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_outputs_under_autocast_are_of_lower_precision(heads, shape):
    """As those of the layer itself, whose bias is float32; without oneDNN, whose kernels not every CPU has."""
    net = hf.HyperNet(nn.Linear(8, 6), hf.Embedding(4, given=True, per="net"), heads=heads)
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert net(torch.randn(3, 5, 8), embedding=torch.randn(*shape, 4)).dtype == torch.bfloat16
    finally:
        torch._C._set_mkldnn_enabled(before)


def test_evaluation_keeps_the_factors(monkeypatch):
    net = hf.HyperNet(layers(), 7, heads=hf.LowRank(2)).eval()
    x = torch.randn(4, 3, 5, 5).double()
    made = []
    forward = net.heads.forward
    monkeypatch.setattr(net.heads, "forward", lambda *a, **k: made.append(forward(*a, **k)) or made[-1])
    with torch.no_grad():
        first, again = net(x), net(x)
        assert len(made) == 1
        assert torch.equal(first, again)
        net.heads.head("6/weight-left").bias.add_(1.0)
        assert not torch.equal(net(x), first)


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_optimisers_train_it_like_torch(optimiser, per_sample):
    net = hf.HyperNet(layers(), hf.Embedding(7, given=True, per="net"), heads=hf.LowRank(2), generate="weights+biases")
    other = copy.deepcopy(net)
    ours, theirs = getattr(hf, optimiser)(net, lr=1e-3), getattr(torch.optim, optimiser)(other.parameters(), lr=1e-3)
    assert {row.kind for row in ours.plan.rows} <= {"factored", "dense"}
    for _ in range(4):
        x, e = torch.randn(4, 3, 5, 5).double(), torch.randn(4, 7).double()
        for each, its in ((net, ours), (other, theirs)):
            its.zero_grad()
            each(x, embedding=e if per_sample else e[0]).square().mean().backward()
            its.step()
    for (name, p), q in zip(net.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12, msg=name)
