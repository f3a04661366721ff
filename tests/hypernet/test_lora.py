"""LoRA: low-rank updates of the mainnet's own values, which start at zero."""

import copy
import json
from typing import ClassVar

import pytest
import torch
from generator_suite import Case, GeneratorSuite, build, overlap
from torch import Tensor, nn

import hyperfan as hf
from checks import assert_close, assert_variance
from hyperfan.errors import CheckpointError
from hyperfan.generators.stand_in import Product
from hyperfan.optim.gradient import FactoredGradient


def oracle(net: hf.HyperNet, task=None, embedding=None) -> dict[str, Tensor]:
    """One tensor at a time: its factors by their definition, multiplied in einsum, on its base."""
    made, config, first = {}, net.heads.config, 0
    alpha = config.rank if config.alpha is None else config.alpha
    for i, t in enumerate(net.generated):
        per_rank = config.code_per == "rank" and t.role == "weight"
        ranks = [
            net.codes(task=task, embedding=embedding)[..., first + r, :] for r in range([1, config.rank][per_rank])
        ]
        first, h = first + len(ranks), ranks[0]
        names = list(net.heads.layouts[net.heads.names[i]].heads)
        heads = [net.heads.head(name) for name in names]
        each = [[torch.einsum("...k,kp->...p", h, head.weight) + head.bias for h in ranks] for head in heads]
        if per_rank and not config.core:
            each[0] = [
                row + common for row, common in zip(each[0], net.heads.get_parameter(f"{names[0]}0"), strict=True)
            ]
            each[1] = [torch.stack(each[1], -1).flatten(-2)]  # columns of B, and rows of all else
        factors = [torch.cat(rows, -1) for rows in each]
        if t.role == "weight" and config.core:
            u, v = (net.heads.get_buffer(f"{t.name.replace('.', '/')}-{side}") for side in "UV")
            core = factors[0].unflatten(-1, (config.rank, config.rank))
            factors = [torch.einsum("ip,...pq,jq->...ij", u, core, v) * (alpha / config.rank)]
        elif t.role == "weight":
            a, b = factors[0].unflatten(-1, (config.rank, -1)), factors[1].unflatten(-1, (-1, config.rank))
            factors = [torch.einsum("...ir,...rj->...ij", b, a) * (alpha / config.rank)]
        update = factors[0].reshape(*h.shape[:-1], *t.shape) * net.heads.scale[i]
        made[t.name] = net.heads.base.value(t.name) + update
    return made


def moved(net: hf.HyperNet) -> hf.HyperNet:
    """As after some training: no head is zero any more."""
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in net.heads.parameters():
            if not p.is_meta:
                p += 0.2 * torch.randn(p.shape, generator=source).to(p)
    return net


def case(embedding, heads, call=dict, **options) -> Case:
    return Case(lambda mainnet: moved(hf.HyperNet(mainnet, embedding, heads=heads, **options)), oracle, call)


def given(*shape):
    return lambda: {"embedding": torch.randn(*shape, generator=torch.Generator().manual_seed(2))}


CONDITION = hf.Embedding(6, given=True, per="net")


class Suite(GeneratorSuite):
    SEED_OF_ANOTHER_MAINNET = 0

    def test_rescale_multiplies_one_tensor_and_says_so_on_the_meta_device(self, case):
        """It does not: the base is the mainnet's, and frozen."""
        net = build(case)
        name = net.generated[0].name
        with pytest.raises(hf.HyperfanError, match=rf"the base of '{name}' is frozen"):
            net.rescale_({name: 1.5})

    def code_moment(self, net, h):
        """Of ranks whose products of two generated factors are summed, the overlap; a core is linear in its code."""
        return super().code_moment(net, h) if net.heads.config.core else overlap(h)


class TestLoRA(Suite):
    GRAPHS = ("given per sample",)
    BACKWARD_GRAPHS = GRAPHS
    CASES: ClassVar = {
        "fixed": case(6, hf.LoRA(2, alpha=3.0)),
        "everything": case(6, hf.LoRA(3), generate="*"),
        "shared": case(6, hf.LoRA(2, sharing="shared"), generate="weights+biases"),
        "tasks": case(hf.Embedding(6, tasks=3, trainable=True), hf.LoRA(1), lambda: {"task": 2}, trunk=(8,)),
        "given per sample": case(CONDITION, hf.LoRA(2, alpha=4.0), given(4, 6), trunk=(8,)),
    }


NAMED = hf.Embedding(6, given=True, per="net", identity={"layer": 2, "module": 1, "rank": 3})


