"""A forward and backward of HyperNet on the paper's MNIST net, against hand-written torch of the same maths."""

import torch
import torch.nn.functional as F
from torch import Tensor

import hyperfan as hf
from benchmarks.harness import compare, main
from hyperfan.models import mnist_net

CLAIM = "HyperNet costs at most 1.05 times hand-written torch"
BATCH = 10


def run(rounds: int = 60) -> bool:
    torch.manual_seed(0)
    net = hf.HyperNet(mnist_net(), embedding=50)
    x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    state = {k: v.detach().clone() for k, v in net.state_dict().items()}
    codes = state["embeddings.weight"] * state["heads.scale"]
    heads = {k: v.requires_grad_() for k, v in state.items() if k.startswith("heads.") and k != "heads.scale"}
    biases = [v.requires_grad_() for k, v in state.items() if k.startswith("mainnet.")]

    def by_hand() -> Tensor:
        first = torch.addmm(heads["heads.500x784.bias"], codes[:1], heads["heads.500x784.weight"]).view(500, 784)
        middle = torch.addmm(heads["heads.500x500.bias"], codes[1:5], heads["heads.500x500.weight"]).view(4, 500, 500)
        last = torch.addmm(heads["heads.10x500.bias"], codes[5:], heads["heads.10x500.weight"]).view(10, 500)
        h = x
        for i, w in enumerate([first, *middle.unbind(0)]):
            h = torch.tanh(F.linear(h, w, biases[i]))
        return F.cross_entropy(F.linear(h, last, biases[5]), y)

    def hand_step() -> None:
        for p in [*heads.values(), *biases]:
            p.grad = None
        by_hand().backward()

    def net_step() -> None:
        for p in net.parameters():
            p.grad = None
        F.cross_entropy(net(x), y).backward()

    net_step(), hand_step()
    torch.testing.assert_close(F.cross_entropy(net(x), y), by_hand())
    for name, p in heads.items():
        torch.testing.assert_close(net.get_parameter(name).grad, p.grad)
    return compare("forward_overhead", CLAIM, net_step, hand_step, limit=1.05, rounds=rounds)


if __name__ == "__main__":
    main("forward_overhead", run)
