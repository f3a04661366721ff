"""What is written is what the formula says, and what is generated is on target."""

import itertools
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import hyperfan as hf
import table1
from checks import assert_mean, assert_variance
from hyperfan.codes.draw import uniform_bound

D_I, D_J, D_K, KERNEL = 48, 32, 20, 3


def mainnet(conv: bool, relu: bool) -> nn.Sequential:
    layer = nn.Conv2d(D_J, D_I, KERNEL) if conv else nn.Linear(D_J, D_I)
    return nn.Sequential(layer, nn.ReLU() if relu else nn.Tanh()).double()


def cell(method: str, role: str, conv: bool, relu: bool, hbias: bool, var_e: float) -> float:
    """The paper's table."""
    receptive = KERNEL**2 if conv else 1
    if (method, role) == ("hyperfan-in", "weight"):
        return table1.hyperfan_in_weight(D_J, D_K, var_e, relu=relu, hbias=hbias, receptive=receptive)
    if (method, role) == ("hyperfan-out", "weight"):
        return table1.hyperfan_out_weight(D_I, D_K, var_e, relu=relu, receptive=receptive)
    if (method, role) == ("hyperfan-in", "bias"):
        return table1.hyperfan_in_bias(D_K, var_e, relu=relu)
    return table1.hyperfan_out_bias(D_I, D_J, D_K, var_e, relu=relu)


CELLS = list(
    itertools.product(
        ["hyperfan-in", "hyperfan-out"], [False, True], [False, True], [False, True], ["uniform", "normal"]
    )
)


@pytest.mark.parametrize(("method", "conv", "relu", "hbias", "distribution"), CELLS)
def test_every_cell_of_table_1(method, conv, relu, hbias, distribution):
    var_e, tasks = 0.5, 400
    embedding = hf.Embedding(D_K, tasks=tasks, std=var_e**0.5)
    generate = "weights+biases" if hbias else "weights"
    net = hf.HyperNet(
        mainnet(conv, relu), embedding, generate=generate, init=method, fidelity="paper", distribution=distribution
    )
    for row in net.plan.rows:
        if row.made_by != "head":
            continue
        expected = cell(method, row.role, conv, relu, hbias, var_e)
        assert row.variance == pytest.approx(expected, rel=1e-12)
        head = net.heads.head(row.head)
        assert_variance(head.weight, expected)
        assert not head.bias.any()
        if distribution == "uniform":
            bound = uniform_bound(expected)
            assert 0.99 * bound < head.weight.abs().max() <= bound
        # Each code has its own norm, so the target is met on average over codes ...
        made = net.generate(task=torch.arange(tasks))[row.tensor]
        assert_mean(made.flatten(1).square().mean(1) / row.target, 1.0)
        # ... and for each single code up to that norm.
        e = net.embeddings.weight[0, net.heads.names.index(row.head)]
        assert_variance(made[0], expected * e.square().sum().item())


def test_hyperfan_out_bias_is_zero_when_the_layer_narrows():
    net = hf.HyperNet(
        nn.Sequential(nn.Linear(50, 20)), 8, generate="weights+biases", init="hyperfan-out", fidelity="paper"
    )
    assert not net.generate()["0.bias"].any()
    assert not net.heads.head("0/bias").weight.any()


@settings(max_examples=40, deadline=None)
@given(
    groups=st.sampled_from([1, 2, 4]),
    channels=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    size=st.integers(1, 40),
    transposed=st.booleans(),
    method=st.sampled_from(["hyperfan-in", "hyperfan-out"]),
    fidelity=st.sampled_from(["exact", "paper"]),
)
def test_any_convolution(groups, channels, kernel, stride, size, transposed, method, fidelity):
    c_in, c_out = channels[0] * groups, channels[1] * groups
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(c_in, c_out, kernel, stride, groups=groups).double()
    net = hf.HyperNet(nn.Sequential(layer, nn.ReLU()), size, init=method, fidelity=fidelity)
    (row,) = (r for r in net.plan.rows if r.made_by == "head")
    fan = {"hyperfan-in": c_in, "hyperfan-out": c_out}[method] // groups * kernel**2
    thinned = transposed == (method == "hyperfan-in")  # the side that the stride thins out
    if fidelity == "exact" and thinned:
        fan /= stride**2
    gain = 1.0 if fidelity == "exact" else 2.0  # exact: the first layer reads the input, not a ReLU
    assert row.target == pytest.approx(gain / fan, rel=1e-12)
    norm = net.codes().square().sum().item()
    assert row.variance == pytest.approx(row.target / (norm if fidelity == "exact" else size), rel=1e-9)
    if net.heads.head(row.head).weight.numel() >= 100:
        assert_variance(net.heads.head(row.head).weight, row.variance)