class TestCodePerRank(Suite):
    """A row of A and a column of B from the code of each rank; weights of one module share heads."""

    GRAPHS = ("given",)
    CASES: ClassVar = {
        "fixed": case(6, hf.LoRA(3, code_per="rank"), generate="*"),
        "tasks": case(
            hf.Embedding(6, tasks=3, trainable=True, per="net", identity=2),
            hf.LoRA(2, alpha=3.0, code_per="rank", sharing="shared"), lambda: {"task": torch.tensor([0, 2, 1, 2])},
            trunk=(8,),
        ),
        "given": case(
            NAMED, hf.LoRA(2, alpha=3.0, code_per="rank", sharing="module"), given(4, 6), trunk=(8,),
            generate=["6.*", "8.weight"],
        ),
        "core": case(NAMED, hf.LoRA(2, core=True, code_per="rank"), given(6), trunk=(8,)),
    }  # fmt: skip


class TestCore(Suite):
    GRAPHS = ()
    CASES: ClassVar = {
        "fixed": case(6, hf.LoRA(2, alpha=3.0, core=True)),
        "shared": case(6, hf.LoRA(3, core=True, sharing="shared"), generate="*"),
        "given per sample": case(CONDITION, hf.LoRA(2, core=True), given(4, 6), trunk=(8,)),
    }


def mainnet() -> nn.Module:
    """Linear layers with and without a bias, a norm, and convolutions of which one is cut into groups."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.GroupNorm(2, 6), nn.Tanh(), nn.Conv2d(6, 4, 2, bias=False),
        nn.Tanh(), nn.Conv2d(4, 4, 1, groups=2), nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3, bias=False),
    ).double()  # fmt: skip


X = torch.randn(4, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def conditioned(heads, main=None, identity=None, **options) -> hf.HyperNet:
    main = mainnet() if main is None else main
    return hf.HyperNet(main, hf.Embedding(7, given=True, per="net", identity=identity), heads=heads, **options)


KINDS = {
    "LoRA": (hf.LoRA(2, alpha=8.0), None),
    "core": (hf.LoRA(2, core=True), None),
    "per rank": (hf.LoRA(2, alpha=8.0, code_per="rank", sharing="shared"), 3),
}
"""Heads, and the size of the identities that they need."""


# ── the start ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("generate", ["weights", "weights+biases", "*", "7.weight"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_net_starts_as_the_mainnet_is(kind, generate):
    """Exactly, with pretrained biases and norms, for any code, also after a restart."""
    main = mainnet()
    with torch.no_grad():
        main[1].weight.fill_(1.7)
        main[1].bias.fill_(0.3)
    heads, identity = KINDS[kind]
    net, e = conditioned(heads, main, identity, generate=generate), torch.randn(4, 7).double()
    for _ in range(2):
        assert torch.equal(net(X, embedding=e[0]), main(X))
        assert_close(net(X, embedding=e).detach(), main(X).detach())  # convolutions per sample round otherwise
        assert all(torch.equal(v, dict(main.named_parameters())[k]) for k, v in net.generate(embedding=e[0]).items())
        with torch.no_grad():
            for p in net.heads.parameters():
                p += 1.0
        net.reset_parameters()


@pytest.mark.parametrize("init", ["hyperfan-in", "hyperfan-out"])
def test_a_starts_at_its_variance_and_b_at_zero(init):
    """Var(A) = gain/d_in, so that A·x has mean square 1 behind a ReLU too."""
    main = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 100))
    net = hf.HyperNet(
        main, hf.Embedding(32, given=True, per="net", normalise=True), heads=hf.LoRA(8, share=0.3), init=init
    )
    codes = net.codes(embedding=torch.randn(1, 32))[0]
    for i, (row, variance) in enumerate(zip(net.plan.rows[:2], (1 / 300, 2 / 200), strict=True)):
        a, b = (net.heads.head(f"{2 * i}/weight-{factor}") for factor in "AB")
        assert_variance(a(codes[i : i + 1]), variance)
        assert_variance(a.weight, row.variance)
        assert row.variance == pytest.approx(0.3 * variance / 32)
        assert_variance(a.bias, 0.7 * variance)
        assert not b.weight.any()
        assert not b.bias.any()
        assert row.target == row.base == pytest.approx(main[2 * i].weight.double().square().mean().item())
        assert row.equation.startswith("W⁰ kept; B = 0, Var(A) = gain/d_in, Var(H) = 0.3·Var(A)/‖h‖²")


class Stored(nn.Module):
    """A linear layer whose weight is stored as (in, out), as GPT-2's are."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = nn.Parameter(linear.weight.detach().mT.contiguous()), linear.bias

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


