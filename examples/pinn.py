"""A hyper-PINN (Belbute-Peres et al., 2021): a source goes in, and a net that solves Poisson's equation comes out.

−Δu = f on the unit square, u = 0 at its edge, for sums of sines f with random coefficients. In training no solution is
shown, only the equation's residual. The solution is known (it is manufactured): reported is the relative error of u
under unseen sources. ``python -m examples.pinn``
"""

import math

import torch
from torch import Tensor, nn

import hyperfan as hf

MODES = torch.tensor([[1, 1], [1, 2], [2, 1], [2, 2]]) * math.pi  # wave numbers of sources and solutions


def waves(points: Tensor) -> Tensor:
    """sin(k₁·x)·sin(k₂·y) of every mode, (points, 2) → (points, modes)."""
    return torch.sin(points.unsqueeze(-2) * MODES).prod(-1)


def hypernet() -> hf.HyperNet:
    """Weights and biases of a net from the coefficients of the solution, which tell the source."""
    mainnet = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    condition = hf.Embedding(len(MODES), given=True, per="net")
    return hf.HyperNet(mainnet, condition, trunk=(64,), generate="weights+biases")


def solution(net: nn.Module, coefficients: Tensor, points: Tensor) -> Tensor:
    """u = 16·x·(1 − x)·y·(1 − y)·N(x, y), zero at the edge, (sources, points, 2) → (sources, points)."""
    made = net(4 * points - 2, embedding=coefficients, grouped=True).squeeze(-1)
    return 16 * (points * (1 - points)).prod(-1) * made


def residual(net: nn.Module, coefficients: Tensor, points: Tensor) -> Tensor:
    """Δu + f over the scale of the modes, (sources, points), by differentiating twice."""
    x = points.expand(len(coefficients), -1, -1).clone().requires_grad_()
    (slope,) = torch.autograd.grad(solution(net, coefficients, x).sum(), x, create_graph=True)
    second = [torch.autograd.grad(slope[..., i].sum(), x, create_graph=True)[0][..., i] for i in range(2)]
    source = (coefficients * MODES.square().sum(-1)) @ waves(points).mT
    return (sum(second) + source) / (4 * math.pi**2)


def train(net: nn.Module, steps: int = 1000, lr: float = 3e-4) -> float:
    """Train on random sources; returns ‖u − u*‖/‖u*‖ under unseen ones."""
    opt = hf.AdamW(net, lr=lr)
    for _ in range(steps):
        opt.zero_grad()
        residual(net, torch.randn(8, len(MODES)), torch.rand(48, 2)).square().mean().backward()
        opt.step()
    coefficients, points = torch.randn(100, len(MODES)), torch.rand(500, 2)
    exact, made = coefficients @ waves(points).mT, solution(net, coefficients, points.expand(100, -1, -1))
    return ((made - exact).norm() / exact.norm()).item()


if __name__ == "__main__":
    print(f"relative error of solutions under unseen sources: {train(hypernet()):.3f}")
