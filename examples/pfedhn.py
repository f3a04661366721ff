"""Personalised federated learning, pFedHN (Shamsian et al., 2021): each client gets its net from a server's hypernet.

The server sends a client its weights θ. The client trains them on data that stay with it and sends back the change
Δ = θ − θ′. The hypernet steps along (∂θ/∂φ)ᵀ·Δ, one vector–Jacobian product. ``python -m examples.pfedhn``
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import hyperfan as hf

INPUTS, CLASSES, GROUPS = 8, 4, 4


MAINNET = nn.Sequential(nn.Linear(INPUTS, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def clients(count: int, samples: int = 48) -> tuple[Tensor, Tensor]:
    """Inputs (client, sample, 8) and labels; clients are of four kinds, which the server is not told."""
    teachers = torch.randn(GROUPS, INPUTS, CLASSES)
    x, own = torch.randn(count, samples, INPUTS), 0.3 * torch.randn(count, INPUTS, CLASSES)
    return x, (x @ (teachers[torch.arange(count) % GROUPS] + own)).argmax(-1)


def hypernet(count: int) -> hf.HyperNet:
    """Weights and biases of each client's net, from an embedding that is trained with the hypernet."""
    table = hf.Embedding(16, tasks=count, trainable=True, per="net")
    return hf.HyperNet(MAINNET, table, trunk=(64,), generate="weights+biases")


def change(sent: dict[str, Tensor], x: Tensor, y: Tensor, steps: int = 5, lr: float = 0.05) -> list[Tensor]:
    """What a client sends back: its weights before training less those after."""
    own = {name: w.detach().clone().requires_grad_() for name, w in sent.items()}
    opt = torch.optim.SGD(own.values(), lr=lr, momentum=0.9)
    for _ in range(steps):
        opt.zero_grad()
        cross_entropy(functional_call(MAINNET, own, x), y).backward()
        opt.step()
    return [sent[name].detach() - w.detach() for name, w in own.items()]


def train(net: nn.Module, x: Tensor, y: Tensor, rounds: int = 400, lr: float = 3e-3) -> float:
    """Rounds of one client each, on two thirds of its samples; returns the accuracy of clients' nets on the rest."""
    opt, part = hf.AdamW(net, lr=lr), 2 * x.shape[1] // 3
    for i in range(rounds):
        client = i % len(x)
        sent = net.generate(task=client)
        opt.zero_grad()
        torch.autograd.backward(list(sent.values()), change(sent, x[client, :part], y[client, :part]))
        opt.step()
    made = [functional_call(MAINNET, net.generate(task=i), x[i, part:]) for i in range(len(x))]
    return (torch.stack(made).argmax(-1) == y[:, part:]).float().mean().item()


if __name__ == "__main__":
    x, y = clients(20)
    print(f"accuracy of clients' own nets: {train(hypernet(20), x, y):.3f}; guessing has {1 / CLASSES}")
