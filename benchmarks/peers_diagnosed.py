"""The paper's MNIST net in each peer's own API, as it comes out of its constructor, under ``hyperfan.diagnose``."""

import math
from collections.abc import Callable

import hyperlight as hl
import torch
from hypernn.torch import TorchLinearHyperNetwork
from hypnettorch.hnets import HMLP
from torch import Tensor, nn

import hyperfan as hf
from benchmarks.harness import main, store
from benchmarks.peers import EMBEDDING, SHAPES, WIDTHS
from hyperfan.models import mnist_net

SEEDS = 5
INPUTS = 300
Generated = Callable[[], dict[str, Tensor]]
CLAIMS = {
    "hypnettorch": "its first layer has a standard deviation of about 17; the diagnosis says that it explodes, and why",
    "hyper-nn": "its first layer has a standard deviation of about 17; the diagnosis says that it explodes, and why",
    "hyperlight": "it is near scale, and the diagnosis says nothing of exploding or vanishing",
}


def hypnettorch(mainnet: nn.Module) -> Generated:
    """HMLP, the class its documentation starts with."""
    hypernet = HMLP(SHAPES, cond_in_size=EMBEDDING, num_cond_embs=1, layers=(), verbose=False)
    names = [name for name, p in mainnet.named_parameters() if p.ndim == 2]
    return lambda: dict(zip(names, hypernet.forward(cond_id=0), strict=True))


def hyperlight(mainnet: nn.Module) -> Generated:
    """As in its README: one HyperNet for the whole mainnet."""
    shapes = {name: tuple(p.shape) for name, p in mainnet.named_parameters() if p.ndim == 2}
    hypernet = hl.HyperNet({"h": (EMBEDDING,)}, shapes, hidden_sizes=[], encoding=None)
    embedding = torch.randn(EMBEDDING)
    return lambda: dict(hypernet(h=embedding))


def hyper_nn(mainnet: nn.Module) -> Generated:
    """TorchLinearHyperNetwork, which makes all parameters from one embedding, the biases too."""
    size = sum(p.numel() for p in mainnet.parameters())
    hypernet = TorchLinearHyperNetwork(
        mainnet, num_target_parameters=size, embedding_dim=EMBEDDING, num_embeddings=1, weight_chunk_dim=size
    )
    shapes = {name: p.shape for name, p in mainnet.named_parameters()}

    def generated() -> dict[str, Tensor]:
        flat = hypernet.generate_params()[0].split([s.numel() for s in shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), flat, strict=True)}

    return generated


PEERS = {"hypnettorch": hypnettorch, "hyper-nn": hyper_nn, "hyperlight": hyperlight}


def look(build: Callable[[nn.Module], Generated], seed: int) -> dict[str, object]:
    """One net, diagnosed."""
    torch.manual_seed(seed)
    mainnet = mnist_net()
    for name, p in mainnet.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(p)
    generated = build(mainnet)
    x, y = torch.randn(INPUTS, WIDTHS[0]), torch.randint(WIDTHS[-1], (INPUTS,))
    seen = hf.diagnose(mainnet, x, y, generated=generated)
    return {
        "first_layer_std": math.sqrt(seen.layers[0].measured.value),
        "findings": sorted({f.name for f in seen.findings}),
        "causes": sorted({f.cause for f in seen.findings if f.name == "wrong scale of a head"}),
        "summary": seen.summary,
    }


def run() -> bool:
    found = {name: [look(build, seed) for seed in range(SEEDS)] for name, build in PEERS.items()}
    holds = {}
    for name, seen in found.items():
        stds = [s["first_layer_std"] for s in seen]
        loud = [
            "exploding activations" in s["findings"] and any("nn.Linear does by default" in c for c in s["causes"])
            for s in seen
        ]
        quiet = [not any("ing activations" in f for f in s["findings"]) for s in seen]
        near = all(1 / 3 < std < 3 for std in stds)
        holds[name] = all(quiet) and near if name == "hyperlight" else all(loud) and all(12 < std < 22 for std in stds)
        print(f"{name}: first layer's std {min(stds):.3g} to {max(stds):.3g}; {seen[0]['summary']}")
        print(f"  {'; '.join(seen[0]['causes'])}\n  {'holds' if holds[name] else 'DOES NOT HOLD'}", flush=True)
    store("peers_diagnosed", {"claims": CLAIMS, "holds": holds, "seeds": SEEDS, "inputs": INPUTS, "found": found})
    return all(holds.values())


if __name__ == "__main__":
    main("peers_diagnosed", run)
