"""A code for each rank of a product, identities of layer, module and rank, and heads that modules share."""

import copy

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import assert_close, assert_variance
from hyperfan.formulas.contraction import contraction_variance, overlapping_terms
from hyperfan.mainnet.spec import layer_and_module


class Block(nn.Module):
    """Two projections of one shape, and one that widens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * width)

    def forward(self, x):
        return x + self.v_proj(torch.tanh(self.q_proj(x))) + self.up(x)[..., : x.shape[-1]]


class Model(nn.Module):
    """A stack of blocks, and a layer that is not repeated."""

    def __init__(self, width: int = 12, blocks: int = 2) -> None:
        super().__init__()
        self.layers, self.out = nn.ModuleList(Block(width) for _ in range(blocks)), nn.Linear(width, 3)

    def forward(self, x):
        for block in self.layers:
            x = block(x)
        return self.out(x)


NAMES = {"layer": 3, "module": 2}
GIVEN = {"given": True, "per": "net"}


def update(identity, sharing="module", code_per="rank", main=None, rank=2, **options) -> hf.HyperNet:
    heads = hf.LoRA(rank, sharing=sharing, code_per=code_per)
    return hf.HyperNet(main or Model(), hf.Embedding(4, **GIVEN, identity=identity), heads=heads, trunk=(8,), **options)


# ── names ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_is_a_repeated_layer_and_a_module_in_it():
    for name, parts in {
        "model.layers.3.self_attn.q_proj.weight": ("model.layers.3", "self_attn.q_proj.weight"),
        "blocks.2.mlp.0.weight": ("blocks.2", "mlp.0.weight"),
        "0.weight": ("0", "weight"),
        "weight": ("", "weight"),
    }.items():
        assert layer_and_module(name) == parts


def test_heads_are_shared_by_module_and_identities_by_layer_and_module():
    net = update({**NAMES, "rank": 1})
    assert list(net.heads.layouts) == [f"*/{m}/weight" for m in ("q_proj", "v_proj", "up", "out")]
    tables = {name: tuple(p.shape) for name, p in net.embeddings.named_parameters()}
    assert tables == {"identity_layer": (3, 3), "identity_module": (4, 2), "identity_rank": (2, 1)}
    condition = torch.randn(4)
    joined = net.embeddings(None, condition, None)
    assert joined.shape == (14, 4 + 3 + 2 + 1)
    e = net.embeddings
    for layer, module, rank, code in ((0, 0, 0, 0), (0, 1, 1, 3), (1, 2, 0, 10), (2, 3, 1, 13)):
        parts = [condition, e.identity_layer[layer], e.identity_module[module], e.identity_rank[rank]]
        assert torch.equal(joined[code], torch.cat(parts))


def test_parts_are_saved_loaded_and_trained(tmp_path):
    main = Model().requires_grad_(False)
    net = update({"layer": hf.Embedding(3, std=0.5), "module": 2, "rank": 1}, main=main)
    assert not isinstance(net.embeddings.identity_layer, nn.Parameter)
    with torch.no_grad():
        for p in net.parameters():
            p += 0.1 * torch.randn_like(p)
    net.save_pretrained(tmp_path)
    x, e = torch.randn(5, 12), torch.randn(5, 4)
    again = hf.HyperNet.from_pretrained(tmp_path, main)
    assert again.embeddings.config == net.embeddings.config
    assert torch.equal(again(x, embedding=e), net(x, embedding=e))


def test_dead_codes_are_drawn_anew_in_every_part():
    """A ReLU trunk of width 1 makes zero of half of all codes; a condition's tasks must all live with every part."""
    torch.manual_seed(0)
    condition = hf.Embedding(2, tasks=1, per="net", identity={"layer": 2, "module": 2})
    options = {"generate": "*.q_proj.weight", "heads": "separate", "share": 1.0, "example": torch.randn(2, 12)}
    net = hf.HyperNet(Model(), condition, trunk=(1,), **options)
    assert (net.codes(task=0).square().sum(-1) > 0).all()