@pytest.mark.parametrize("size", [2, 50])
@pytest.mark.parametrize("trunk", [None, (64,), (10, 10)], ids=str)
@pytest.mark.parametrize("init", ["hyperfan-in", "hyperfan-out"])
def test_exact_is_within_two_per_cent_of_target(size, trunk, init):
    main = nn.Sequential(nn.Linear(500, 500), nn.Tanh(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 500))
    net = hf.HyperNet(main, size, trunk=trunk, init=init)
    made = net.generate()
    wanted = {"hyperfan-in": [1.0, 2.536, 2.0], "hyperfan-out": [1.0, 2.153, 2.0]}[init]
    for w, target in zip(made.values(), wanted, strict=True):
        assert 500 * w.var().item() == pytest.approx(target, rel=0.02)


def test_paper_fidelity_fluctuates_where_exact_does_not():
    """The coefficient of variation √(0.8/d) of ‖e‖² for a uniform embedding: 0.63 at d = 2."""
    main = nn.Sequential(nn.Linear(100, 100))

    def spread(fidelity):
        net = hf.HyperNet(main, 2, fidelity=fidelity, distribution="normal")
        seen = []
        for _ in range(200):
            net.reset_parameters()
            seen.append(net.generate()["0.weight"].var().item())
        return statistics.stdev(seen) / statistics.fmean(seen)

    assert spread("paper") == pytest.approx(0.63, rel=5 / (2 * 200) ** 0.5)
    assert spread("exact") == pytest.approx((2 / 100**2) ** 0.5, rel=5 / (2 * 200) ** 0.5)


def test_exact_counts_the_noise():
    main = nn.Sequential(nn.Linear(200, 200))
    net = hf.HyperNet(main, hf.Embedding(4, noise=2.0))
    made = torch.stack([net.generate()["0.weight"].var() for _ in range(400)])
    assert_mean(200 * made, 1.0)
    trunked = hf.HyperNet(main, hf.Embedding(4, noise=2.0), trunk=(32,))
    assert_mean(200 * torch.stack([trunked.generate()["0.weight"].var() for _ in range(400)]), 1.0)


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
@pytest.mark.parametrize("trunk", [None, (64, 64)], ids=str)
def test_exact_holds_on_average_for_given_embeddings(trunk, distribution):
    embedding = hf.Embedding(16, given=True, per="net", std=0.5, distribution=distribution)
    net = hf.HyperNet(nn.Sequential(nn.Linear(100, 100)), embedding, generate="weights", trunk=trunk, share=1.0)
    e = torch.empty(2000, 16).uniform_(-(3**0.5), 3**0.5) if distribution == "uniform" else torch.randn(2000, 16)
    made = 100 * net.generate(embedding=0.5 * e)["0.weight"].flatten(1).var(1)
    assert_mean(made, 1.0)


def test_normalised_codes_are_exact_one_by_one():
    embedding = hf.Embedding(4, given=True, per="net", normalise=True)
    net = hf.HyperNet(nn.Sequential(nn.Linear(500, 500)), embedding, generate="weights", trunk=(8,))
    e = torch.randn(20, 4) * torch.logspace(-2, 2, 20)[:, None]
    made = 500 * net.generate(embedding=e)["0.weight"].flatten(1).var(1)
    torch.testing.assert_close(made, torch.ones(20), rtol=0.02, atol=0)


def test_a_shared_head_meets_different_targets():
    """A first layer reads the input, the others a ReLU: same shape, twice the variance."""
    main = nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400))
    net = hf.HyperNet(main, 10)
    assert len(net.heads.layouts) == 1
    made = [400 * w.var().item() for w in net.generate().values()]
    assert made == pytest.approx([1.0, 2.0, 2.0], rel=0.02)


