"""A training step of the paper's MNIST hypernet beside one by hand, in time, and beside all libraries, in memory.

One fixed embedding and a head for each weight, so that all have the same parameters. By hand: an ``nn.Linear`` for each
weight, ``torch.func.functional_call`` and torch's fused optimiser. Times of other libraries are in ``peer_step``.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from hypernn.torch import TorchLinearHyperNetwork
from torch import Tensor, nn
from torch.func import functional_call

import hyperfan as hf
from benchmarks.harness import conclude, interleave, main, medians, peak_bytes, store, summary
from benchmarks.peer_step import one_embedding
from benchmarks.peers import ADAM_RATE, EMBEDDING, HEAD_RATE, Rule, Trainer, batch, classical, hyperlight, hypnettorch
from benchmarks.training_step import step
from hyperfan.models import mnist_net

Build = Callable[[Tensor, Tensor, Rule], Trainer]


def ours(x: Tensor, y: Tensor, rule: Rule) -> Trainer:
    net = hf.HyperNet(mnist_net(), one_embedding())
    opt = hf.SGD(net, lr=HEAD_RATE) if rule == "sgd" else hf.Adam(net, lr=ADAM_RATE)
    return Trainer(functools.partial(step, net, opt, x, y), sum(p.numel() for p in net.parameters()))


def by_hand(x: Tensor, y: Tensor, rule: Rule) -> Trainer:
    mainnet, code = mnist_net(), torch.randn(EMBEDDING)
    shapes = {name: p.shape for name, p in mainnet.named_parameters() if p.ndim == 2}
    heads = nn.ModuleList(nn.Linear(EMBEDDING, shape.numel()) for shape in shapes.values())
    biases = {name: p for name, p in mainnet.named_parameters() if p.ndim == 1}

    def logits() -> Tensor:
        made = {name: head(code).view(shape) for head, (name, shape) in zip(heads, shapes.items(), strict=True)}
        return functional_call(mainnet, {**made, **biases}, (x,))

    return fused_trainer([*heads.parameters(), *biases.values()], logits, y, rule)


def hyper_nn(x: Tensor, y: Tensor, rule: Rule) -> Trainer:
    mainnet = mnist_net()
    size = sum(p.numel() for p in mainnet.parameters())
    net = TorchLinearHyperNetwork(mainnet, size, EMBEDDING, num_embeddings=1, weight_chunk_dim=size)
    return fused_trainer([p for p in net.parameters() if p.numel()], lambda: net(x), y, rule)


def fused_trainer(parameters: list[nn.Parameter], logits: Callable[[], Tensor], y: Tensor, rule: Rule) -> Trainer:
    made = {
        "sgd": functools.partial(torch.optim.SGD, lr=HEAD_RATE),
        "adam": functools.partial(torch.optim.Adam, lr=1e-4),
    }
    opt = made[rule](parameters, fused=True)

    def one_step() -> None:
        opt.zero_grad()
        F.cross_entropy(logits(), y).backward()
        opt.step()

    return Trainer(one_step, sum(p.numel() for p in parameters))


TIMED: dict[str, Build] = {"ours": ours, "by hand": by_hand, "classical": classical}
MEASURED: dict[str, Build] = {
    "hyperfan": ours,
    "by hand": by_hand,
    "hypnettorch": hypnettorch,
    "hyperlight": hyperlight,
    "hyper-nn": hyper_nn,
}


def held(build: Build, x: Tensor, y: Tensor, rule: Rule) -> float:
    """Bytes at peak in three steps, parameters and state included, over those of the parameters."""
    for warm in (True, False):
        trainer = build(x, y, rule)
        if warm and build is not ours:  # only ours compiles
            continue
        parameters = 4 * trainer.parameters
        found = (parameters + peak_bytes(lambda trainer=trainer: [trainer() for _ in range(3)])) / parameters
    return found


def run(rounds: int = 9) -> bool:
    torch.manual_seed(0)
    x, y = batch()
    rules: tuple[Rule, ...] = ("sgd", "adam")
    for rule in rules:
        times = interleave({name: build(x, y, rule) for name, build in TIMED.items()}, rounds, warm_up=2)
        ratios = [a / b for a, b in zip(times["by hand"], times["ours"], strict=True)]
        claim = "a step by hand with torch's fused optimiser over ours: the ratio, whatever it is"
        conclude(f"comparison_{rule}", claim, "time", summary(ratios), None, {"median_ms": medians(times)})
    found = {rule: {name: held(build, x, y, rule) for name, build in MEASURED.items()} for rule in rules}
    for rule, each in found.items():
        print(rule, {name: round(value, 2) for name, value in each.items()}, flush=True)
    store("comparison_memory", {"of": "bytes at peak over bytes of parameters", "found": found})
    return True


if __name__ == "__main__":
    main("comparison_step", run)
