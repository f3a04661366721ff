"""Whether a mainnet is as torch drew it: never a false alarm on a fresh one, and a trained one is recognised."""

import pytest
import torch
from torch import nn

from hyperfan.mainnet.trained_values import first_trained_layer, trained_biases

FRESH = {
    "linear": lambda: nn.Sequential(nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 3)),
    "tiny": lambda: nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2)),
    "conv": lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.ConvTranspose2d(8, 6, 2, groups=2)),
    "recurrent": lambda: nn.Sequential(nn.LSTM(5, 7, 2), nn.GRUCell(4, 3)),
    "attention": lambda: nn.MultiheadAttention(8, 2),
    "bilinear": lambda: nn.Bilinear(5, 6, 7),
    "double": lambda: nn.Sequential(nn.Linear(30, 20), nn.Conv1d(3, 4, 5), nn.LSTM(5, 7)).double(),
    "half": lambda: nn.Linear(300, 300).bfloat16(),
    "zero biases": lambda: nn.Sequential(nn.Linear(30, 20), nn.Embedding(4, 5), nn.LayerNorm(20)),
}


@pytest.mark.parametrize("build", FRESH.values(), ids=FRESH)
def test_what_torch_draws_is_fresh(build):
    for seed in range(20):
        torch.manual_seed(seed)
        assert first_trained_layer(build()) is None


def train(net: nn.Module, steps: int = 30) -> nn.Module:
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(64, 12)
    for _ in range(steps):
        optimiser.zero_grad()
        (net(x) - x[:, :3].sin()).square().mean().backward()
        optimiser.step()
    return net


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))


def test_a_trained_net_is_recognised_by_the_range_of_a_single_layer():
    torch.manual_seed(0)
    net = train(small())
    assert first_trained_layer(net) == "0.weight"
    found = trained_biases(net, ["0.bias", "2.bias"])
    assert list(found) == ["0.bias", "2.bias"]
    assert "'0.weight' is not as torch draws it" in found["2.bias"]


def test_weight_decay_is_recognised_by_the_mean_square():
    net = small()
    with torch.no_grad():
        net[0].weight.mul_(0.7)
    assert first_trained_layer(net) == "0.weight"


def test_a_constant_was_set_by_someone():
    """0.5 is one of the values that torch draws from U(−1, 1), and its square no more than a draw of four may have."""
    net = nn.Linear(1, 4)
    nn.init.constant_(net.bias, 0.5)
    assert first_trained_layer(net) == "bias"


def test_values_that_torch_draws_have_its_mean_square_too():
    """Each of these can be drawn; that all are in the inner half of the range cannot."""
    net, drawn = small(), nn.Linear(12, 400).weight.detach()
    with torch.no_grad():
        net[0].weight.copy_(drawn[drawn.abs() < 12**-0.5 / 2][: net[0].weight.numel()].view_as(net[0].weight))
    assert first_trained_layer(net) == "0.weight"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_small_step_within_the_range_is_recognised(dtype):
    """Of the 40 values of a bias, and of no others: it would stay unseen with probability 2⁻⁴⁰."""
    torch.manual_seed(0)
    net = small()
    assert first_trained_layer(net.double()) is None
    net.to(dtype)
    assert first_trained_layer(net) is None
    with torch.no_grad():
        net[0].bias.mul_(0.999).sub_(1e-5 * torch.randn_like(net[0].bias))
    assert net[0].bias.abs().max() < 12**-0.5
    assert first_trained_layer(net) == "0.bias"


def test_half_precision_cannot_tell_and_so_may_be_trained():
    net = nn.Sequential(nn.Linear(12, 40), nn.Linear(40, 3)).bfloat16()
    assert "bfloat16 is too coarse" in trained_biases(net, ["0.bias"])["0.bias"]


def test_every_fan_in_is_drawn_as_expected():
    for fan_in in range(1, 400):
        assert first_trained_layer(nn.Linear(fan_in, 3)) is None
    for fan_in in range(1, 60):
        assert first_trained_layer(nn.Linear(fan_in, 3, dtype=torch.float64)) is None
    with torch.device("meta"):
        assert first_trained_layer(small()) is None


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(3))


def test_zeros_and_absent_values_have_nothing_to_lose_and_unknown_layers_may_have():
    net = train(small())
    nn.init.zeros_(net[2].bias)
    assert list(trained_biases(net, ["0.bias", "2.bias"])) == ["0.bias"]
    assert not trained_biases(net.to("meta"), ["0.bias", "2.bias"])
    assert "is not known" in trained_biases(nn.Sequential(nn.Linear(3, 3), Shifted()), ["1.bias"])["1.bias"]