@pytest.mark.parametrize("sizes", [(8, 12), (8, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_inputs_first_has_the_update_of_its_transpose(kind, sizes):
    """A lies on the side of the inputs, with their number in its variance, and B, which is zero, on the other."""
    heads, identity = KINDS[kind]
    linear, x, e = nn.Linear(*sizes).double(), torch.randn(5, sizes[0]).double(), torch.randn(5, 7).double()
    nets = [conditioned(heads, main, identity, example=x, generate="weight") for main in (linear, Stored(linear))]
    for net in nets:
        net.reset_parameters(torch.Generator().manual_seed(0))
    drawn = [[p.detach().clone() for p in net.heads.parameters()] for net in nets]
    assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))
    usual, stored = map(moved, nets)
    assert usual.plan.rows[0].equation == stored.plan.rows[0].equation
    assert_close(stored.generate(embedding=e)["weight"], usual.generate(embedding=e)["weight"].mT)
    for codes in (e, e[0]):
        assert_close(stored(x, embedding=codes).detach(), usual(x, embedding=codes).detach())
        assert not torch.allclose(usual(x, embedding=codes), linear(x))


def test_a_save_with_a_and_b_on_the_other_sides_is_refused(tmp_path):
    """As 0.2.0 wrote it; where the weight is square, all shapes fit."""
    main, x = Stored(nn.Linear(8, 8)), torch.randn(5, 8)
    net = hf.HyperNet(main, 3, generate="weight", heads=hf.LoRA(2), example=x)
    net.save_pretrained(tmp_path)
    assert torch.equal(hf.HyperNet.from_pretrained(tmp_path, main, example=x)(x), net(x))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["in_first"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"with other sides of A and B for weight, .* train it anew"):
        hf.HyperNet.from_pretrained(tmp_path, main, example=x)


def test_an_update_is_linear_in_its_core_and_not_in_two_factors():
    main = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    for heads, weights_are in ((hf.LoRA(2), False), (hf.LoRA(2, core=True), True)):
        net = hf.HyperNet(main, 3, heads=heads, generate="weights+biases")
        assert [net.heads.is_linear(i) for i in range(4)] == [weights_are, True, weights_are, True]


def test_a_of_a_transposed_convolution_reads_its_input_channels():
    net = hf.HyperNet(nn.ConvTranspose2d(200, 50, 3), hf.Embedding(32, normalise=True), heads=hf.LoRA(8, share=0.3))
    a, b = (net.heads.head(f"/weight-{factor}") for factor in "AB")
    assert_variance(a(net.codes()), 1 / 200)
    assert (len(a.bias), len(b.bias)) == (8 * 200, 8 * 50 * 9)
    assert not b.weight.any()


def test_shared_heads_have_a_scale_for_each_gain():
    main = nn.Sequential(nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 200))
    net = hf.HyperNet(main, hf.Embedding(32, normalise=True), heads=hf.LoRA(8, sharing="shared"))
    assert set(net.heads.layouts) == {"200x200"}
    first, second = net.plan.rows[:2]
    assert second.scale / first.scale == pytest.approx(2**0.5)
    a = net.heads.head("200x200-A")
    assert_variance(a(net.codes()[1:2]) * second.scale, 2 / 200)
    assert a.bias.abs().max().item() == pytest.approx((3 * 0.9 * 1.5 / 200) ** 0.5, rel=2e-3)  # of 1600 uniform values
    with pytest.raises(hf.HyperfanError, match="would make all tensors of head 200x200 equal"):
        hf.HyperNet(main, hf.Embedding(32, per="net"), heads=hf.LoRA(8, sharing="shared"))


@pytest.mark.parametrize("core", [False, True])
def test_a_condition_and_an_identity_for_each_tensor_share_heads(core):
    main = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 20)).double()
    condition = hf.Embedding(5, given=True, per="net", identity=4)
    net = moved(hf.HyperNet(main, condition, heads=hf.LoRA(3, core=core, sharing="shared"), trunk=(16,)))
    x, e = torch.randn(4, 20).double(), torch.randn(4, 5).double()
    each = torch.cat([net.freeze(embedding=e[i])(x[i : i + 1]) for i in range(4)])
    assert_close(net(x, embedding=e).detach(), each.detach())
    assert not torch.equal(each, main(x))


def test_a_method_that_sets_heads_sets_that_of_a():
    net = hf.HyperNet(nn.Linear(300, 200), 20, heads=hf.LoRA(8), init="m2")
    assert_variance(net.heads.head("/weight-A").weight, net.plan.rows[0].variance)
    assert net.plan.rows[0].variance == 0.01**2
    assert not net.heads.head("/weight-A").bias.any()
    assert not net.heads.head("/weight-B").weight.any()


