"""Small jobs with a code for each sample, where the cost of Python shows, against code written by hand for them."""

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hyperfan as hf
from benchmarks.harness import Times, compare_times, interleave, main, pooled

FIELD = (
    "a training step of neural fields (16 codes of an encoder, each a ReLU field of width 32 on 32² coordinates of its "
    "own, a trunk, AdamW) takes at most 1.1 times what batched products written by hand take"
)
SMALL = "… of a policy, 64 samples with a code each: the ratio, whatever it is"
CALL = "a call of a policy with one observation and one condition, over code by hand: the ratio, whatever it is"
CODES, COORDINATES, CONDITION = 16, 32**2, 64
FIELD_SIZES, POLICY_SIZES = (2, 32, 32, 32, 3), (8, 32, 32, 2)


class ByHand(nn.Module):
    """A trunk, a head for each weight, and the mainnet as batched products, or, for one code, as linear layers."""

    def __init__(
        self, sizes: tuple[int, ...], condition: int, trunk: int, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        self.trunk = nn.Sequential(nn.Linear(condition, trunk), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(trunk, out * features) for out, features in self.shapes)
        self.biases = nn.ParameterList(torch.zeros(out) for out, _ in self.shapes)
        self.activation = activation

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        code, last = self.trunk(condition), len(self.shapes) - 1
        for i, (head, bias, shape) in enumerate(zip(self.heads, self.biases, self.shapes, strict=True)):
            if code.ndim == 1:
                x = F.linear(x, head(code).view(shape), bias)
            else:
                x = torch.baddbmm(bias, x, head(code).view(-1, *shape).mT)
            x = x if i == last else self.activation(x)
        return x


def mainnet(sizes: tuple[int, ...], activation: type[nn.Module]) -> nn.Module:
    layers = [m for pair in itertools.pairwise(sizes) for m in (nn.Linear(*pair), activation())]
    return nn.Sequential(*layers[:-1])


def training(sizes: tuple[int, ...], kind: type[nn.Module], rows: int, codes: int, condition: int, trunk: int):
    """Steps of both on the same data."""
    x, e = torch.rand(codes, rows, sizes[0]), torch.randn(codes, condition)
    y = torch.rand(codes, rows, sizes[-1])
    net = hf.HyperNet(mainnet(sizes, kind), hf.Embedding(condition, given=True, per="net"), trunk=(trunk,))
    hand = ByHand(sizes, condition, trunk, torch.relu if kind is nn.ReLU else torch.tanh)
    ours, theirs = hf.AdamW(net, lr=1e-3), torch.optim.AdamW(hand.parameters(), lr=1e-3)

    def step(opt: torch.optim.Optimizer, run: Callable[[], Tensor]) -> None:
        opt.zero_grad()
        F.mse_loss(run(), y).backward()
        opt.step()

    one_row = rows == 1
    mine = (lambda: net(x.squeeze(1), embedding=e).unsqueeze(1)) if one_row else (lambda: net(x, embedding=e))
    return {"ours": lambda: step(ours, mine), "theirs": lambda: step(theirs, lambda: hand(x, e))}


def calls(grad: bool):
    """Calls of both with one observation."""
    net = hf.HyperNet(mainnet(POLICY_SIZES, nn.Tanh), hf.Embedding(16, given=True, per="net"), trunk=(64,))
    hand, x, e = ByHand(POLICY_SIZES, 16, 64, torch.tanh), torch.randn(1, 8), torch.randn(16)

    def run(call: Callable[[], Tensor]) -> None:
        with torch.set_grad_enabled(grad):
            for _ in range(20):
                call()

    return {"ours": lambda: run(lambda: net(x, embedding=e)), "theirs": lambda: run(lambda: hand(x, e))}


def measure(rounds: str) -> dict[str, Times]:
    """Seconds of each, in this process."""
    torch.manual_seed(0)
    jobs = {
        "field": training(FIELD_SIZES, nn.ReLU, COORDINATES, CODES, CONDITION, 128),
        "small": training(POLICY_SIZES, nn.Tanh, 1, 64, 16, 64),
        "call": calls(False),
        "call_with_gradients": calls(True),
    }
    return {name: interleave(functions, int(rounds)) for name, functions in jobs.items()}


def run(rounds: int = 60, processes: int = 3) -> bool:
    runs = pooled("per_sample_overhead", rounds, processes)
    limits = {"field": (FIELD, 1.1), "small": (SMALL, None), "call": (CALL, None)}
    limits["call_with_gradients"] = (f"{CALL}, with gradients", None)
    holds = {
        name: compare_times(f"per_sample_{name}", claim, [times[name] for times in runs], limit)
        for name, (claim, limit) in limits.items()
    }
    return all(holds.values())


if __name__ == "__main__":
    main("per_sample_overhead", run, measure)
