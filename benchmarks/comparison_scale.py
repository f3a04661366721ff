"""The paper's MNIST net as each library starts it: the root mean square of every layer, by ``hyperfan.diagnose``.

Each library as its constructor leaves it and, where it ships an init for hypernets, after that; also with the option of
it that fits this net best, whose layers have tanh.
"""

import math
from collections.abc import Callable

import torch
from hypnettorch.hnets import HMLP
from torch import Tensor, nn

import hyperfan as hf
from benchmarks.harness import main, store
from benchmarks.peers import EMBEDDING, SHAPES, WIDTHS
from benchmarks.peers_diagnosed import INPUTS, Generated, hyper_nn, hyperlight, hypnettorch
from hyperfan.models import mnist_net
from hyperfan.probe import Diagnosis

CLAIM = "hyperfan starts every layer within a factor of 1.5 of the scale of plain nets, at every seed"
MAX_FACTOR = 1.5
SEEDS = 3


def hypnettorch_hyperfan(mainnet: nn.Module, **options: bool) -> Generated:
    """HMLP after its own ``apply_hyperfan_init``."""
    net = HMLP(SHAPES, cond_in_size=EMBEDDING, num_cond_embs=1, layers=(), verbose=False)
    net.apply_hyperfan_init(**options)
    names = [name for name, p in mainnet.named_parameters() if p.ndim == 2]
    return lambda: dict(zip(names, net.forward(cond_id=0), strict=True))


def by_hand(mainnet: nn.Module) -> Generated:
    """An ``nn.Linear`` for every weight, as torch starts it."""
    shapes = {name: p.shape for name, p in mainnet.named_parameters() if p.ndim == 2}
    heads = nn.ModuleList(nn.Linear(EMBEDDING, shape.numel()) for shape in shapes.values())
    code = torch.randn(EMBEDDING)

    def generated() -> dict[str, Tensor]:
        return {name: head(code).view(shape) for head, (name, shape) in zip(heads, shapes.items(), strict=True)}

    return generated


STARTS: dict[str, Callable[[nn.Module], Generated]] = {
    "by hand, nn.Linear": by_hand,
    "hypnettorch, constructor": hypnettorch,
    "hypnettorch, apply_hyperfan_init()": hypnettorch_hyperfan,
    "hypnettorch, apply_hyperfan_init(use_xavier=True)": lambda mainnet: hypnettorch_hyperfan(mainnet, use_xavier=True),
    "hyperlight, constructor": hyperlight,
    "hyper-nn, constructor": hyper_nn,
}


def look(start: str, seed: int) -> Diagnosis:
    torch.manual_seed(seed)
    mainnet = mnist_net()
    for name, p in mainnet.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(p)
    x, y = torch.randn(INPUTS, WIDTHS[0]), torch.randint(WIDTHS[-1], (INPUTS,))
    if start == "hyperfan":
        return hf.diagnose(hf.HyperNet(mainnet, hf.Embedding(EMBEDDING, per="net")), x, y)
    return hf.diagnose(mainnet, x, y, generated=STARTS[start](mainnet))


def run() -> bool:
    found, worst = {}, 1.0
    for start in ("hyperfan", *STARTS):
        seen = [look(start, seed) for seed in range(SEEDS)]
        rms = [[math.sqrt(r.measured.value) for r in d.layers] for d in seen]
        plain = [[math.sqrt(r.predicted.value) for r in d.layers] for d in seen]
        found[start] = {
            "layers": [r.layer for r in seen[0].layers],
            "rms": rms,
            "plain": plain,
            "loss": [d.loss for d in seen],
            "healthy": [d.healthy for d in seen],
            "summary": seen[0].summary,
        }
        if start == "hyperfan":
            worst = max(max(a / b, b / a) for r, p in zip(rms, plain, strict=True) for a, b in zip(r, p, strict=True))
        shown = " ".join(f"{sum(layer) / len(layer):.3g}" for layer in zip(*rms, strict=True))
        print(f"{start}: {shown}; {seen[0].summary}", flush=True)
    holds = worst < MAX_FACTOR
    print(f"comparison_scale: hyperfan within {worst:.3g} of plain nets: {'holds' if holds else 'DOES NOT HOLD'}")
    store("comparison_scale", {"claim": CLAIM, "holds": holds, "seeds": SEEDS, "inputs": INPUTS, "found": found})
    return holds


if __name__ == "__main__":
    main("comparison_scale", run)
