"""What each example reaches, beside a hypernet written by hand in plain torch, both at their best learning rates.

By hand means what most people write: the same trunk, an ``nn.Linear`` for every generated tensor, as torch starts it
(for SIREN as its authors' code does), and batched products. Both train with AdamW on the same data, at every rate of a
grid, and the best of each is compared.
"""

import importlib
import itertools
import json
import math
import statistics
import sys
import unittest.mock
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import hyperfan as hf
from benchmarks.harness import RESULTS, machine, main, store

SEEDS = 8
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
MAX_RATIO = 1.1
"""Our error over that by hand, in the geometric mean over seeds."""
FLOOR = 1 / 384
"""Smallest error that counts, which is one letter of LoRA's test: below it both have solved the job."""


class ByHand(nn.Module):
    """A trunk, a head for each tensor of a chain of layers, and batched products."""

    def __init__(self, mainnet: nn.Sequential, trunk: nn.Module, code: int) -> None:
        super().__init__()
        self.layers, self.trunk = list(mainnet), trunk
        self.shapes = {name: p.shape for name, p in mainnet.named_parameters()}
        self.heads = nn.ModuleList(nn.Linear(code, shape.numel()) for shape in self.shapes.values())

    def weights(self, condition: Tensor) -> dict[str, Tensor]:
        """Conditions (n, size) → tensors (n, …)."""
        code = self.trunk(condition)
        pairs = zip(self.heads, self.shapes.items(), strict=True)
        return {name: head(code).view(-1, *shape) for head, (name, shape) in pairs}

    def forward(self, x: Tensor, embedding: Tensor, shared: bool = False, grouped: bool = False) -> Tensor:
        made = self.weights(embedding)
        x = x.expand(len(embedding), *x.shape) if shared else x
        for i, layer in enumerate(self.layers):
            linear = isinstance(layer, nn.Linear)
            x = torch.baddbmm(made[f"{i}.bias"].unsqueeze(1), x, made[f"{i}.weight"].mT) if linear else layer(x)
        return x


class TasksByHand(ByHand):
    """A hypernet by hand with a table of embeddings, one for each task."""

    def __init__(self, mainnet: nn.Sequential, trunk: nn.Module, code: int, tasks: int, size: int) -> None:
        super().__init__(mainnet, trunk, code)
        self.table = nn.Embedding(tasks, size)

    def generate(self, task: int) -> dict[str, Tensor]:
        return {name: w[0] for name, w in self.weights(self.table.weight[task : task + 1]).items()}


class LSTMByHand(nn.Module):
    """The HyperLSTM of the example with heads by hand."""

    def __init__(self, inputs: int, hidden: int, code: int = 8) -> None:
        super().__init__()
        self.hidden, self.small = hidden, nn.LSTMCell(inputs + hidden, code)
        self.heads = nn.ModuleList(nn.Linear(code, 4 * hidden * size) for size in (inputs, hidden))
        self.bias = nn.Parameter(torch.zeros(4 * hidden))

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(len(x), self.hidden)
        small, outputs = None, []
        for step in x.unbind(1):
            small = self.small(torch.cat([step, h], 1), small)
            gates = self.bias
            for head, value in zip(self.heads, (step, h), strict=True):
                weight = head(small[0]).view(len(x), 4 * self.hidden, -1)
                gates = gates + (weight @ value.unsqueeze(-1)).squeeze(-1)
            i, f, g, o = gates.chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


class LoRAByHand(nn.Module):
    """Updates of rank 4 of a frozen model: A as torch starts a head, B from a head of zeros."""

    def __init__(self, model: nn.Module, size: int = 16, rank: int = 4, alpha: float = 8.0) -> None:
        super().__init__()
        self.model, self.scale, self.trunk = [model], alpha / rank, mlp(size, 64)
        named = {n: p for n, p in model.named_parameters() if n.endswith(("q_proj.weight", "v_proj.weight"))}
        self.base, self.rank = named, rank
        self.a = nn.ModuleList(nn.Linear(64, rank * p.shape[1]) for p in named.values())
        self.b = nn.ModuleList(nn.Linear(64, rank * p.shape[0]) for p in named.values())
        for head in self.b:
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, asked: Tensor, embedding: Tensor, grouped: bool) -> Tensor:
        codes, outputs = self.trunk(embedding), []
        for code, tokens in zip(codes, asked, strict=True):
            pairs = zip(self.base.items(), self.a, self.b, strict=True)
            made = {
                name: p + self.scale * b(code).view(-1, self.rank) @ a(code).view(self.rank, -1)
                for (name, p), a, b in pairs
            }
            outputs.append(functional_call(self.model[0], made, (tokens,)))
        return torch.stack(outputs)


def mlp(inputs: int, *widths: int) -> nn.Sequential:
    """Linear layers with ReLU after each."""
    sizes = [inputs, *widths]
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*(layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU())))


def torch_adamw(net: nn.Module, lr: float) -> torch.optim.Optimizer:
    """For a hypernet by hand, in place of ours."""
    return torch.optim.AdamW(net.parameters(), lr=lr)


def as_for_fields_(net: ByHand) -> None:
    """Start heads as the code of SIREN's authors does, which is better there than torch's own start."""
    for head, shape in zip(net.heads, net.shapes.values(), strict=True):
        nn.init.kaiming_normal_(head.weight)
        fan = shape[1] if len(shape) == 2 else head.in_features
        with torch.no_grad():
            head.weight.mul_(0.01)
            head.bias.uniform_(-1 / fan, 1 / fan)


