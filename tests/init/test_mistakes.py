"""Mistakes that other implementations made, each with what would catch it here."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

import hyperfan as hf
from checks import assert_variance
from hyperfan.formulas import Fans
from hyperfan.mainnet.gains import gains


def rows(net):
    return {r.tensor: r for r in net.plan.rows}


def test_harmonic_mean_is_not_twice_the_sum_of_the_inverses():
    """2·(1/a + 1/b) made Var(H) 128402 where 3.1e-5 was right."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(784, 500)), 50, init="hyperfan-harmonic", fidelity="paper")
    assert rows(net)["0.weight"].variance == pytest.approx(2 / (784 + 500) / 50, rel=1e-12)
    assert rows(net)["0.weight"].variance == pytest.approx(3.115e-5, rel=1e-3)


def test_the_kernel_does_not_enter_the_bias_under_hyperfan_out():
    """1 − d_j·receptive/d_i would be negative here, and the bias zero."""
    main = nn.Sequential(nn.Conv2d(16, 64, 3))
    net = hf.HyperNet(main, 10, generate="weights+biases", init="hyperfan-out", fidelity="paper")
    assert rows(net)["0.bias"].target == pytest.approx(1 - 16 / 64)


@pytest.mark.parametrize(("inner", "outer", "gain"), [(nn.ReLU, nn.Tanh, 1.0), (nn.Tanh, nn.ReLU, 2.0)])
def test_the_trunks_nonlinearity_is_not_the_mainnets(inner, outer, gain):
    main = nn.Sequential(nn.Linear(30, 30), outer(), nn.Linear(30, 30), outer())
    trunk = nn.Sequential(nn.Linear(8, 300), inner())
    net = hf.HyperNet(main, 8, trunk=trunk, init_trunk=True, fidelity="paper")
    assert rows(net)["2.weight"].target == pytest.approx(gain / 30)
    own = 2.0 if inner is nn.ReLU else 1.0
    assert_variance(net.trunk[0].weight, own / 8)


def test_a_relu_trunk_puts_no_second_gain_on_the_linear_head():
    """The head's output is a weight, with no ReLU after it: its variance is on target, not twice that."""
    main = nn.Sequential(nn.Linear(200, 200))
    for fidelity in ("exact", "paper"):
        net = hf.HyperNet(main, hf.Embedding(64, tasks=40), trunk=(400, 400), fidelity=fidelity)
        made = torch.stack([net.generate(task=t)["0.weight"].var() for t in range(40)])
        # Exact: the mean over tasks is what was divided by. Paper: two layers of 400 ReLU units scatter by √(2·5/400).
        tolerance = 0.01 if fidelity == "exact" else 5 * (2 * 5 / 400) ** 0.5
        assert 200 * made.mean().item() == pytest.approx(1.0, rel=tolerance)


def test_groups_count_in_fan_out():
    """A depthwise layer of 64 channels came out 64 times too small."""
    main = nn.Sequential(nn.Conv2d(64, 64, 3, groups=64))
    net = hf.HyperNet(main, 10, init="hyperfan-out", fidelity="paper")
    assert rows(net)["0.weight"].target == pytest.approx(1 / 9)


def test_batch_norm_scales_are_not_biases():
    main = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    chosen = [t.name for t in hf.HyperNet(main, 4, generate="weights+biases").generated]
    assert chosen == ["0.weight", "0.bias"]
    made = hf.HyperNet(main, 4, generate="*").generate()
    assert torch.equal(made["1.weight"], torch.ones(8))


def test_the_uniform_bound_has_its_root_of_three():
    head = nn.Linear(40, 100 * 100)
    hf.init.hyperfan_in_uniform_(head.weight, (100, 100))
    assert_variance(head.weight, 1 / (100 * 40))


