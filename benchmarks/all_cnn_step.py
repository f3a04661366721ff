"""A training step of a hypernet for All-CNN-C on CIFAR-sized input, against the same step of the plain net."""

import torch

import hyperfan as hf
from benchmarks.harness import compare, main
from benchmarks.training_step import step
from hyperfan.models import all_cnn

CLAIM = "a training step of the All-CNN hypernet ({}, batch 100) costs at most 1.05 times that of the plain net"
HEADS = {
    "all_cnn_step": ("shared heads", "shared"),
    "all_cnn_chunks_step": ("1943 chunks, an input layer for each", hf.Chunks()),
}
BATCH = 100


def run(rounds: int = 15) -> bool:
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    holds = True
    for name, (told, heads) in HEADS.items():
        net, plain = hf.HyperNet(all_cnn(), embedding=50, heads=heads), all_cnn()
        # At a rate that breaks no net: values that are not finite, or too small, take other time.
        opt, plain_opt = hf.SGD(net, lr=1e-5), torch.optim.SGD(plain.parameters(), lr=1e-5)

        def ours(net: hf.HyperNet = net, opt: torch.optim.Optimizer = opt) -> None:
            step(net, opt, x, y)

        def theirs(net: torch.nn.Module = plain, opt: torch.optim.Optimizer = plain_opt) -> None:
            step(net, opt, x, y)

        holds &= compare(name, CLAIM.format(told), ours, theirs, limit=1.05, rounds=rounds)
    return holds


if __name__ == "__main__":
    main("all_cnn_step", run)
