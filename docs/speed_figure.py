"""Draw docs/speed.svg: a training step in each library, as one machine measured it in peer_step."""

import json
from pathlib import Path

from hyperfan.charts.figure import bar_chart
from hyperfan.charts.palette import CLASSICAL, INITS, NEUTRAL
from hyperfan.report import save

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


def draw() -> None:
    times = json.loads(RESULT.read_text())["median_ms"]
    bars = [
        (label, times[n], f"{times[n]:.1f} ms" if times[n] < 10 else f"{times[n]:.0f} ms", LOOKS.get(n, NEUTRAL))
        for n, label in sorted(LABELS.items(), key=lambda named: times[named[0]])
    ]
    save(bar_chart("One training step of the paper's MNIST hypernet, 2 CPU cores", bars), HERE / "speed.svg")


if __name__ == "__main__":
    draw()
