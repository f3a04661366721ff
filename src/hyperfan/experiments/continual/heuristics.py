"""The example of the paper's section 3: a linear hypernet that makes a deep linear mainnet, before training."""

import torch
from torch import nn

from hyperfan.codes import Embedding
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.statistics import growth
from hyperfan.hypernet import HyperNet

WIDTHS = (64, 256)
DEPTH = 10
EMBEDDING = 16
SEEDS = 10
INPUTS = 100


def growths(init: str, width: int) -> list[float]:
    """The factor by which activations grow from a layer to the next, for each seed.

    Heads are separate, since M4 gives layers of one shape equal embeddings.
    """
    with torch.device("meta"):
        mainnet = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(DEPTH)))
    embedding = Embedding(EMBEDDING, distribution="normal")
    net = HyperNet(mainnet, embedding, heads="separate", init=init, fidelity="paper").to_empty(device="cpu")
    found = []
    for seed in range(SEEDS):
        net.reset_parameters(generator(seed, "init"), embeddings=generator(seed, "embeddings"))
        x = torch.randn(INPUTS, width, generator=generator(seed, "inputs"))
        plain, scales = net.freeze(), []
        with torch.no_grad():
            for layer in plain.children():
                x = layer(x)
                scales.append(x.std().item())
        found.append(growth(tuple(scales)))
    return found
