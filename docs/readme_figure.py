"""Draws the README's figure from a fresh measurement: ``python docs/readme_figure.py`` (needs the extra ``report``)."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

from hyperfan.experiments.compare import CLASSICAL, compare

SEEDS = 10
OUT = Path(__file__).parent / "start.svg"
# Okabe and Ito's colours, apart in black and white too; the markers differ as well.
LINES = {
    "xavier-fan-in": ("classical fan-in on the hypernet: explodes", "#D55E00", "v", "-"),
    "hyperfan-out": ("hyperfan-out", "#56B4E9", "s", "-"),
    CLASSICAL: ("the same net without a hypernet", "#000000", "o", "--"),
    "hyperfan-in": ("hyperfan-in", "#009E73", "D", "-"),
    "xavier-harmonic": ("torch's xavier on the hypernet: vanishes", "#CC79A7", "^", "-"),
    "xavier-fan-out": ("classical fan-out on the hypernet: vanishes", "#0072B2", "^", "-"),
}
LABEL_AT = {"hyperfan-out": 2.4, CLASSICAL: 0.62, "hyperfan-in": 0.25, "xavier-harmonic": 0.05}


def draw() -> None:
    matplotlib.rcParams.update({"font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "hyperfan"})
    starts = {s.init: s for s in compare(seeds=SEEDS)}
    figure, axes = plt.subplots(figsize=(8.2, 3.6), layout="constrained")
    for init, (label, colour, marker, style) in LINES.items():
        means = [layer.mean for layer in starts[init].preactivation]
        spreads = [layer.spread for layer in starts[init].preactivation]
        depth = range(1, len(means) + 1)
        axes.errorbar(depth, means, spreads, color=colour, marker=marker, linestyle=style, markersize=5, linewidth=1.6)
        axes.annotate(label, (6.12, LABEL_AT.get(init, means[-1])), color=colour, va="center", annotation_clip=False)
    axes.set_yscale("log")
    axes.set_xlim(0.8, 6.1)
    axes.set_xticks(range(1, 7), [f"layer {i}" for i in range(1, 7)])
    axes.set_ylabel("std of pre-activations")
    axes.set_title(
        f"How a hypernet starts: the paper's MNIST net, mean ± std of {SEEDS} seeds", loc="left", fontsize=10.5
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    figure.savefig(OUT, metadata={"Date": None})
    print(f"{OUT} written")


if __name__ == "__main__":
    draw()