def test_a_restart_by_a_method_that_sets_heads_leaves_the_update_at_zero():
    """Such a method has no share to choose, and neither has an update, whose net says nothing of one."""
    main, x = nn.Linear(30, 20), torch.randn(4, 30)
    net = hf.HyperNet(main, 5, heads=hf.LoRA(2))
    for method in ("m2", "hyperfan-in"):
        net.restart_(method)
        assert net.share == 0
        assert torch.equal(net(x), main(x))
    assert net.extra_repr().endswith("(exact, uniform)")


def test_no_nonlinearity_need_be_known():
    class Unread(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 4)

        def forward(self, x):
            return self.b(torch.cumsum(self.a(x), -1))

    main, x = Unread(), torch.randn(3, 6)
    net = hf.HyperNet(main, 4, heads=hf.LoRA(2))
    assert torch.equal(net(x), main(x))
    assert net.plan.rows[1].gain == 1


def test_a_core_lies_between_singular_vectors():
    main = mainnet()
    with torch.no_grad():
        main[9].weight.zero_()
    net = conditioned(hf.LoRA(2, core=True), main)
    u, v = net.heads.get_buffer("0/weight-U"), net.heads.get_buffer("0/weight-V")
    left, values, right = torch.linalg.svd(main[0].weight.detach().flatten(1), full_matrices=False)
    assert_close(u @ v.mT, left[:, :2] * values[:2] @ right[:2])  # whatever their signs
    for side in "UV":  # of a weight without any, orthonormal
        factor = net.heads.get_buffer(f"9/weight-{side}")
        assert_close(factor.mT @ factor, torch.eye(2).double())
    assert {name.split("/")[-1] for name, _ in net.heads.named_parameters()} == {"weight-R.weight", "weight-R.bias"}


# ── the base ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_base_is_frozen_held_once_and_not_saved(tmp_path):
    """Whether or not the mainnet's parameters require gradients."""
    main = mainnet()
    net = moved(conditioned(hf.LoRA(2), main, generate="*"))
    assert all(p.requires_grad for p in main.parameters())
    assert net.heads.base.value("7.weight").data_ptr() == main[7].weight.data_ptr()
    assert not list(net.heads.base.parameters())
    assert not any("base" in name for name in net.state_dict())
    net.save_pretrained(tmp_path)
    again, e = hf.HyperNet.from_pretrained(tmp_path, main), torch.randn(7).double()
    assert torch.equal(again(X, embedding=e), net(X, embedding=e))
    assert again.heads.base.value("7.weight").data_ptr() == main[7].weight.data_ptr()


def test_a_base_can_be_trained_or_drawn(tmp_path):
    main, e = mainnet(), torch.randn(7).double()
    trained = conditioned(hf.LoRA(2), main, base={"7.weight": main[7].weight}, generate="7.weight")
    assert isinstance(trained.heads.base.value("7.weight"), nn.Parameter)
    assert torch.equal(trained(X, embedding=e), main(X))
    drawn = conditioned(hf.LoRA(2), main, base="start", generate="*")
    assert_variance(drawn.heads.base.value("0.weight"), drawn.plan.rows[0].target)
    assert torch.equal(drawn.generate(embedding=e)["1.weight"], torch.ones(6).double())
    drawn.save_pretrained(tmp_path)
    again = hf.HyperNet.from_pretrained(tmp_path, mainnet())
    assert torch.equal(again(X, embedding=e), drawn(X, embedding=e))


def test_a_base_without_values_is_drawn_and_saved(tmp_path):
    with torch.device("meta"):
        empty = mainnet()
    net = conditioned(hf.LoRA(2, core=True), empty, generate="*")
    assert "W⁰: v = " in net.plan.rows[0].equation
    net.to_empty(device="cpu").reset_parameters()
    assert torch.equal(net.heads.base.value("1.weight"), torch.ones(6).double())
    assert "heads.base.0/weight" in net.state_dict()
    assert "heads.base.0/weight" not in dict(net.named_parameters())
    net.save_pretrained(tmp_path)
    again, e = hf.HyperNet.from_pretrained(tmp_path, mainnet()), torch.randn(7).double()
    assert torch.equal(again(X, embedding=e), net(X, embedding=e))


