"""Training by several processes beside one process on the whole batch, whose dense autograd is the oracle."""

import contextlib
import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from twins import build

import hyperfan as hf

STEPS, FULL_STEPS, SAMPLES = 20, 50, 2
"""Steps of training, in a quick run and with ``--full``, and samples of each process in a step."""
OPTIMISERS = {
    "SGD": {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.2, "nesterov": True},
    "AdamW": {"lr": 3e-4, "weight_decay": 0.2, "amsgrad": True},
    "Adam": {"lr": 3e-4},
    "torch AdamW": {"lr": 3e-4},
}
EMBEDDINGS: dict[str, dict[str, Any]] = {
    "fixed": {"embedding": hf.Embedding(7)},
    "trained": {"embedding": hf.Embedding(7, trainable=True)},
    "noise": {"embedding": hf.Embedding(7, noise=0.3)},
    "trunk": {"embedding": hf.Embedding(7), "trunk": (6,)},
    "task for each sample": {"embedding": hf.Embedding(7, tasks=3, trainable=True), "share": 1.0},
    "given for each sample": {"embedding": hf.Embedding(7, given=True), "share": 1.0},
}
GENERATORS: dict[str, dict[str, Any]] = {
    "shared": {},
    "separate": {"heads": "separate"},
    "all": {"generate": "weights+biases"},
    "chunks": {"heads": hf.Chunks()},
    "one chunk head": {"heads": hf.Chunks(one_head=True)},
    "low rank": {"heads": hf.LowRank(2)},
    "LoRA": {"heads": hf.LoRA(rank=2)},
}
PLANS = ("fastest", "factored", "dense")
CLIPPING = ("no clipping", "torch's clipping", "ours")


class Case(NamedTuple):
    optimiser: str
    embedding: str
    generator: str
    plan: str
    clipping: str
    accumulated: int
    uneven: bool
    steps: int = STEPS

    def net(self) -> hf.HyperNet:
        settings = {**EMBEDDINGS[self.embedding], **GENERATORS[self.generator]}
        if self.generator == "LoRA":
            settings.pop("share", None)
        if "trunk" in settings and "chunk" in self.generator:
            settings["heads"] = hf.Chunks(inputs=0)
        return build(**settings)


def cases(world: int, full: bool) -> list[Case]:
    """Every kind of embedding with every generator, or, in a quick run, a few of these; all else as it comes."""
    draws, drawn = random.Random(3), []
    for embedding, generator in itertools.product(EMBEDDINGS, GENERATORS):
        optimiser, plan, clipping = draws.choice([*OPTIMISERS]), draws.choice(PLANS), draws.choice(CLIPPING)
        if optimiser.startswith("torch"):
            plan, clipping = PLANS[0], CLIPPING[draws.randrange(2)]
        drawn.append(Case(optimiser, embedding, generator, plan, clipping, draws.choice((1, 2)), draws.random() < 0.5))
    return [case._replace(steps=FULL_STEPS) for case in drawn] if full else drawn[world::9]


def sizes(case: Case, step: int, world: int) -> list[int]:
    """Samples of each process."""
    return [SAMPLES + (rank if case.uneven and step % 10 == 9 else 0) for rank in range(world)]


def batch(case: Case, step: int, part: int, world: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels and conditions of all processes."""
    draws = torch.Generator().manual_seed(100 * step + part)
    n = sum(sizes(case, step, world))
    x = torch.randn(n, 4, generator=draws, dtype=torch.float64)
    y = torch.randint(3, (n,), generator=draws)
    if case.embedding.startswith("task"):
        return x, y, torch.randint(3, (n,), generator=draws)
    return x, y, torch.randn(n, 7, generator=draws, dtype=torch.float64)


def loss_of(case: Case, net: nn.Module, step: int, part: int, rank: int, world: int) -> Tensor:
    """The loss of one process, weighted such that the mean over processes is the mean over samples."""
    counts = sizes(case, step, world)
    mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
    x, y, condition = (t[mine] for t in batch(case, step, part, world))
    call: dict[str, Tensor] = {}
    if case.embedding.startswith("task"):
        call["task"] = condition
    if case.embedding.startswith("given"):
        call["embedding"] = per_tensor(net, condition)
    torch.manual_seed(1000 * step + 10 * part + rank)  # of the noise, which differs by process
    return F.cross_entropy(net(x, **call), y) * counts[rank] * world / sum(counts)


def per_tensor(net: nn.Module, condition: Tensor) -> Tensor:
    n = net.get_submodule("module" if hasattr(net, "require_backward_grad_sync") else "").embeddings.n
    return torch.stack([condition * (1 + 0.1 * i) for i in range(n)], 1)


def clip(case: Case, net: nn.Module, opt: torch.optim.Optimizer) -> None:
    if case.clipping == "ours" and isinstance(opt, hf.optim.optimiser.HyperNetOptimiser):
        opt.clip_grad_norm_(0.5)
    elif case.clipping != "no clipping":
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)


def train(
    case: Case,
    net: nn.Module,
    opt: torch.optim.Optimizer,
    world: int,
    ranks: range,
    no_sync: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Train on the parts of some ranks: of one, or, in one process, of all.

    A gradient that somebody holds stays as it was in later steps, whatever memory these are exchanged in.
    """
    held: list[tuple[Tensor, Tensor]] = []
    same = True
    for step in range(case.steps):
        opt.zero_grad()
        for part in range(case.accumulated):
            last = part == case.accumulated - 1
            for rank in ranks:
                with contextlib.nullcontext() if last else no_sync():
                    loss = loss_of(case, net, step, part, rank, world) / case.accumulated
                    (loss / len(ranks)).backward()
        same &= all(torch.equal(grad.to_dense(), copied) for grad, copied in held)
        clip(case, net, opt)
        grads = [p.grad for group in opt.param_groups for p in group["params"] if p.grad is not None]
        held = [(grad, grad.to_dense().clone()) for grad in grads]
        opt.step()
    assert same  # in the end, as the other processes go on


def oracle(case: Case, world: int) -> dict[str, Tensor]:
    """What one process learns with torch's optimiser and dense gradients."""
    net = case.net()
    kind = getattr(torch.optim, case.optimiser.removeprefix("torch "))
    train(case, net, kind(net.parameters(), **OPTIMISERS[case.optimiser]), world, range(world))
    return net.state_dict()
