"""Time the two orders of a layer with a code for each group of rows, beside the order that the cost model chooses.

This is where ``hyperfan.generators.stand_in.TOUCH_COST`` comes from; it makes no claim.
"""

import torch
from torch import nn

import hyperfan as hf
from benchmarks.harness import interleave, medians
from hyperfan.generators.stand_in import Sizes, cheaper
from hyperfan.hypernet import PerSample

CODES, FEATURES = 64, 500


def main() -> None:
    torch.manual_seed(0)
    print(f"{'d_k':>4} {'rows':>5} {'weights first':>14} {'codes last':>11}   chosen")
    for width in (4, 10, 50):
        net = hf.HyperNet(nn.Sequential(nn.Linear(FEATURES, FEATURES, bias=False)), hf.Embedding(width, given=True))
        e = torch.randn(CODES, 1, width, requires_grad=True)
        for rows in (1, 2, 4, 8, 16):
            x = torch.randn(CODES, rows, FEATURES)

            def step(order, net=net, x=x, e=e) -> None:
                net.per_sample = order
                net.zero_grad()
                net(x, embedding=e, grouped=True).square().sum().backward()

            orders = {name: PerSample(lambda sizes, name=name: name) for name in ("weights", "codes")}
            functions = {name: lambda order=order: step(order) for name, order in orders.items()}
            ms = medians(interleave(functions, rounds=9, warm_up=2))
            chosen = cheaper(Sizes(width, FEATURES**2, FEATURES, rows))
            print(f"{width:4} {rows:5} {ms['weights']:11.1f} ms {ms['codes']:8.1f} ms   {chosen}", flush=True)


if __name__ == "__main__":
    main()
