"""Nothing that was trained is overwritten: trunks, biases, frozen parameters; and the plan says what is kept."""

import copy
import pickle

import pytest
import torch
from torch import nn
from twins import Twins, batches

import hyperfan as hf
from checks import assert_mean


def mainnet(width: int = 100) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))


def pretrained_trunk() -> nn.Sequential:
    """A trunk far from where a fan-in init would put it."""
    trunk = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 24))
    with torch.no_grad():
        for p in trunk.parameters():
            p.mul_(7.0).add_(0.1)
    return trunk


def values(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: t.detach().clone() for name, t in module.state_dict().items()}


def assert_values(module: nn.Module, expected: dict[str, torch.Tensor]) -> None:
    for name, t in module.state_dict().items():
        assert torch.equal(t, expected[name]), name


def row(net: hf.HyperNet, name: str):
    return next(r for r in net.plan.rows if r.tensor == name)


# ── trunks ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("frozen", [False, True])
def test_a_trunk_given_is_held_and_keeps_its_values_and_modes_while_heads_fit_its_codes(frozen):
    trunk = pretrained_trunk().requires_grad_(not frozen)
    trunk[1].eval()
    before = values(trunk)
    net = hf.HyperNet(mainnet(), 8, trunk=trunk)
    assert net.trunk is trunk
    assert [m.training for m in trunk] == [True, False, True]
    for _ in range(2):
        assert_values(trunk, before)
        assert [p.requires_grad for p in trunk.parameters()] == [not frozen] * 4
        assert row(net, "trunk.0.weight").made_by == "kept"
        assert "init_trunk=True" in str(net.plan)
        # 10 000 values of each: a uniform variance scatters by √(0.8/10⁴) = 0.9 %
        scaled = [100 * t.var().item() for t in net.generate().values()]
        assert scaled == pytest.approx([1.0, 2.536], rel=5 * (0.8 / 1e4) ** 0.5)
        net.reset_parameters()


def test_init_trunk_draws_it():
    trunk = pretrained_trunk()
    net = hf.HyperNet(mainnet(), 8, trunk=trunk, init_trunk=True)
    assert row(net, "trunk.0.weight").made_by == "trunk"
    assert trunk[0].weight.abs().max() <= (3 / 8) ** 0.5
    assert not trunk[0].bias.any()
    drawn = trunk[0].weight.clone()
    net.reset_parameters()
    assert not torch.equal(trunk[0].weight, drawn)


def test_a_trunk_whose_gains_are_not_known_is_no_obstacle_if_it_is_kept():
    trunk = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 4))
    before = values(trunk)
    hf.HyperNet(mainnet(), 4, trunk=trunk)
    assert_values(trunk, before)


def test_the_running_statistics_of_a_trunk_are_kept():
    trunk = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6))
    trunk(torch.randn(10, 8))
    before = values(trunk)
    hf.HyperNet(mainnet(), 8, trunk=trunk).reset_parameters()
    assert_values(trunk, before)


