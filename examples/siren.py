"""Neural fields from an image encoder: a picture goes in, and a SIREN that draws it comes out (Sitzmann et al., 2020).

The encoder is the hypernet's trunk. All pictures share their coordinates, and each has a net of its own. Reported is
the error on pictures that were not trained on, over their variance. ``python -m examples.siren``
"""

import torch
from torch import Tensor, nn

import hyperfan as hf

SIZE, OMEGA = 16, 10.0  # pixels along an edge, and the frequency of the sines


class Sine(nn.Module):
    """sin(ω·z)."""

    def forward(self, z: Tensor) -> Tensor:  # noqa: D102
        return torch.sin(OMEGA * z)


def coordinates() -> Tensor:
    """The middle of every pixel, (pixels, 2), in [−1, 1]."""
    line = (torch.arange(SIZE) + 0.5) * 2 / SIZE - 1
    return torch.cartesian_prod(line, line)


def pictures(count: int, blobs: int = 2) -> Tensor:
    """Sums of soft blobs at random places, (count, pixels), of mean 0 and variance 1."""
    places = torch.empty(count, blobs, 1, 2).uniform_(-0.8, 0.8)
    widths = torch.empty(count, blobs, 1).uniform_(0.2, 0.5)
    drawn = torch.exp(-(coordinates() - places).square().sum(-1) / widths.square()).sum(1)
    return (drawn - drawn.mean()) / drawn.std()


def hypernet(examples: Tensor, width: int = 32, code: int = 32) -> hf.HyperNet:
    """A SIREN whose weights and biases are generated from the encoder's code of a picture."""
    field = nn.Sequential(nn.Linear(2, width), Sine(), nn.Linear(width, width), Sine(), nn.Linear(width, 1))
    channels = [nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten()]
    encoder = nn.Sequential(nn.Unflatten(1, (1, SIZE, SIZE)), *channels, nn.Linear(SIZE * SIZE, code))
    condition = hf.Embedding(SIZE * SIZE, given=True, per="net")
    init = hf.init.method("hyperfan-in", bias_share=0)  # biases start at zero: all variance is that of frequencies
    return hf.HyperNet(field, condition, trunk=encoder, init=init, example_embeddings=examples, example=coordinates())


def train(net: nn.Module, seen: Tensor, unseen: Tensor, steps: int = 600, lr: float = 2e-3) -> float:
    """Train on pictures; returns the error on unseen ones, over their variance."""
    opt, x = hf.AdamW(net, lr=lr), coordinates()
    for _ in range(steps):
        batch = seen[torch.randint(len(seen), (16,))]
        opt.zero_grad()
        (net(x, embedding=batch, shared=True)[..., 0] - batch).square().mean().backward()
        opt.step()
    return (net(x, embedding=unseen, shared=True)[..., 0] - unseen).square().mean().item()


if __name__ == "__main__":
    seen, unseen = pictures(512), pictures(64)
    print(f"error on unseen pictures over their variance: {train(hypernet(seen), seen, unseen):.3f}")
