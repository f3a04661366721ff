"""Trunks with a life of their own, and mainnets with odd parameters."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import hyperfan as hf


def wide() -> nn.Sequential:
    return nn.Sequential(nn.Linear(200, 200))


def realised(net, calls=1):
    """fan_in·Var(W) in training, averaged over calls and tasks."""
    made = [net.generate(task=t)["0.weight"].var().item() for _ in range(calls) for t in range(20)]
    return 200 * sum(made) / len(made)


@pytest.mark.parametrize(
    "layers",
    [[nn.Dropout(0.5)], [nn.ReLU(), nn.Dropout(0.5)], [nn.LayerNorm(64), nn.GELU()]],
    ids=["dropout", "relu and dropout", "norm"],
)
def test_the_scale_is_that_of_training(layers):
    """Dropout doubles E[h²]; 800 generated matrices average its draws to about 2 %, and the measure over 64 to 4 %."""
    trunk = nn.Sequential(nn.Linear(16, 64), *layers)
    net = hf.HyperNet(wide(), hf.Embedding(16, tasks=20), trunk=trunk)
    assert realised(net, calls=40) == pytest.approx(1.0, rel=0.1)


def test_a_batch_norm_in_the_trunk_is_measured_as_it_will_run():
    main = nn.Sequential(*(nn.Linear(200, 200) for _ in range(16)))
    trunk = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64))
    net = hf.HyperNet(main, hf.Embedding(8, std=0.1), trunk=trunk, init_trunk=True)
    made = [200 * w.var().item() for w in net.train().generate().values()]
    assert made == pytest.approx([1.0] * 16, rel=0.03)  # 40 000 values each: five standard errors
    net.reset_parameters()
    assert int(net.trunk[1].num_batches_tracked) == 0


def test_a_batch_norm_on_a_single_code_says_so():
    trunk = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64))
    with pytest.raises(hf.HyperfanError, match="does not run on 1 codes in training mode"):
        hf.HyperNet(wide(), 8, trunk=trunk)


class Gate(nn.Module):
    """A trunk with a parameter and a buffer that no rule knows."""

    def __init__(self):
        super().__init__()
        self.linear, self.gate = nn.Linear(8, 5), nn.Parameter(torch.ones(5))
        self.register_buffer("shift", torch.ones(5))

    def forward(self, e):
        return self.linear(e) * self.gate + self.shift


def test_what_the_trunk_lacks_on_the_meta_device_is_said():
    with torch.device("meta"):
        main, trunk = wide(), Gate()
    net = hf.HyperNet(main, 8, trunk=trunk).to_empty(device="cpu")
    with pytest.raises(hf.HyperfanError, match=r"trunk\.gate, trunk\.shift came without values"):
        net.reset_parameters()


class Odd(nn.Module):
    """Parameters with the names of a container's methods, one of them a scalar."""

    def __init__(self):
        super().__init__()
        self.keys, self.scalar = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scalar * (x @ self.keys)


def test_odd_names_and_scalars():
    hf.rule(Odd)(lambda m: {"keys": hf.Use("weight", hf.Fans(3, 3)), "scalar": hf.Use("scale", start=1.0)})
    net = hf.HyperNet(Odd(), 4, generate="*", heads="separate", example=torch.zeros(1, 3))
    made = net.generate()
    assert made["scalar"].shape == ()
    assert made["scalar"].item() == 1.0
    assert net(torch.ones(2, 3)).shape == (2, 3)


def test_modes_of_the_mainnet_are_kept():
    main = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    main[1].eval()
    net = hf.HyperNet(main, 3)
    assert [m.training for m in net.skeleton.module] == [True, False, True]
    assert [m.training for m in net.freeze()] == [True, False, True]
    assert [m.training for m in net.eval().freeze()] == [False, False, False]


def test_plain_branch_ends_are_reset_small_too():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.ModuleList(nn.Linear(100, 100) for _ in range(32))
            self.b = nn.ModuleList(nn.Linear(100, 100) for _ in range(32))

        def forward(self, x):
            for a, b in zip(self.a, self.b, strict=True):
                x = x + b(torch.relu(a(x)))
            return x

    x = torch.randn(64, 100)
    net = hf.HyperNet(Residual(), 20, generate="a.*.weight", example=x)
    net.reset_parameters()
    assert net(x).square().mean().item() < 4  # (1 + 1/32)³² = 2.7, and finite width


def test_layers_under_old_style_hooks_do_not_disturb_the_others():
    pruned = prune.identity(nn.Linear(4, 4), "weight")
    net = hf.HyperNet(nn.Sequential(pruned, nn.ReLU(), nn.Linear(4, 2)), 3, generate="2.weight", init="m2")
    assert net(torch.ones(1, 4)).shape == (1, 2)


@pytest.mark.parametrize("width", [96, 100])
def test_a_trunk_with_batch_norm_never_sees_a_single_code(width):
    trunk = nn.Sequential(nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 32))
    condition = hf.Embedding(64, given=True, per="net")
    assert hf.HyperNet(nn.Linear(5, 4), condition, heads="separate", trunk=trunk).plan.rows[0].moment > 0
