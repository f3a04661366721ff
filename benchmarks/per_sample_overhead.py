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
OWN_FORWARD = "… where the field is a module with a forward of its own: the ratio, whatever it is"
SMALL = "… of a policy, 64 samples with a code each: the ratio, whatever it is"
CALL = (
    "a call of a policy with one observation and one condition takes at most 1.5 times what code by hand takes, which "
    "has a head for each weight and bias too"
)
ONE_HEAD = "… over code by hand with one head for all weights and biases: the ratio, whatever it is"
CODES, COORDINATES, CONDITION = 16, 32**2, 64
FIELD_SIZES, POLICY_SIZES = (2, 32, 32, 32, 3), (8, 32, 32, 2)


class ByHand(nn.Module):
    """A trunk, a head for each weight and bias, the mainnet as batched products, or, for one code, as linear layers."""

    def __init__(
        self, sizes: tuple[int, ...], condition: int, trunk: int, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        self.trunk = nn.Sequential(nn.Linear(condition, trunk), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(trunk, out * features) for out, features in self.shapes)
        self.bias_heads = nn.ModuleList(nn.Linear(trunk, out) for out, _ in self.shapes)
        self.activation = activation

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        code, last = self.trunk(condition), len(self.shapes) - 1
        for i, (head, bias, shape) in enumerate(zip(self.heads, self.bias_heads, self.shapes, strict=True)):
            if code.ndim == 1:
                x = F.linear(x, head(code).view(shape), bias(code))
            else:
                x = torch.baddbmm(bias(code).unsqueeze(1), x, head(code).view(-1, *shape).mT)
            x = x if i == last else self.activation(x)
        return x


@torch.no_grad()
def start_alike(hand: ByHand, net: hf.HyperNet) -> None:
    """Let both have the same values: how long arithmetic takes hangs on them, as where many gradients are zero."""
    hand.trunk.load_state_dict(net.trunk.state_dict())
    heads = [head for pair in zip(hand.heads, hand.bias_heads, strict=True) for head in pair]
    for head, name in zip(heads, net.heads.names, strict=True):
        made = net.heads.head(name)
        head.weight.copy_(made.weight.T)
        head.bias.copy_(made.bias)


class OneHead(ByHand):
    """One head for all weights and biases, which are pieces of what it makes; for one code."""

    def __init__(
        self, sizes: tuple[int, ...], condition: int, trunk: int, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(sizes, condition, trunk, activation)
        self.numels = [out * features for out, features in self.shapes]
        self.heads = nn.Linear(trunk, sum(self.numels) + sum(sizes[1:]))
        self.sizes = sizes[1:]

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        made, last = self.heads(self.trunk(condition)).split([*self.numels, *self.sizes]), len(self.shapes) - 1
        for i, (weight, bias, shape) in enumerate(zip(made, made[len(self.shapes) :], self.shapes, strict=False)):
            x = F.linear(x, weight.view(shape), bias)
            x = x if i == last else self.activation(x)
        return x


class Field(nn.Module):
    """The layers of a field, in a module with a forward of its own."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def mainnet(sizes: tuple[int, ...], activation: type[nn.Module]) -> nn.Module:
    layers = [m for pair in itertools.pairwise(sizes) for m in (nn.Linear(*pair), activation())]
    return nn.Sequential(*layers[:-1])


def training(made: nn.Module, sizes: tuple[int, ...], rows: int, codes: int, condition: int, trunk: int):
    """Steps of both on the same data."""
    x, e = torch.rand(codes, rows, sizes[0]), torch.randn(codes, condition)
    y = torch.rand(codes, rows, sizes[-1])
    kind = "tanh" if sizes == POLICY_SIZES else "relu"
    net = hf.HyperNet(made, hf.Embedding(condition, given=True, per="net"), trunk=(trunk,), nonlinearity=kind)
    hand = ByHand(sizes, condition, trunk, getattr(torch, kind))
    start_alike(hand, net)
    ours, theirs = hf.AdamW(net, lr=1e-3), torch.optim.AdamW(hand.parameters(), lr=1e-3)

    def step(opt: torch.optim.Optimizer, run: Callable[[], Tensor]) -> None:
        opt.zero_grad()
        F.mse_loss(run(), y).backward()
        opt.step()

    one_row = rows == 1
    mine = (lambda: net(x.squeeze(1), embedding=e).unsqueeze(1)) if one_row else (lambda: net(x, embedding=e))
    torch.testing.assert_close(mine(), hand(x, e), rtol=1e-3, atol=1e-4)
    return {"ours": lambda: step(ours, mine), "theirs": lambda: step(theirs, lambda: hand(x, e))}


def calls(grad: bool):
    """Calls of all with one observation."""
    net = hf.HyperNet(mainnet(POLICY_SIZES, nn.Tanh), hf.Embedding(16, given=True, per="net"), trunk=(64,))
    hand, one_head = (kind(POLICY_SIZES, 16, 64, torch.tanh) for kind in (ByHand, OneHead))
    x, e = torch.randn(1, 8), torch.randn(16)

    def run(call: Callable[[], Tensor]) -> None:
        with torch.set_grad_enabled(grad):
            for _ in range(20):
                call()

    return {
        "ours": lambda: run(lambda: net(x, embedding=e)),
        "theirs": lambda: run(lambda: hand(x, e)),
        "one_head": lambda: run(lambda: one_head(x, e)),
    }


def measure(rounds: str) -> dict[str, Times]:
    """Seconds of each, in this process."""
    torch.manual_seed(0)
    field = FIELD_SIZES, COORDINATES, CODES, CONDITION, 128
    jobs = {
        "field": training(mainnet(FIELD_SIZES, nn.ReLU), *field),
        "field_own_forward": training(Field(FIELD_SIZES), *field),
        "small": training(mainnet(POLICY_SIZES, nn.Tanh), POLICY_SIZES, 1, 64, 16, 64),
        "call": calls(False),
        "call_with_gradients": calls(True),
    }
    return {name: interleave(functions, int(rounds)) for name, functions in jobs.items()}


def run(rounds: int = 60, processes: int = 3) -> bool:
    runs = pooled("per_sample_overhead", rounds, processes)
    claims = {"field": (FIELD, 1.1), "field_own_forward": (OWN_FORWARD, None), "small": (SMALL, None)}
    claims |= {"call": (CALL, 1.5), "call_with_gradients": (f"{CALL}, with gradients", 1.5)}
    holds = {
        name: compare_times(f"per_sample_{name}", claim, [times[name] for times in runs], limit)
        for name, (claim, limit) in claims.items()
    }
    for name in ("call", "call_with_gradients"):
        of_name = [times[name] for times in runs]
        compare_times(f"per_sample_{name}_one_head", ONE_HEAD, of_name, None, theirs="one_head")
    return all(holds.values())


if __name__ == "__main__":
    main("per_sample_overhead", run, measure)
