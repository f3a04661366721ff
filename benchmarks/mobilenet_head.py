"""Generating MobileNet's weights from noisy embeddings and updating the 134.7 million head weights."""

import copy
import functools

import torch

import hyperfan as hf
from benchmarks.harness import compare_times, conclude, interleave, main, memory_pass, peak_bytes
from hyperfan.models import mobilenet

BANDWIDTH = (
    "generating and updating MobileNet's heads takes at most twice as long as reading them twice and writing them "
    "once, at the rate of a multiplication in place of as many values in the same process"
)
TIME = "… over the time with dense autograd and torch's SGD: the ratio, whatever it is"
MEMORY = "without momentum and beside the mainnet itself, it holds at most 1.15 times the bytes of the parameters"


def hypernet() -> hf.HyperNet:
    net = hf.HyperNet(mobilenet(), hf.Embedding(32, noise=0.1), heads="separate")
    assert sum(head.weight.numel() for head in net.heads.children()) == 134_690_816
    return net


def step(net: hf.HyperNet, opt: torch.optim.Optimizer) -> None:
    """The mainnet is left out: its gradient with respect to the weights is the weights themselves."""
    opt.zero_grad()
    made = list(net.generate(noise=True).values())
    torch.autograd.backward(made, [w.detach() for w in made])
    del made  # as in training, where the backward pass frees them
    opt.step()


def run(rounds: int = 15) -> bool:
    torch.manual_seed(0)
    net = hypernet()
    dense = copy.deepcopy(net)
    opt, dense_opt = hf.SGD(net, lr=1e-6), torch.optim.SGD(dense.parameters(), lr=1e-6)
    assert {row.kind for row in opt.plan.rows} == {"factored"}
    numel = sum(p.numel() for p in net.parameters())
    dense_opt.zero_grad()
    extra = [peak_bytes(functools.partial(step, *pair)) for pair in ((net, opt), (dense, dense_opt))]
    held = [(4 * numel + e) / (4 * numel) for e in extra]
    more = {"parameter_bytes": 4 * numel, "dense_autograd": held[1]}
    what = "bytes at peak over bytes of parameters"
    functions = {
        "ours": lambda: step(net, opt),
        "theirs": lambda: step(dense, dense_opt),
        "in place": memory_pass(numel),
    }
    times = [interleave(functions, rounds)]
    return all(
        [
            conclude("mobilenet_head_memory", MEMORY, what, {"median": held[0]}, 1.15, more),
            compare_times("mobilenet_head_bandwidth", BANDWIDTH, times, 2.0, theirs="in place", scale=3 / 2),
            compare_times("mobilenet_head", TIME, times, None),
        ]
    )


if __name__ == "__main__":
    main("mobilenet_head", run)
