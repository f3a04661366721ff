"""Twenty layers: hyperfan-in keeps activations at scale, hyperfan-out gradients. This is what the library is for."""

import pytest
import torch
from torch import nn

import hyperfan as hf
from hyperfan.mainnet.gains import gains
from products import only_in_full

DEPTH = 20


def dense(activation):
    def make():
        layers = [m for _ in range(DEPTH) for m in (nn.Linear(400, 400), activation())]
        return nn.Sequential(*layers[:-1]), torch.randn(64, 400)

    return make


def convolutions(activation, **options):
    """Twenty 3×3 convolutions on a torus, so that no border loses variance."""

    def make():
        conv = [
            nn.Conv2d(192, 192, 3, padding=1, padding_mode="circular", **{k: v(i) for k, v in options.items()})
            for i in range(DEPTH)
        ]
        layers = [m for c in conv for m in (c, activation())]
        return nn.Sequential(*layers[:-1]), torch.randn(2, 192, 8, 8)

    return make


def separable():
    """Depthwise and pointwise in turn, as in MobileNet."""
    layers = []
    for _ in range(DEPTH // 2):
        layers += [nn.Conv2d(128, 128, 3, padding=1, padding_mode="circular", groups=128), nn.ReLU()]
        layers += [nn.Conv2d(128, 128, 1), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), torch.randn(4, 128, 16, 16)


NETS = {
    "linear": dense(nn.Identity),
    "tanh": dense(nn.Tanh),
    "relu": dense(nn.ReLU),
    "conv": convolutions(nn.ReLU),
    "grouped": convolutions(nn.ReLU, groups=lambda i: 4),
    "strided": convolutions(nn.ReLU, stride=lambda i: 2 if i in (5, 10, 15) else 1),
    "separable": separable,
}


def mean_squares(net: nn.Module, x: torch.Tensor) -> tuple[list[float], list[float]]:
    """Of every layer's pre-activation, and of the gradient that reaches it, in forward order."""
    outputs = []
    for layer in net:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.register_forward_hook(lambda _m, _i, out: outputs.append(out))
    y = net(x)
    grads = torch.autograd.grad(y, outputs, torch.randn_like(y))
    return [o.square().mean().item() for o in outputs], [g.square().mean().item() for g in grads]


def average_ratio(make, init: str, which: int) -> float:
    """Last over first mean square of activations, or first over last of gradients, averaged over seeds.

    The theory is about the expectation over weights, which an arithmetic mean estimates.
    """
    ratios = []
    for seed in range(4):
        torch.manual_seed(seed)
        main, x = make()
        net = hf.HyperNet(main, 50, init=init).freeze()
        seen = mean_squares(net, x)[which]
        ratios.append(seen[-1] / seen[0] if which == 0 else seen[0] / seen[-1])
    return torch.tensor(ratios, dtype=torch.float64).mean().item()


@pytest.mark.parametrize("name", only_in_full(NETS, [*NETS][::2]))
def test_hyperfan_in_keeps_activations(name):
    assert 0.5 < average_ratio(NETS[name], "hyperfan-in", 0) < 2


@pytest.mark.parametrize("name", only_in_full(NETS, [*NETS][1::2]))
def test_hyperfan_out_keeps_gradients(name):
    assert 0.5 < average_ratio(NETS[name], "hyperfan-out", 1) < 2


@pytest.mark.parametrize(("init", "per_layer"), [("xavier-fan-in", 400.0), ("xavier-fan-out", 50 / 400)])
def test_classical_init_does_not(init, per_layer):
    """What is being mended: fan-in on the head explodes by d_j per layer, fan-out vanishes by d_i/d_k."""

    def ten_layers():
        return nn.Sequential(*(nn.Linear(400, 400) for _ in range(10))), torch.randn(64, 400)

    assert average_ratio(ten_layers, init, 0) ** (1 / 9) == pytest.approx(per_layer, rel=0.2)


@pytest.mark.parametrize("told", ["by example", "by name", "by layer"])
def test_hyperfan_out_keeps_gradients_however_it_learns_of_the_nonlinearity(told):
    main, x = dense(nn.Tanh)()

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = main

        def forward(self, x):
            return self.inner(x)

    names = {f"inner.{i}": "tanh" for i in range(0, 2 * DEPTH - 2, 2)}
    how = {"by example": {"example": x}, "by name": {"nonlinearity": "tanh"}, "by layer": {"nonlinearity": names}}[told]
    grads = mean_squares(hf.HyperNet(Wrapped(), 50, init="hyperfan-out", **how).freeze().inner, x)[1]
    assert 0.5 < grads[0] / grads[-1] < 2


def test_tanh_gradients_need_the_gain_at_the_variance_that_is_there():
    """With the gain for unit variance in every layer the gradients of 20 tanh layers grow eightfold."""
    main, x = dense(nn.Tanh)()
    for layer in main:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=(gains("tanh").backward / 400) ** 0.5)
            nn.init.zeros_(layer.bias)
    nn.init.normal_(main[0].weight, std=400**-0.5)
    grads = mean_squares(main, x)[1]
    assert grads[0] / grads[-1] > 5


def test_residual_branches_stay_bounded():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList(
                nn.Sequential(nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 200)) for _ in range(64)
            )

        def forward(self, x):
            for branch in self.branches:
                x = x + branch(x)
            return x

    x = torch.randn(64, 200)
    net = hf.HyperNet(Residual(), 50, example=x)
    growth = net(x).square().mean().item()
    # 64 branches of 200 ReLU units each multiply by 1 + 1/64, with a scatter of √(5/200)/64; five times that of all.
    assert growth == pytest.approx((1 + 1 / 64) ** 64, rel=5 * (64 * 5 / 200) ** 0.5 / 64)


def test_a_transformer_starts_at_scale():
    layer = nn.TransformerEncoderLayer(128, 4, 256, norm_first=True, batch_first=True, dropout=0.0)
    main = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    x = torch.randn(8, 10, 128)
    net = hf.HyperNet(main, 30, example=x)
    # Twelve branches add at most e − 1 to the input's 1; attention averages, and so adds less.
    assert 1 < net(x).square().mean().item() < 2.72