# ── running and training ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("grouped", [None, False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_weight_is_made_to_run_a_layer(kind, grouped, monkeypatch):
    """Ordinary, per-sample and grouped calls equal a loop over calls with the weights, forward and backward."""
    heads, identity = KINDS[kind]
    net = moved(conditioned(heads, identity=identity, generate="*"))
    e = (torch.randn(7) if grouped is None else torch.randn(4, 7)).double().requires_grad_()
    x = (X.unsqueeze(1) * torch.ones(4, 2, 1, 1, 1) if grouped else X).clone().double().requires_grad_()
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
    assert net.generate(embedding=torch.empty(0, 7).double())["7.weight"].shape == (0, 5, 16)
    target = torch.randn_like(fast)
    both = [torch.autograd.grad((out.view(fast.shape) * target).sum(), wanted) for out in (fast, slow)]
    for a, b in zip(*both, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codes", ["constant", "one", "per sample"])
def test_optimisers_train_it_like_torch(codes, kind, optimiser):
    """From the start, with gradients that are never written out."""
    heads, identity = KINDS[kind]
    embedding = 20 if codes == "constant" else hf.Embedding(20, given=True, per="net", identity=identity)
    main = mainnet().requires_grad_(False)
    net = hf.HyperNet(main, embedding, heads=heads, generate="weights+biases")
    other = copy.deepcopy(net)
    ours, theirs = getattr(hf, optimiser)(net, lr=1e-2), getattr(torch.optim, optimiser)(other.parameters(), lr=1e-2)
    ours.use({"constant": None}.get(codes, "factored"))
    for _ in range(4):
        x, e = torch.randn_like(X), torch.randn(4, 20).double()
        call = {"constant": {}, "one": {"embedding": e[0]}, "per sample": {"embedding": e}}[codes]
        for each, its in ((net, ours), (other, theirs)):
            its.zero_grad()
            each(x, **call).square().mean().backward()
            if each is net and codes != "constant":
                of_maps = [p for part in net.heads.parts() for p in part.map.parameters()]
                assert all(isinstance(p.grad, FactoredGradient) for p in of_maps)
            its.step()
    for (name, p), q in zip(net.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12, msg=name)


def test_it_learns_an_update_that_depends_on_a_condition():
    """The condition says how much of a fixed low-rank update the teacher has."""
    main = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2)).requires_grad_(False)
    update = torch.outer(torch.randn(20), torch.randn(6)) / 6**0.5
    net = hf.HyperNet(main, hf.Embedding(1, given=True, per="net", distribution="normal"), heads=hf.LoRA(2))
    opt, losses = hf.AdamW(net, lr=1e-2), []
    for _ in range(150):
        x, c = torch.randn(64, 6), torch.randn(64, 1)
        teacher = main[2](torch.tanh(main[0](x) + c * (x @ update.T)))
        opt.zero_grad()
        loss = (net(x, embedding=c) - teacher).square().mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert sum(losses[-20:]) < 0.2 * sum(losses[:20])


# ── bad input ──────────────────────────────────────────────────────────────────────────────────────────────────────


BAD = {
    "no rank": (lambda: hf.LoRA(0), r"LoRA\(rank=0\): give an integer from 1"),
    "alpha": (lambda: hf.LoRA(2, alpha=0.0), r"LoRA\(alpha=0\): the factor of the update is α/r, positive"),
    "negative alpha": (lambda: hf.LoRA(2, alpha=-1), "positive and finite"),
    "share of A": (lambda: hf.LoRA(2, share=1.5), r"LoRA\(share=1\.5\): it is the part of A's variance"),
    "sharing": (lambda: hf.LoRA(2, sharing="share"), "'separate', 'shared' by shape, or by 'module'"),
    "code": (lambda: hf.LoRA(2, code_per="row"), r"LoRA\(code_per='row'\): each 'tensor' has a code, or each 'rank'"),
    "equal ranks": (lambda: conditioned(hf.LoRA(2, code_per="rank")), "would make all ranks equal: .* identity=8"),
    "rank": (
        lambda: conditioned(hf.LoRA(4)),
        r"rank 4 is more than '5\.weight' has, a matrix of 4 × 2: .* at most 2, or",
    ),
    "both orders": (
        lambda: conditioned(
            hf.LoRA(2, sharing="shared"),
            nn.Sequential(nn.Linear(4, 4), Stored(nn.Linear(4, 4))),
            3,
            example=torch.randn(2, 4),
            generate="*weight",
        ),
        r"one of '0\.weight' and '1\.weight' is stored as \(in, out\) .* use LoRA\(…, sharing='separate'\)",
    ),
    "share": (lambda: conditioned(hf.LoRA(2), share=0.1), r"share=0\.1 does not go with LoRA, .*: leave it out"),
    "operation": (lambda: conditioned(hf.LoRA(2), base_op="multiply"), "base_op='multiply' does not go with LoRA"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line(make, message):
    with pytest.raises(hf.HyperfanError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
