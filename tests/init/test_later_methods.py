"""The inits that came after the paper: their formulae, and the settings of hyperfan that they equal."""

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import assert_mean, assert_variance
from hyperfan.codes import CosSin

CONDITION = hf.Embedding(20, given=True, per="net")


def mainnet(width: int = 60) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def started(init: str, embedding: hf.Embedding = CONDITION, **options) -> hf.HyperNet:
    torch.manual_seed(0)
    return hf.HyperNet(mainnet(), embedding, init=init, **{"generate": "weights", **options})


def rows(net: hf.HyperNet):
    return {row.tensor: row for row in net.plan.rows if row.made_by == "head"}


def head(net: hf.HyperNet, tensor: str):
    return net.heads.head(rows(net)[tensor].head)


def same(a: nn.Module, b: nn.Module) -> None:
    for (name, x), (_, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=0, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("options", [{}, {"trunk": (16,)}, {"embedding": hf.Embedding(20)}], ids=str)
def test_bias_hyperinit_is_a_share_of_zero(options):
    """Also in that codes of given conditions are small, on which nothing of its start depends."""
    same(started("beck2022-bias", **options), started("hyperfan-in", **options, share=0.0))


def test_bias_hyperinit_leaves_generated_biases_at_zero_and_starts_one_net_for_all():
    net = started("beck2022-bias", generate="weights+biases")
    made = net.generate(embedding=torch.randn(3, 20))
    assert torch.equal(made["0.weight"][0], made["0.weight"][2])
    assert_variance(made["2.weight"][0], 2 / 60)
    assert not made["0.bias"].any()
    assert rows(net)["0.bias"].equation == "H = 0, β = 0"
    assert "Var(β)" in rows(net)["0.weight"].equation


def test_weight_hyperinit_is_hyperfan_in_for_one_hot_codes():
    options = {"example_embeddings": torch.eye(20), "distribution": "normal"}
    same(started("beck2022-weight", **options), started("hyperfan-in", **options, share=1.0))
    net = started("beck2022-weight")
    assert_mean(60 * net.generate(embedding=torch.randn(200, 20))["0.weight"].flatten(1).var(1), 20.0)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("init", "head_variance", "weight_base", "bias_base"),
    [
        ("sitzmann2020", 2e-4 / 20, 1 / (3 * 60**2), 1 / (3 * 20**2)),
        ("sitzmann2021", 2e-2 / 20, 1 / (3 * 20), 1 / (3 * 20)),
        ("ortiz2023", 1 / 3600, 2 / 1.0001 / 60, 0.0),
    ],
)
def test_a_head_and_a_base_set_directly(init, head_variance, weight_base, bias_base, shared):
    embedding = hf.Embedding(20) if shared else CONDITION
    net = started(init, embedding, generate="weights+biases")
    assert (len(net.heads.layouts) == 3) == shared
    found = rows(net)
    assert found["0.weight"].variance == pytest.approx(head_variance)
    assert found["0.weight"].base == pytest.approx(weight_base)
    assert found["0.bias"].base == pytest.approx(bias_base)
    assert_variance(head(net, "0.weight").weight, head_variance)
    bases = [net.heads.base.value(f"{i}.weight") if shared else head(net, f"{i}.weight").bias for i in (0, 2)]
    for base in bases:
        assert_variance(base, weight_base)
    if init != "ortiz2023":
        assert found["0.bias"].variance == pytest.approx(head_variance)
    net.reset_parameters()
    assert_variance(head(net, "0.weight").weight, head_variance)


def test_magnitude_invariant_codes_have_one_norm():
    z = torch.rand(50, 4, dtype=torch.float64)
    encoded = CosSin()(z)
    torch.testing.assert_close(encoded.square().sum(-1), torch.full((50,), 4.0, dtype=torch.float64))
    torch.testing.assert_close(encoded[:, 4:], torch.sin(torch.pi * z / 2))
    trunk = nn.Sequential(CosSin(), nn.Linear(40, 64), nn.LeakyReLU())
    net = started("ortiz2023", trunk=trunk, init_trunk=True, example_embeddings=torch.rand(10, 20))
    assert_variance(trunk[1].weight, 2 / 1.0001 / 64)
    assert net.generate(embedding=torch.rand(20))["0.weight"].shape == (60, 60)


@pytest.mark.parametrize(("init", "factor"), [("knyazev2021", 1.0), ("knyazev2023", 0.2)])
def test_graph_hypernets_normalise_by_fan_in(init, factor):
    main = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2))
    net = hf.HyperNet(main, 20, generate="weights+biases", init=init)
    for row in rows(net).values():
        assert row.variance == pytest.approx(factor**2 / 60)
        fan_in = {"0": 27, "2": 72, "4": 36}[row.tensor[0]]
        assert row.scale == pytest.approx((2 / fan_in) ** 0.5 if row.role == "weight" else 0.2)
    made, codes = net.generate(), net.codes()
    heads = [net.heads.head(r.head) for r in rows(net).values()]
    for (name, w), h, code, row in zip(made.items(), heads, codes, rows(net).values(), strict=True):
        torch.testing.assert_close(w.flatten(), row.scale * (code @ h.weight), msg=name)


def test_text_to_lora_starts_all_conditions_with_one_a_and_no_update():
    main = mainnet()
    net = hf.HyperNet(main, CONDITION, heads=hf.LoRA(rank=4, alpha=8, share=0.0))
    conditions = torch.randn(3, 20)
    made = net.generate(embedding=conditions)["0.weight"]
    for w in made:
        torch.testing.assert_close(w, main[0].weight.detach())
    zero = [name for name, p in net.heads.named_parameters() if not p.any()]
    drawn = [name for name, p in net.heads.named_parameters() if p.any()]
    assert zero
    assert drawn
    assert all("bias" in name for name in drawn)  # H = 0 for both factors, and A's bias is drawn


def test_chunks_meet_a_target_where_the_chunked_correction_is_cut_off():
    """The correction of von Oswald et al. 2020: there, 16·(1/500) is less than the 8·1 of the condition alone."""
    main = nn.Sequential(nn.Linear(500, 500))
    condition = hf.Embedding(8, given=True, per="net", normalise=True)
    heads = hf.Chunks(size=5000, flat=True, embedding=8)
    net = hf.HyperNet(main, condition, generate="weights", heads=heads)
    made = []
    for seed in range(20):  # how far nets and conditions differ is seen in their own spread
        net.reset_parameters(torch.Generator().manual_seed(seed))
        made.append(500 * net.generate(embedding=torch.randn(8))["0.weight"].square().mean())
    assert_mean(torch.stack(made), 1.0)


def test_products_of_zeros_are_refused():
    with pytest.raises(hf.HyperfanError, match=r"nothing of '0\.weight' would be generated at the start"):
        started("beck2022-bias", heads=hf.LowRank(4))


@pytest.mark.parametrize("embedding", [hf.Embedding(20), CONDITION], ids=["shared heads", "a condition"])
@pytest.mark.parametrize("init", ["sitzmann2020", "ortiz2023", "beck2022-bias", "knyazev2021"])
def test_saved_and_loaded_they_start_again(init, embedding, tmp_path):
    net = started(init, embedding)
    net.save_pretrained(tmp_path)
    loaded = hf.HyperNet.from_pretrained(tmp_path, mainnet())
    same(net, loaded)
    torch.manual_seed(1)
    loaded.reset_parameters()
    torch.manual_seed(1)
    net.reset_parameters()
    assert loaded.plan == net.plan
    same(net, loaded)
