"""What training the Bayesian MobileNet holds in memory, beside the activations that the mainnet itself needs."""

import functools

import torch
import torch.nn.functional as F

import hyperfan as hf
from benchmarks.harness import conclude, main, peak_bytes
from benchmarks.training_step import step
from hyperfan.models import mobilenet

CLAIM = (
    "training the Bayesian MobileNet (134.7 M head weights, noisy embeddings, weight decay) holds at most 1.25 times "
    "the bytes of its parameters, plus the activations and gradients of the mainnet itself"
)
BATCH, SIZE = 16, 64


def forward_and_backward(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """A step of the mainnet alone, whose gradients are let go."""
    F.cross_entropy(net(x), y).backward()
    for p in net.parameters():
        p.grad = None


def run() -> bool:
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 3, SIZE, SIZE), torch.randint(1000, (BATCH,))
    plain = mobilenet()
    own = peak_bytes(functools.partial(forward_and_backward, plain, x, y))
    held = {}
    for name in ("ours", "dense autograd"):
        net = hf.HyperNet(mobilenet(), hf.Embedding(32, noise=0.1, scope="block"), heads="separate")
        make = hf.SGD if name == "ours" else lambda net, **options: torch.optim.SGD(net.parameters(), **options)
        opt = make(net, lr=1e-6, weight_decay=5e-4)
        parameters = sum(p.numel() * p.element_size() for p in net.parameters())
        step(net, opt, x, y)
        opt.zero_grad()
        held[name] = (parameters + peak_bytes(functools.partial(step, net, opt, x, y)) - own) / parameters
        del net, opt
    more = {"parameter_bytes": parameters, "mainnet_bytes": own, "dense_autograd": held["dense autograd"]}
    what = "bytes at peak, less those of the mainnet's own step, over bytes of parameters"
    return conclude("mobilenet_training_memory", CLAIM, what, {"median": held["ours"]}, 1.25, more)


if __name__ == "__main__":
    main("mobilenet_training", run)