def test_bias_share_is_a_setting():
    main = nn.Sequential(nn.Linear(300, 300))
    quarter = hf.init.method("hyperfan-in", bias_share=0.25)
    net = hf.HyperNet(main, 30, generate="weights+biases", init=quarter)
    made = net.generate()
    assert 300 * made["0.weight"].var().item() == pytest.approx(0.75, rel=0.02)
    assert_variance(made["0.bias"], 0.25)


def test_norm_parameters_start_at_one_and_zero_whatever_the_method():
    main = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.GroupNorm(2, 8), nn.PReLU())
    for m in hf.init.available():
        net = hf.HyperNet(main, 5, generate=["1.*", "3.*", "4.*"], init=m.name)
        made = net.generate()
        for name in ("1", "3"):
            assert torch.equal(made[f"{name}.weight"], torch.ones(8))
            assert torch.equal(made[f"{name}.bias"], torch.zeros(8))
        assert made["4.weight"].item() == 0.25


@pytest.mark.parametrize("fidelity", ["exact", "paper"])
def test_the_trunk_follows_its_own_activations(fidelity):
    """tanh mainnet, GELU trunk: neither knows of the other."""
    trunk = nn.Sequential(nn.Linear(200, 300), nn.GELU(), nn.Linear(300, 300), nn.GELU())
    main = nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 9))
    net = hf.HyperNet(main, 200, trunk=trunk, init_trunk=True, fidelity=fidelity)
    gain = 2.352 if fidelity == "exact" else 1.0
    assert_variance(net.trunk[0].weight, 1 / 200)
    assert_variance(net.trunk[2].weight, gain / 300)
    assert not net.trunk[0].bias.any()


