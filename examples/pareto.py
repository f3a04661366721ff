"""A Pareto front from one hypernet, PHN (Navon et al., 2021): a preference goes in, and a net that serves it comes out.

Two losses contradict each other: the same net should be f and g. At the preference (p, 1 − p) p·f + (1 − p)·g is best,
with the loss p·(1 − p)·E(f − g)². Reported is the loss beyond that, which is 0 all along a perfect front.
``python -m examples.pareto``
"""

import torch
from torch import Tensor, nn

import hyperfan as hf

INPUTS = 2


def teachers(x: Tensor) -> tuple[Tensor, Tensor]:
    """The two functions, (…, 2) → (…, 1)."""
    a, b = x.unbind(-1)
    return (torch.sin(2 * a) * b).unsqueeze(-1), (torch.cos(2 * b) + 0.5 * a).unsqueeze(-1)


def hypernet(code: int = 2) -> hf.HyperNet:
    """Weights and biases of an MLP from a preference between two losses, standardised."""
    mainnet = nn.Sequential(nn.Linear(INPUTS, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    return hf.HyperNet(mainnet, hf.Embedding(code, given=True, per="net"), trunk=(32,), generate="weights+biases")


def losses(net: nn.Module, preferences: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Both losses of the net of each preference (n,), and the least that their weighted sum can be."""
    made = net(x, embedding=(preferences * 12**0.5).unsqueeze(-1) * torch.tensor([1.0, -1.0]), shared=True)
    f, g = teachers(x)
    p = preferences + 0.5
    both = torch.stack([(made - target).square().mean((1, 2)) for target in (f, g)], -1)
    return both, p * (1 - p) * (f - g).square().mean()


def train(net: nn.Module, steps: int = 1500, lr: float = 1e-2) -> Tensor:
    """Train on random preferences; returns the two losses at five points of the front, and how far each is from it."""
    opt = hf.AdamW(net, lr=lr)
    for _ in range(steps):
        preferences, x = torch.rand(8) - 0.5, torch.randn(64, INPUTS)
        both, _ = losses(net, preferences, x)
        opt.zero_grad()
        (both * torch.stack([preferences + 0.5, 0.5 - preferences], -1)).sum(-1).mean().backward()
        opt.step()
    p = torch.linspace(0, 1, 5)
    with torch.no_grad():
        both, least = losses(net, p - 0.5, torch.randn(2000, INPUTS))
    return torch.column_stack([p, both, (both * torch.stack([p, 1 - p], -1)).sum(-1) - least])


if __name__ == "__main__":
    print("preference, loss of f, loss of g, weighted loss beyond the least possible")
    for row in train(hypernet()).tolist():
        print("  ".join(f"{value:.3f}" for value in row))
