"""A training step with Adam of the paper's MNIST hypernet, against the same in other libraries for hypernetworks."""

import torch

import hyperfan as hf
from benchmarks.harness import main
from benchmarks.peer_step import CLASSICAL, ONE_EMBEDDING, one_embedding, race, report
from benchmarks.peers import ADAM_RATE, AS_THEY_COME, batch, classical
from hyperfan.models import mnist_net

CLAIM = (
    "a training step of an MNIST hypernet with one fixed embedding and a head for each weight, with Adam, over one in "
    "the fastest of other libraries as documented: the ratio, whatever it is"
)


def run(rounds: int = 9) -> bool:
    torch.manual_seed(0)
    x, y = batch()
    net = hf.HyperNet(mnist_net(), one_embedding())
    opt = hf.Adam(net, lr=ADAM_RATE)
    trainers = {name: build(x, y, "adam") for name, build in {CLASSICAL: classical, **AS_THEY_COME}.items()}
    times, more = race({ONE_EMBEDDING: (net, opt)}, trainers, x, y, rounds)
    plan = {row.head: f"{row.kind}{', compiled' * row.compiled}" for row in opt.plan.rows}
    return report("peer_adam_step", CLAIM, ONE_EMBEDDING, AS_THEY_COME, times, {"plan": plan, **more})


if __name__ == "__main__":
    main("peer_adam_step", run)