# ── the start ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rows_of_a_start_at_their_variance_and_not_alike():
    """Most of A is common to all codes, and yet differs from rank to rank."""
    torch.manual_seed(0)
    main = Model(width=200, blocks=1)
    condition = hf.Embedding(16, **GIVEN, normalise=True, identity=8)
    heads = hf.LoRA(8, share=0.3, code_per="rank")
    net = hf.HyperNet(main, condition, heads=heads, trunk=(64,), generate="layers.0.v_proj.weight")
    row = net.plan.rows[0]
    codes, head = net.codes(embedding=torch.randn(16)), net.heads.head("layers/0/v_proj/weight-A")
    common = net.heads.get_parameter("layers/0/v_proj/weight-A0")
    gain = row.gain
    assert_variance(head.weight, 0.3 * gain / 200 / 64)
    assert_variance(common, 0.7 * gain / 200)
    a = head(codes) + common
    assert a.square().mean().item() == pytest.approx(gain / 200, rel=0.15)
    # Rows have in common only what H makes of codes that are alike: at most the share.
    cosines = torch.corrcoef(a.detach())[~torch.eye(8, dtype=torch.bool)]
    assert cosines.abs().max() < 0.3 + 4 * 200**-0.5
    assert not net.heads.head("layers/0/v_proj/weight-B").weight.any()


@pytest.mark.parametrize("trunk", [None, (24,)], ids=str)
def test_terms_that_share_heads_count_by_the_overlap_of_their_codes(trunk):
    """Var(W) = r·Var(A)·Var(B)·m⁴ over draws of the heads, against the formula without the overlap, which is wrong."""
    torch.manual_seed(0)
    rank, width = 6, 24
    net = hf.HyperNet(nn.Linear(8, 9), hf.Embedding(width, normalise=True), heads=hf.LowRank(rank, "rank"), trunk=trunk)
    h = net.codes().double().detach()
    overlap = net.heads.measured_moments(net.code_source)[0]
    cosines = (h @ h.T / width).square()
    mean = ((cosines.sum() - rank) / (rank * (rank - 1))).item()
    assert overlap == pytest.approx(width * (overlapping_terms(rank, mean) / rank) ** 0.5, rel=1e-5)
    draws = 4000
    u, v = (torch.einsum("nik,rk->nri", torch.randn(draws, size, width).double(), h) for size in (3, 2))
    squares = torch.einsum("nri,nrj->nij", u, v).square().flatten(1).mean(1)
    error = squares.std().item() / draws**0.5
    of_rule = contraction_variance("ik,rk,jl,rl->ij", {"k": width, "l": width, "r": rank}, [1, overlap / width] * 2)
    assert abs(squares.mean().item() - of_rule) < 4 * error
    assert abs(squares.mean().item() - rank * width**2) > 8 * error
    assert net.heads.tensor_variance(0, 1.0, overlap) == pytest.approx(of_rule)
    assert net.generate()["weight"].square().mean().item() == pytest.approx(net.plan.rows[0].target, rel=1e-4)


def test_low_rank_from_a_condition_is_on_target_over_many_nets():
    squares = []
    for seed in range(40):
        torch.manual_seed(seed)
        condition = hf.Embedding(8, **GIVEN, identity=8)
        mainnet = nn.Linear(30, 20, bias=False)
        net = hf.HyperNet(mainnet, condition, heads=hf.LowRank(5, "rank"), trunk=(32,))
        squares.append(
            net.generate(embedding=net.embeddings.draw_(torch.empty(50, 8)))["weight"].square().mean().item()
        )
    found = torch.tensor(squares)
    assert abs(found.mean().item() * 30 - 1) < 4 * found.std().item() * 30 / 40**0.5


