"""Attention that does not divide by √d, as T5's: its queries start so that the logits have unit variance."""

import math

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import SIGMAS

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
    """Logits at 1; the mixture of T independent values at E[Σp²], which the plan bounds by 1.

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
    assert mixture.mean().item() < 1 + SIGMAS * error


def test_the_plan_names_what_divides_the_variance():
    x = torch.randn(2, TOKENS, WIDTH)
    rows = {row.tensor: row for row in hf.HyperNet(Attention(1.0), 16, example=x).plan.rows}
    assert rows["q.weight"].equation.startswith("v = gain/fan_in/logits")
    assert rows["q.weight"].target == pytest.approx(1 / WIDTH / HEAD)
    assert rows["k.weight"].target == pytest.approx(1 / WIDTH)
    out = {row.tensor: row for row in hf.HyperNet(Attention(1.0), 16, example=x, init="hyperfan-out").plan.rows}
    assert out["q.weight"].target == pytest.approx(1 / HEAD / HEAD)