def test_d_k_is_read_from_the_right_axis():
    head = nn.Linear(40, 100 * 90)
    with pytest.raises(hf.HyperfanError, match=r"looks transposed: pass weight\.T"):
        hf.init.hyperfan_in_uniform_(head.weight.T, (100, 90))
    hf.init.hyperfan_in_uniform_(head.weight, (100, 90))
    assert_variance(head.weight, 1 / (90 * 40))


def test_fan_in_is_not_the_number_of_generated_weights():
    """d_i·d_j passed as fan-in makes the weights d_i times too small in variance."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(90, 100)), 40)
    assert_variance(net.generate()["0.weight"], 1 / 90)


@pytest.mark.parametrize("method", [m.name for m in hf.init.available()])
def test_no_head_is_dead(method):
    """A head whose output stayed zero for a whole run: here each generated tensor moves in the first step."""
    main = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.LayerNorm(12), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3))
    net = hf.HyperNet(main, 6, generate="*", init=method, heads="separate")
    before = {k: v.detach().clone() for k, v in net.generate().items()}
    nn.functional.cross_entropy(net(torch.randn(64, 12)), torch.randint(3, (64,))).backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    after = net.generate()
    for head in map(net.heads.head, net.heads.layouts):
        assert head.weight.grad.any()
    for name, old in before.items():
        assert not torch.equal(after[name], old), name


def test_wrong_shapes_do_not_pass_silently():
    """functional_call takes a (3, 4) weight for a (5, 4) one without a word, even with strict=True."""
    layer = nn.Linear(4, 5, bias=False)
    out = functional_call(layer, {"weight": torch.ones(3, 4)}, torch.ones(2, 4), strict=True)
    assert out.shape == (2, 3)
    skeleton = hf.HyperNet(nn.Sequential(layer), 3).skeleton
    with pytest.raises(hf.HyperfanError, match=r"'0\.weight' has shape \(3, 4\), the mainnet needs \(5, 4\)"):
        skeleton({"0.weight": torch.ones(3, 4)}, torch.ones(2, 4))


def test_nothing_runs_on_tensors_left_on_the_meta_device():
    """A Conv2d whose bias is on the meta device returns garbage on the CPU, with no error."""
    skeleton = hf.HyperNet(nn.Sequential(nn.Conv2d(1, 1, 1)), 3).skeleton
    given = {"0.weight": torch.ones(1, 1, 1, 1), "0.bias": torch.ones(1, device="meta")}
    with pytest.raises(hf.HyperfanError, match=r"is on meta while '0\.weight' is on cpu"):
        skeleton(given, torch.ones(1, 1, 2, 2))


def test_torchs_fans_are_not_ours():
    """torch.nn.init counts neither groups, nor stride, nor transposition."""
    layer = nn.ConvTranspose2d(64, 32, 4, stride=2, groups=2)
    theirs = nn.init._calculate_fan_in_and_fan_out(layer.weight)
    ours = hf.read(nn.Sequential(layer))["0.weight"].fans
    assert (ours.fan_in, ours.fan_out) == (32 * 16 / 4, 16 * 16)
    assert theirs != (ours.fan_in, ours.fan_out)
    assert ours == Fans.conv(64, 32, (4, 4), (2, 2), 2, transposed=True)


def test_second_moment_not_variance_after_a_relu():
    """Var(h) in place of E[h²] inflates the weights by 1/(1 − 1/π) = 1.47."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(100, 100)), 50, trunk=(2000,))
    h = net.codes().detach()
    # E[h²]/Var(h) = 1/(1 − 1/π); over 2000 units either scatters by √(5/2000).
    assert h.square().mean().item() / h.var().item() == pytest.approx(1.467, rel=5 * (5 / 2000) ** 0.5)
    assert_variance(net.generate()["0.weight"], 1 / 100)


def test_gain_belongs_to_the_layer_that_reads_the_activation():
    main = nn.Sequential(nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 50))
    by_layer = rows(hf.HyperNet(main, 5))
    assert by_layer["0.weight"].target == pytest.approx(1 / 50)
    assert by_layer["2.weight"].target == pytest.approx(gains("tanh").forward / 50)