class Pair(nn.Module):
    """Two mainnets from one trunk."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        trunk = nn.Sequential(nn.Linear(7, 6), nn.Tanh()).double()
        self.a = hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double(), 7, trunk=trunk)
        self.b = hf.HyperNet(nn.Linear(4, 3).double(), hf.Embedding(7, trainable=True), trunk=self.a.trunk)

    def forward(self, x):
        return self.a(x) + self.b(x)


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_two_nets_train_one_trunk_as_in_torch(optimiser):
    pair = Pair()
    assert len([name for name, _ in pair.named_parameters() if ".trunk." in name]) == 2
    Twins(pair, optimiser, lr=0.01).train(20)
    assert pair.a.trunk is pair.b.trunk


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_share_a_trunk_of_their_own(copied):
    pair = Pair()
    other = copied(pair)
    assert other.a.trunk is other.b.trunk
    assert other.a.trunk is not pair.a.trunk
    x, _ = next(batches(1))
    assert torch.equal(other(x), pair(x))


def test_a_change_of_the_trunk_through_one_net_is_seen_by_the_other():
    pair = Pair().eval()
    x, _ = next(batches(1))
    with torch.no_grad():
        before = pair.b(x)
        pair.a.trunk[0].weight.mul_(-1.0)
        assert not torch.equal(pair.b(x), before)


def test_saved_nets_share_a_trunk_again(tmp_path):
    pair = Pair()
    pair.a.save_pretrained(tmp_path / "a")
    pair.b.save_pretrained(tmp_path / "b")
    empty = nn.Sequential(nn.Linear(7, 6), nn.Tanh()).double()
    a = hf.HyperNet.from_pretrained(tmp_path / "a", pair.a.freeze(), trunk=empty)
    b = hf.HyperNet.from_pretrained(tmp_path / "b", pair.b.freeze(), trunk=a.trunk)
    assert a.trunk is b.trunk is empty
    x, _ = next(batches(1))
    assert torch.equal(a(x) + b(x), pair(x))
    loaded = values(empty)
    b.spec = pair.b.spec
    b.reset_parameters()
    assert_values(empty, loaded)


def test_a_trunk_by_widths_can_be_shared_and_loaded_so(tmp_path):
    first = hf.HyperNet(mainnet(10), 8, trunk=(6,))
    before = values(first.trunk)
    second = hf.HyperNet(mainnet(10), 8, trunk=first.trunk)
    second.reset_parameters()
    assert_values(first.trunk, before)
    second.save_pretrained(tmp_path)
    alone, shared = (hf.HyperNet.from_pretrained(tmp_path, mainnet(10), trunk=t) for t in (None, first.trunk))
    assert shared.trunk is first.trunk
    alone.reset_parameters()
    assert_values(alone.trunk, before)
    first.save_pretrained(tmp_path, overwrite=True)
    own = hf.HyperNet.from_pretrained(tmp_path, mainnet(10))
    own.reset_parameters()
    assert not torch.equal(own.trunk[0].weight, before["0.weight"])


# ── conditions to measure on ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("trunk", [None, "module"])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_codes_are_measured_on_examples(trunk, noise):
    conditions = 5 * torch.randn(200, 8) * torch.arange(8)  # nothing that std= could tell
    embedding = hf.Embedding(8, given=True, per="net", noise=noise)
    options = {"trunk": None if trunk is None else pretrained_trunk(), "example_embeddings": conditions}
    net = hf.HyperNet(mainnet(), embedding, generate="weights", **options)
    for copied in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        made = copied.generate(embedding=conditions, noise=bool(noise))["0.weight"]
        # The mean over the examples is what was measured, so only H's own sampling error is left.
        assert 100 * made.square().mean().item() == pytest.approx(1.0, rel=5 * (2 / 1e4) ** 0.5)
        copied.reset_parameters()


def test_examples_for_each_tensor():
    conditions = torch.randn(50, 2, 8) * torch.tensor([1.0, 10.0])[:, None]
    net = hf.HyperNet(mainnet(), hf.Embedding(8, given=True), heads="separate", example_embeddings=conditions)
    moments = [r.moment for r in net.plan.rows if r.made_by == "head"]
    assert moments == pytest.approx(conditions.square().sum(-1).mean(0).tolist(), rel=1e-5)


def test_examples_on_the_meta_device_are_measured_when_it_is_left():
    with torch.device("meta"):
        empty = mainnet()
    conditions = 3 * torch.ones(4, 8)
    net = hf.HyperNet(empty, hf.Embedding(8, given=True, per="net"), example_embeddings=conditions)
    assert row(net, "0.weight").moment is None
    net.to_empty(device="cpu").reset_parameters()
    assert row(net, "0.weight").moment == pytest.approx(72.0)


# ── biases ────────────────────────────────────────────────────────────────────────────────────────────────────────


def shifted(**options) -> tuple[nn.Sequential, hf.HyperNet]:
    """A mainnet whose biases are all one, as torch never draws them."""
    main = mainnet(10)
    for layer in (main[0], main[2]):
        nn.init.ones_(layer.bias)
    if options.pop("frozen", False):
        main[0].bias.requires_grad_(False)
    return main, hf.HyperNet(main, 8, **options)


def biases(net: hf.HyperNet) -> list[float]:
    return [net.mainnet.get_parameter(f"{i}.bias").mean().item() for i in (0, 2)]


def test_fresh_biases_start_at_zero():
    net = hf.HyperNet(mainnet(10), 8)
    assert biases(net) == [0.0, 0.0]
    assert row(net, "0.bias").made_by == "plain"
    assert row(net, "0.bias").equation == "= 0"


def test_biases_that_may_be_trained_are_kept_and_the_plan_says_why():
    main, net = shifted()
    assert biases(net) == [1.0, 1.0]
    assert row(net, "2.bias").made_by == "kept"
    reason = "'0.bias' is not as torch draws it on the CPU, so the net may be trained; init_biases=True writes 0"
    assert reason in str(net.plan)
    assert main[0].bias.mean().item() == 1.0
    net.reset_parameters()  # asks for it
    assert biases(net) == [0.0, 0.0]


def test_the_argument_decides():
    assert biases(shifted(init_biases=True)[1]) == [0.0, 0.0]
    assert biases(shifted(init_biases=True, frozen=True)[1]) == [0.0, 0.0]
    net = hf.HyperNet(mainnet(10), 8, init_biases=False)
    before = biases(net)
    assert 0.0 not in before
    assert "init_biases=False" in row(net, "0.bias").equation
    net.reset_parameters()
    assert biases(net) == before


def test_frozen_parameters_survive_every_start():
    main = nn.Sequential(nn.Linear(10, 10), nn.BatchNorm1d(10), nn.Linear(10, 4))
    for frozen in (main[0].bias, *main[1].parameters(), main[2].weight):
        frozen.requires_grad_(False)
    main(torch.randn(6, 10))
    before = values(main)
    net = hf.HyperNet(main, 8, generate="0.weight")
    for _ in range(2):
        kept = {name: t for name, t in before.items() if name not in ("0.weight", "2.bias")}
        for name, t in kept.items():
            assert torch.equal(net.mainnet.state_dict()[name], t), name
        assert row(net, "0.bias").equation == "kept: it is frozen"
        net.reset_parameters()
    assert not net.mainnet.state_dict()["2.bias"].any()
    net.reset_parameters()


@pytest.mark.parametrize("base", ["mainnet", "dict"])
def test_the_bias_beside_a_base_is_kept(base):
    main = mainnet(10)
    before = values(main)
    given = base if base == "mainnet" else {"0.weight": main[0].weight}
    net = hf.HyperNet(main, 8, share=0.1, base=given, heads="separate")
    for _ in range(2):
        assert torch.equal(net.mainnet.state_dict()["0.bias"], before["0.bias"])
        assert row(net, "0.bias").equation == "kept: the base of its weight is given"
        if base == "dict":
            assert not net.mainnet.state_dict()["2.bias"].any()
        net.reset_parameters()


def test_frozen_parameters_without_values_are_drawn():
    with torch.device("meta"):
        main = mainnet(10).requires_grad_(False)
    net = hf.HyperNet(main, 8, generate="0.weight").to_empty(device="cpu")
    net.reset_parameters()
    plain = net.mainnet.get_parameter("2.weight")
    assert 0.0 < plain.std() < 2.0
    assert biases(net) == [0.0, 0.0]


def test_a_loaded_net_keeps_what_the_saved_one_did(tmp_path):
    _, net = shifted(init_biases=False)
    net.save_pretrained(tmp_path)
    loaded = hf.HyperNet.from_pretrained(tmp_path, mainnet(10))
    assert str(loaded.plan) == str(net.plan)
    loaded.reset_parameters()
    assert biases(loaded) == [1.0, 1.0]


def test_conditions_that_are_not_like_std_are_on_average_on_target_only_with_examples():
    conditions = 4 * torch.randn(500, 8)
    for examples, expected in ((None, 16.0), (conditions, 1.0)):
        options = {"generate": "weights", "share": 1.0, "example_embeddings": examples}
        net = hf.HyperNet(mainnet(), hf.Embedding(8, given=True, per="net"), **options)
        assert_mean(100 * net.generate(embedding=conditions)["0.weight"].flatten(1).var(1), expected)