Reach = Callable[[bool, float], float]
"""Build ours, or that by hand, and train it at a rate: the error that it reaches."""


def siren(e: Any) -> Reach:
    seen, unseen = e.pictures(512), e.pictures(64)

    def reach(ours: bool, rate: float) -> float:
        net = e.hypernet(seen)
        if not ours:
            field = nn.Sequential(nn.Linear(2, 32), e.Sine(), nn.Linear(32, 32), e.Sine(), nn.Linear(32, 1))
            net = ByHand(field, net.trunk, 32)
            as_for_fields_(net)
        return e.train(net, seen, unseen, steps=200, lr=rate)

    return reach


def pfedhn(e: Any) -> Reach:
    x, y = e.clients(20, samples=96)

    def reach(ours: bool, rate: float) -> float:
        net = e.hypernet(20) if ours else TasksByHand(e.MAINNET, mlp(16, 64), 64, 20, 16)
        return 1 - e.train(net, x, y, rounds=200, lr=rate)

    return reach


def pareto(e: Any) -> Reach:
    def reach(ours: bool, rate: float) -> float:
        mainnet = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        net = e.hypernet() if ours else ByHand(mainnet, mlp(2, 32), 32)
        return e.train(net, steps=400, lr=rate)[:, -1].mean().item()

    return reach


def pinn(e: Any) -> Reach:
    def reach(ours: bool, rate: float) -> float:
        mainnet = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        return e.train(e.hypernet() if ours else ByHand(mainnet, mlp(4, 64), 64), steps=300, lr=rate)

    return reach


def hyperlstm(e: Any) -> Reach:
    def reach(ours: bool, rate: float) -> float:
        cell = e.HyperLSTM(2, 16) if ours else LSTMByHand(2, 16)
        losses = e.train(nn.Sequential(cell, nn.Linear(16, 2)), steps=80, lr=rate)
        return statistics.mean(losses[-20:])

    return reach


def lora(e: Any) -> Reach:
    model, vectors = e.pretrained(), torch.randn(len(e.TASKS), 16)

    def reach(ours: bool, rate: float) -> float:
        return 1 - e.train(e.hypernet(model) if ours else LoRAByHand(model), vectors, steps=30, lr=rate)

    return reach


JOBS: Mapping[str, tuple[Callable[[Any], Reach], str]] = {
    "siren": (siren, "error on unseen pictures over their variance"),
    "pfedhn": (pfedhn, "error rate of clients' nets"),
    "pareto": (pareto, "weighted loss beyond the least possible"),
    "pinn": (pinn, "relative error of the solution"),
    "hyperlstm": (hyperlstm, "cross-entropy, mean of the last 20 steps"),
    "lora": (lora, "letters that are wrong"),
}


def compared(name: str) -> dict[str, Any]:
    """Errors of ours and of that by hand, by rate and seed, and the ratio of the best."""
    build, what = JOBS[name]
    e = importlib.import_module(f"examples.{name}")
    errors: dict[str, dict[str, list[float]]] = {who: {f"{r:g}": [] for r in RATES} for who in ("ours", "by hand")}
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        reach = build(e)
        for rate in RATES:
            for who in errors:
                torch.manual_seed(100 + seed)
                with unittest.mock.patch.object(hf, "AdamW", hf.AdamW if who == "ours" else torch_adamw):
                    found = reach(who == "ours", rate)
                errors[who][f"{rate:g}"].append(found if math.isfinite(found) else math.inf)
    result = {"what": what, **best_of(errors), "errors": errors}
    told = [f"{who} {result['mean'][who]:.3g} at {result['best_rate'][who]}" for who in errors]
    low, high = result["range"]
    print(f"{name}: {what}: {', '.join(told)}; ratio {result['ratio']:.3g} [{low:.3g}, {high:.3g}]", flush=True)
    return result


def best_of(errors: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """The best rate of each, its mean error over seeds, and the ratio of ours to that by hand with its range."""
    best = {who: min(rates, key=lambda r: statistics.mean(rates[r])) for who, rates in errors.items()}
    pairs = zip(errors["ours"][best["ours"]], errors["by hand"][best["by hand"]], strict=True)
    ratios = [max(a, FLOOR) / max(b, FLOOR) for a, b in pairs]
    means = {who: statistics.mean(errors[who][best[who]]) for who in errors}
    middle, ends = statistics.geometric_mean(ratios), [min(ratios), max(ratios)]
    return {"best_rate": best, "mean": means, "ratio": middle, "range": ends}


def run() -> bool:
    """All examples, or those that the command names; results of the others stay as they are."""
    names = sys.argv[1:] or list(JOBS)
    path = RESULTS / machine() / "examples_by_hand.json"
    known = json.loads(path.read_text())["found"] if path.exists() else {}
    claim = "an example reaches what a hypernet by hand does, or more, each at its best rate"
    holds = {}
    for name in names:
        known[name] = compared(name)
        found = {each: known[each] for each in JOBS if each in known}
        holds = {each: result["ratio"] <= MAX_RATIO for each, result in found.items()}
        store("examples_by_hand", {"claim": claim, "seeds": SEEDS, "limit": MAX_RATIO, "holds": holds, "found": found})
    return all(holds[name] for name in names)


if __name__ == "__main__":
    main("examples_by_hand", run)
