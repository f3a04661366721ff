"""Attention: logits start with unit variance, also without a √d as in T5; mixtures have a scale that is planned for."""

import math

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import SIGMAS, assert_mean
from hyperfan.formulas.gains import attention_mean_square
from hyperfan.mainnet import read

WIDTH, HEAD, TOKENS = 64, 32, 8


class Attention(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.q, self.k, self.v = (nn.Linear(WIDTH, HEAD) for _ in range(3))
        self.out = nn.Linear(HEAD, WIDTH)

    def parts(self, x):
        logits = self.q(x) @ self.k(x).mT * self.scale
        weights = logits.softmax(-1)
        return logits, weights, weights @ self.v(x)

    def forward(self, x):
        return self.out(self.parts(x)[2])


@pytest.mark.parametrize("generate", ["weights", "weights+biases"])
@pytest.mark.parametrize("scale", [1.0, HEAD**-0.5])
def test_logits_and_the_mixture_start_as_the_plan_says(scale, generate):
    """Logits at 1; the mixture of T independent values at E[Σp²], the lower bound of what the plan takes.

    Errors: a net is one draw, and its q·k has HEAD × WIDTH² products of two weights, in pairs.
    """
    x = torch.randn(200, TOKENS, WIDTH, dtype=torch.float64)
    seen = []
    for seed in range(8):
        torch.manual_seed(seed)
        net = hf.HyperNet(Attention(scale).double(), 16, example=x[:2], generate=generate)
        with torch.no_grad():
            logits, weights, mixture = net.freeze().parts(x)
        seen.append([t.square().mean().item() for t in (logits, mixture)] + [weights.square().sum(-1).mean().item()])
    logits, mixture, concentration = torch.tensor(seen).T
    error = math.sqrt(2 * (2 / WIDTH + 1 / HEAD) / len(seen))
    assert logits.mean().item() == pytest.approx(1, abs=SIGMAS * error)
    if generate == "weights":  # a bias is common to all values, and no mean of them is smaller
        assert mixture.mean().item() == pytest.approx(concentration.mean().item(), rel=SIGMAS * error)
        assert_mean(concentration, attention_mean_square(TOKENS) ** 2)  # e/(e + T − 1)
    assert mixture.mean().item() < 1 + SIGMAS * error


def test_the_plan_names_what_divides_the_variance():
    x = torch.randn(2, TOKENS, WIDTH)
    rows = {row.tensor: row for row in hf.HyperNet(Attention(1.0), 16, example=x).plan.rows}
    assert rows["q.weight"].equation.startswith("v = gain/fan_in/logits")
    assert rows["q.weight"].target == pytest.approx(1 / WIDTH / HEAD)
    assert rows["k.weight"].target == pytest.approx(1 / WIDTH)
    out = {row.tensor: row for row in hf.HyperNet(Attention(1.0), 16, example=x, init="hyperfan-out").plan.rows}
    assert out["q.weight"].target == pytest.approx(1 / HEAD / HEAD)


class Fused(Attention):
    def forward(self, x):
        return self.out(nn.functional.scaled_dot_product_attention(self.q(x), key=self.k(x), value=self.v(x)))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.attention = nn.Linear(WIDTH, WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        x = self.first(x)
        return self.attention(x, x, x)[0]


@pytest.mark.parametrize("tokens", [1, TOKENS])
@pytest.mark.parametrize("net", [Attention(1.0), Fused(1.0), Packed()], ids=["written out", "fused", "packed"])
def test_what_reads_a_mixture_makes_up_for_the_number_of_its_values(net, tokens):
    spec = read(net, torch.randn(2, tokens, WIDTH))
    (out,) = (t for t in spec if t.name.endswith(("out.weight", "out_proj.weight")))
    assert out.consumes.gains.forward == pytest.approx(1 / attention_mean_square(tokens))
    assert out.consumes.name == ("linear" if tokens == 1 else "attention")


def test_positions_alike_or_independent_are_off_by_the_same_factor():
    """The square root of e/(e + T − 1), upwards or downwards: what the plan takes lies in the middle."""
    for alike, target in ((True, 1 / attention_mean_square(TOKENS)), (False, attention_mean_square(TOKENS))):
        x = torch.randn(100, 1 if alike else TOKENS, WIDTH).expand(100, TOKENS, WIDTH)
        seen = []
        for seed in range(8):
            torch.manual_seed(seed)
            net = hf.HyperNet(Attention(HEAD**-0.5), 16, example=x[:2]).freeze()
            with torch.no_grad():
                seen.append(net(x).square().mean())
        assert_mean(torch.stack(seen), target)
