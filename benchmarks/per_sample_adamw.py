"""Training the MNIST net with weights of its own for each of 64 samples, against vmap(functional_call), both AdamW."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, vmap

import hyperfan as hf
from benchmarks.adamw_step import DENSE, NOT_COMPILED, OPTIMISERS, OURS
from benchmarks.harness import Times, compare_times, interleave, main, pooled
from hyperfan.models import mnist_net

TIME = (
    "a training step with 64 different codes (MNIST net, given codes, a trunk (64, 64), a head for each weight, AdamW) "
    "is in the median, over rounds in several processes, at least 2 times faster than vmap(functional_call) with "
    "torch's fused AdamW"
)
UNCOMPILED = "… without a compiler: the ratio, whatever it is"
SAMPLES, EMBEDDING = 64, 50
MAINNET = mnist_net()
"""Its own weights are not used."""
Forward = Callable[[hf.HyperNet, Tensor, Tensor], Tensor]


def by_hyperfan(net: hf.HyperNet, x: Tensor, e: Tensor) -> Tensor:
    return net(x, embedding=e)


def by_vmap(net: hf.HyperNet, x: Tensor, e: Tensor) -> Tensor:
    biases = dict(net.mainnet.named_parameters())
    return vmap(lambda w, x: functional_call(MAINNET, {**w, **biases}, (x,)))(net.generate(embedding=e), x)


def step(net: hf.HyperNet, opt: torch.optim.Optimizer, forward: Forward, x: Tensor, e: Tensor, y: Tensor) -> None:
    opt.zero_grad()
    F.cross_entropy(forward(net, x, e), y).backward()
    opt.step()


def measure(rounds: str) -> Times:
    """Seconds of each step in this process."""
    torch.manual_seed(0)
    net = hf.HyperNet(MAINNET, hf.Embedding(EMBEDDING, given=True, per="net"), heads="separate", trunk=(64, 64))
    x, e, y = torch.randn(SAMPLES, 784), torch.randn(SAMPLES, EMBEDDING), torch.randint(10, (SAMPLES,))
    torch.testing.assert_close(by_hyperfan(net, x, e), by_vmap(net, x, e), rtol=1e-3, atol=1e-4)
    functions = {}
    for name, make in OPTIMISERS.items():
        own = copy.deepcopy(net)
        opt, forward = make(own), by_vmap if name == DENSE else by_hyperfan
        functions[name] = lambda own=own, opt=opt, forward=forward: step(own, opt, forward, x, e, y)
    return interleave(functions, int(rounds), warm_up=2)


def run(processes: int = 5, rounds: int = 12) -> bool:
    runs = pooled("per_sample_adamw", rounds, processes)
    return all(
        [
            compare_times("per_sample_adamw", TIME, runs, 1 / 2, OURS, DENSE),
            compare_times("per_sample_adamw_uncompiled", UNCOMPILED, runs, None, NOT_COMPILED, DENSE),
        ]
    )


if __name__ == "__main__":
    main("per_sample_adamw", run, measure)
