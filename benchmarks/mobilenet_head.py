"""Generating MobileNet's weights from noisy embeddings and updating the 134.7 million head weights."""

import copy
import functools

import torch

import hyperfan as hf
from benchmarks.harness import compare, conclude, peak_bytes
from hyperfan.models import mobilenet

TIME = "generating and updating MobileNet's heads is at least 5 times faster than with dense autograd and torch's SGD"
MEMORY = "without momentum and beside the mainnet itself, it holds at most 1.15 times the bytes of the parameters"


def step(net: hf.HyperNet, opt: torch.optim.Optimizer) -> None:
    """The mainnet is left out: its gradient with respect to the weights is the weights themselves."""
    opt.zero_grad()
    made = list(net.generate(noise=True).values())
    torch.autograd.backward(made, [w.detach() for w in made])
    opt.step()


def run(rounds: int = 15) -> bool:
    torch.manual_seed(0)
    net = hf.HyperNet(mobilenet(), hf.Embedding(32, noise=0.1), heads="separate")
    heads = sum(head.weight.numel() for head in net.heads.children())
    assert heads == 134_690_816
    dense = copy.deepcopy(net)
    opt, dense_opt = hf.SGD(net, lr=1e-6), torch.optim.SGD(dense.parameters(), lr=1e-6)
    assert {row.kind for row in opt.plan.rows} == {"factored"}
    parameters = sum(p.numel() * p.element_size() for p in net.parameters())
    dense_opt.zero_grad()
    extra = [peak_bytes(functools.partial(step, *pair)) for pair in ((net, opt), (dense, dense_opt))]
    held = [(parameters + e) / parameters for e in extra]
    more = {"parameter_bytes": parameters, "dense_autograd": held[1]}
    holds = conclude("mobilenet_head_memory", MEMORY, "bytes at peak over bytes of parameters", {"median": held[0]},
                     1.15, more)  # fmt: skip
    return holds & compare(
        "mobilenet_head", TIME, lambda: step(net, opt), lambda: step(dense, dense_opt), limit=1 / 5, rounds=rounds
    )


if __name__ == "__main__":
    raise SystemExit(0 if run() else 1)
