"""Draw docs/speed.svg: a training step in each library, from benchmarks/results/peer_step.json."""

import json
from pathlib import Path

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
LABELS = {
    "classical": "the plain net, no hypernet",
    "ours": "hyperfan",
    "hyper-nn, embedding fixed": "hyper-nn (JAX), tuned",
    "hypnettorch, heads shared": "hypnettorch, tuned",
    "hyperlight, heads shared": "hyperlight, tuned",
    "hyper-nn": "hyper-nn (JAX)",
    "hyperlight": "hyperlight",
    "hypnettorch": "hypnettorch",
}


def main() -> None:
    times = json.loads((HERE.parent / "benchmarks/results/peer_step.json").read_text())["median_ms"]
    names = list(LABELS)[::-1]
    colours = {"classical": "#bbbbbb", "ours": "#0072b2"}
    plt.rcParams.update({"svg.fonttype": "path", "font.size": 10, "svg.hashsalt": "hyperfan"})
    figure, axes = plt.subplots(figsize=(7, 2.9), layout="constrained")
    bars = axes.barh([LABELS[n] for n in names], [times[n] for n in names],
                     color=[colours.get(n, "#e69f00" if "," in n else "#d55e00") for n in names])  # fmt: skip
    axes.bar_label(bars, [f"{times[n]:.1f} ms" if times[n] < 10 else f"{times[n]:.0f} ms" for n in names], padding=4)
    axes.set_xlim(0, 1.12 * max(times.values()))
    axes.set_title("One training step of the paper's MNIST hypernet, 2 CPU cores", loc="left", fontsize=11)
    axes.xaxis.set_visible(False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(left=False)
    figure.savefig(HERE / "speed.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
