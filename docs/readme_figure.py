"""Draws the picture that opens the README from a fresh diagnosis: ``python docs/readme_figure.py``."""

from pathlib import Path

import torch

import hyperfan as hf
from hyperfan.models import mnist_net
from hyperfan.report import scale_chart

OUT = Path(__file__).parent / "scale.svg"
INITS = {"hyperfan-in": "hyperfan-in", "Xavier fan-in": "xavier-fan-in", "Xavier fan-out": "xavier-fan-out"}
"""Label → init method of the heads."""
TITLE = "Classical init on a hypernet explodes or vanishes; hyperfan keeps the scale"


def draw() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(300, 784), torch.randint(10, (300,))
    seen = {label: hf.diagnose(hf.HyperNet(mnist_net(), 50, init=init), x, y) for label, init in INITS.items()}
    chart = scale_chart({label: d.layers for label, d in seen.items()}, title=TITLE, inits=INITS)
    OUT.write_text(chart, encoding="utf-8")


if __name__ == "__main__":
    draw()