def test_before_a_draw_unrelated_ranks_are_expected_and_others_not_known():
    with torch.device("meta"):
        empty = nn.Linear(30, 20)
    heads = hf.LowRank(5, "rank")
    assert hf.HyperNet(empty, 16, heads=heads).plan.rows[0].moment == pytest.approx(16 * (1 + 4 / 16) ** 0.5)
    assert hf.HyperNet(empty, 16, heads=heads, trunk=(8,)).plan.rows[0].moment is None
    on_paper = hf.HyperNet(nn.Linear(30, 20), 16, heads=heads, fidelity="paper")
    assert on_paper.plan.rows[0].moment == pytest.approx(16 * (1 + 4 / 16) ** 0.5)


# ── optimisers ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("heads", [hf.LowRank(3, "rank"), "module"], ids=str)
@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_optimisers_train_it_like_torch(heads, optimiser):
    identity = NAMES if heads == "module" else {**NAMES, "rank": 2}
    condition = hf.Embedding(4, **GIVEN, identity=identity)
    net = hf.HyperNet(Model().double(), condition, heads=heads, trunk=(8,), example=torch.randn(2, 12).double())
    other = copy.deepcopy(net)
    ours, theirs = getattr(hf, optimiser)(net, lr=1e-3), getattr(torch.optim, optimiser)(other.parameters(), lr=1e-3)
    ours.use("factored")
    for _ in range(3):
        x, e = torch.randn(4, 12).double(), torch.randn(4, 4).double()
        for each, its in ((net, ours), (other, theirs)):
            its.zero_grad()
            each(x, embedding=e).square().mean().backward()
            its.step()
    for (name, p), q in zip(net.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12, msg=name)


def test_groups_and_samples_equal_a_loop():
    net = update({**NAMES, "rank": 1}, main=Model().double())
    with torch.no_grad():
        for p in net.parameters():
            p += 0.1 * torch.randn_like(p)
    x, e = torch.randn(3, 5, 12).double(), torch.randn(3, 4).double()
    loop = torch.stack([net(x[i], embedding=e[i]) for i in range(3)])
    assert_close(net(x, embedding=e, grouped=True), loop)
    assert_close(net(x[:, 0], embedding=e), loop[:, 0])
    assert_close(net(x[:, :2].flatten(0, 1), embedding=e, counts=(2, 2, 2)), loop[:, :2].flatten(0, 1))


# ── bad input ──────────────────────────────────────────────────────────────────────────────────────────────────────


BAD = {
    "no part": (lambda: hf.Embedding(4, **GIVEN, identity={}), "layer, module, rank: it is empty"),
    "another part": (lambda: hf.Embedding(4, **GIVEN, identity={"layers": 2}), "did you mean 'layer'"),
    "size": (lambda: hf.Embedding(4, **GIVEN, identity={"layer": 0}), "its size is an integer from 1"),
    "no condition": (lambda: hf.Embedding(4, per="net", identity=NAMES), "joined to a condition, and there is none"),
    "per tensor": (lambda: hf.Embedding(4, tasks=2, identity=NAMES), "each has an embedding of its own"),
    "rank without codes": (lambda: update({**NAMES, "rank": 1}, code_per="tensor"), "each tensor has one code"),
    "ranks": (lambda: update(NAMES), r"gives ranks or chunks of 'layers\.0\.q_proj\.weight' the same code"),
    "modules": (
        lambda: update({"layer": 3, "rank": 1}, sharing="shared"),
        r"gives 'layers\.0\.q_proj\.weight' and 'layers\.0\.v_proj\.weight' the same code, and one head makes both",
    ),
    "flat": (
        lambda: hf.HyperNet(
            Model(), hf.Embedding(4, **GIVEN, identity=NAMES), heads=hf.Chunks(size=9, flat=True), nonlinearity="tanh"
        ),
        "a code may serve several tensors, as that of a flat chunk",
    ),
    "shapes": (
        lambda: hf.HyperNet(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5)), 6, heads="module"),
        r"'0\.weight' is \(4, 3\) of float32 and '1\.weight' \(5, 4\).* share heads by shape, with 'shared', or leave",
    ),
    "rank": (lambda: update(5, rank=4), r"rank 4 is more than 'out\.weight' has, a matrix of 3 × 12"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line(make, message):
    with pytest.raises(hf.HyperfanError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
