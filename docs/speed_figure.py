"""Draw docs/speed.svg: a training step in each library, as one machine measured it in peer_step."""

import json
from pathlib import Path

from hyperfan.charts.axis import Axis
from hyperfan.charts.bars import bar_panel
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import CLASSICAL, INITS, NEUTRAL

HERE = Path(__file__).parent
RESULT = HERE.parent / "benchmarks/results/amd-epyc-2-cores/peer_step.json"
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
LOOKS = {"classical": CLASSICAL, "ours": INITS["hyperfan-in"]}
TITLE = "One training step of the paper's MNIST hypernet, 2 CPU cores"
WIDTH, BAR_HEIGHT, NAME_WIDTH = 820.0, 27, 6.5
"""Width of the figure, height of a bar with its gap, and width of a character beside it, in pixels."""


def draw() -> None:
    times = json.loads(RESULT.read_text())["median_ms"]
    bars = [
        (label, times[n], f"{times[n]:.1f} ms" if times[n] < 10 else f"{times[n]:.0f} ms", LOOKS.get(n, NEUTRAL))
        for n, label in sorted(LABELS.items(), key=lambda named: times[named[0]])
    ]
    x = Axis(lambda length: length, 0, max(times[n] for n in LABELS), ())
    left = 12 + NAME_WIDTH * max(map(len, LABELS.values()))
    panel = bar_panel("", bars, x, size=(WIDTH, 10 + BAR_HEIGHT * len(bars)), left=left, right=70)
    described = ", ".join(f"{label} {words}" for label, _, words, _ in bars)
    svg = figure(TITLE, [panel], 1, width=WIDTH, description=described)
    (HERE / "speed.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    draw()