def test_paper_relu_trunk_keeps_the_second_moment():
    """With gain 2 on every trunk layer, E[h²] = Var(e), so the table holds."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(2, 2)), hf.Embedding(99, tasks=50), trunk=(2000, 2000), fidelity="paper")
    h = torch.stack([net.codes(task=t) for t in range(50)])
    # 2·ReLU(z)² has variance 5, so two layers of 2000 units scatter by √(2·5/2000) at most; five of that.
    assert h.square().mean().item() == pytest.approx(1.0, rel=5 * (2 * 5 / 2000) ** 0.5)


CLASSICAL = {
    "xavier-fan-in": 1 / 20,
    "xavier-fan-out": 1 / 600,
    "xavier-harmonic": 2 / 620,
    "xavier-geometric": (20 * 600) ** -0.5,
    "xavier-arithmetic": (1 / 20 + 1 / 600) / 2,
    "kaiming-fan-in": 2 / 20,
    "kaiming-fan-out": 2 / 600,
    "kaiming-harmonic": 4 / 620,
    "kaiming-geometric": 2 * (20 * 600) ** -0.5,
    "kaiming-arithmetic": 1 / 20 + 1 / 600,
    "m2": 1e-4,
    "m3": 2 / 20 / 100,
    "m4": 2 / 20,
    "auddy2024-kaiming": 1 / (3 * 20),
    "auddy2024-uniform": 1 / 20**2,
    "auddy2024-normal": 1 / 20**4,
}


@pytest.mark.parametrize(("name", "variance"), CLASSICAL.items(), ids=CLASSICAL)
def test_classical_methods_see_only_the_head(name, variance):
    net = hf.HyperNet(nn.Sequential(nn.Linear(30, 20), nn.ReLU()), 20, init=name, fidelity="paper")
    (row, _bias) = net.plan.rows
    assert row.variance == pytest.approx(variance, rel=1e-12)
    assert_variance(net.heads.head("20x30").weight, variance)
    if name == "m4":
        assert torch.equal(net.embeddings.weight, torch.full((1, 20), 30**-0.5))


@pytest.mark.parametrize(
    ("variant", "layers", "weights"),
    [
        # E[h²] goes by 1/3/2 in each ReLU layer with variance 1/(3·fan_in).
        ("kaiming", [1 / (3 * 20), 1 / (3 * 300), 1 / (3 * 300)], (1 / 6) ** 3 / 3),
        # By 1/d_k, from embeddings of 20 values; then d_k·1/d_k²·E[h²].
        ("uniform", [2 / (20 * 300), 2 / 300**2, 2 / 300**2], 300**-4),
        # By fan_in·(2/(fan_in·d_k))²/2; then d_k·1/d_k⁴·E[h²].
        ("normal", [(2 / (20 * 300)) ** 2, (2 / 300**2) ** 2, (2 / 300**2) ** 2], 8 / (20 * 300**2 * 300**6) / 300**3),
    ],
)
def test_the_inits_of_auddy_2024_shrink_hidden_layers_too(variant, layers, weights):
    embedding = hf.Embedding(20, per="net", tasks=100, distribution="normal")
    options = {"trunk": (300,) * 3, "heads": "separate", "init": f"auddy2024-{variant}"}
    net = hf.HyperNet(nn.Sequential(nn.Linear(20, 10), nn.ELU()), embedding, **options)
    rows = {row.tensor: row for row in net.plan.rows}
    assert [rows[f"trunk.{i}.weight"].variance for i in (0, 2, 4)] == pytest.approx(layers, rel=1e-12)
    # One net's widths of 300 scatter by √(5/300) in each layer, 22 %, of which 20 nets leave 5 %.
    planned, made = [], []
    for seed in range(20):
        net.reset_parameters(torch.Generator().manual_seed(seed))
        head = next(row for row in net.plan.rows if row.tensor == "0.weight")
        planned.append(head.variance * head.moment / weights)
        made.append(net.generate(task=torch.arange(100))["0.weight"].double().square().mean().item() / weights)
    assert_mean(torch.tensor(planned), 1.0)
    assert_mean(torch.tensor(made), 1.0)


def test_m4_reaches_the_scale_of_kaiming():
    net = hf.HyperNet(nn.Sequential(nn.Linear(400, 300), nn.ReLU()), 20, init="m4", fidelity="paper")
    assert 400 * net.generate()["0.weight"].var().item() == pytest.approx(2.0, rel=0.02)


def test_plain_biases_start_at_zero_and_other_plain_parameters_are_kept():
    main = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    nn.init.constant_(main[1].weight, 3.0)
    net = hf.HyperNet(main, 5, generate="0.weight")
    state = net.state_dict()
    assert not state["mainnet.0.bias"].any()
    assert torch.equal(state["mainnet.1.weight"], torch.full((4,), 3.0))
    assert torch.equal(state["mainnet.2.weight"], main[2].weight)
    assert torch.equal(state["mainnet.2.bias"], main[2].bias)


def test_the_plan_can_be_read_before_anything_is_written():
    with torch.device("meta"):
        main = nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10))
    net = hf.HyperNet(main, 50, trunk=(20,))
    planned = net.plan
    assert all(r.variance is not None for r in planned.rows)
    net.to_empty(device="cpu").reset_parameters()
    for before, after in zip(planned.rows[:2], net.plan.rows[:2], strict=True):
        assert before.target == after.target
        assert before.moment == 10.0  # d_k·E[e²]/2 in expectation
        assert after.moment != before.moment  # as drawn


def test_the_plan_prints_what_the_issue_of_scale_is_about():
    net = hf.HyperNet(nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10)), 50, fidelity="paper")
    lines = str(net.plan).splitlines()
    for word in ("tensor", "role", "fan-in", "fan-out", "gain", "target variance", "head variance", "equation"):
        assert word in lines[1]
    assert lines[3].split()[:6] == ["0.weight", "weight", "500x784", "784", "500", "1"]
    assert "2.551e-05" in lines[3]


def test_reset_parameters_repeats_itself_with_a_generator():
    main = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
    net = hf.HyperNet(main, 5, trunk=(6,), generate="0.weight")
    net.reset_parameters(torch.Generator().manual_seed(3))
    first = {k: v.clone() for k, v in net.state_dict().items()}
    torch.manual_seed(99)
    net.mainnet.get_buffer("1.running_var").fill_(7.0)
    net.reset_parameters(torch.Generator().manual_seed(3))
    for key, value in net.state_dict().items():
        assert torch.equal(value, first[key]), key
    net.reset_parameters(torch.Generator().manual_seed(4))
    assert not torch.equal(net.state_dict()["heads.4x3x3x3.weight"], first["heads.4x3x3x3.weight"])
