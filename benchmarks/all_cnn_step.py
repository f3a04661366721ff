"""A training step of a hypernet for All-CNN-C on CIFAR-sized input, against the same step of the plain net."""

import torch

import hyperfan as hf
from benchmarks.harness import compare
from benchmarks.training_step import step
from hyperfan.models import all_cnn

CLAIM = (
    "a training step of the All-CNN hypernet (shared heads, batch 100) costs at most 1.05 times that of the plain net"
)
BATCH = 100


def run(rounds: int = 15) -> bool:
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    net, plain = hf.HyperNet(all_cnn(), embedding=50), all_cnn()
    opt, plain_opt = hf.SGD(net, lr=5e-4), torch.optim.SGD(plain.parameters(), lr=5e-4)
    return compare(
        "all_cnn_step",
        CLAIM,
        lambda: step(net, opt, x, y),
        lambda: step(plain, plain_opt, x, y),
        limit=1.05,
        rounds=rounds,
    )


if __name__ == "__main__":
    raise SystemExit(0 if run() else 1)
