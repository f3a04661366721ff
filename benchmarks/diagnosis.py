"""How long a diagnosis of the paper's MNIST hypernet takes, and how long and large the page of a 30-epoch run is."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import hyperfan as hf
from benchmarks.harness import conclude
from hyperfan.models import mnist_net
from hyperfan.probe import Probe
from hyperfan.report import RunData, run_page

EPOCHS, BATCHES = 30, 6000
INPUTS = 300


def seconds(function: Callable[[], object], rounds: int = 7) -> dict[str, object]:
    """Median and quartiles, after a first call that is not counted."""
    function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    low, median, high = statistics.quantiles(times, n=4)
    return {"median": median, "quartiles": [low, high], "rounds": rounds}


def metrics(net: hf.HyperNet, x: torch.Tensor, y: torch.Tensor) -> list[dict[str, object]]:
    """As many lines as a run of 30 epochs writes, with what the probe sees in this net."""
    probe, plain = Probe(x, y), net.freeze()
    moments = probe.moments(plain)
    histograms = probe.histograms(plain, moments)
    rows: list[dict[str, object]] = [{"kind": "diagnosis", "step": 0, **hf.diagnose(net, x, y).to_dict()}]
    for step in range(0, EPOCHS * BATCHES + 1, 100):
        rows.append({"kind": "train", "step": step, "loss": 1 + torch.rand(()).item()})
        if step % BATCHES == 0:
            rows.append({"kind": "test", "step": step, "loss": 1e4, "accuracy": 0.9 + 0.1 * torch.rand(()).item()})
        for of, layers in moments.items() if step % 1000 == 0 else ():
            seen = {where: [m.mean, m.std * (1 + torch.rand(()).item())] for where, m in layers.items()}
            rows.append({"kind": "moments", "step": step, "of": of, "layers": seen})
    for step in (0, EPOCHS * BATCHES):
        for of, counted in histograms.items():
            rows.append(
                {"kind": "histograms", "step": step, "of": of, "layers": {w: vars(h) for w, h in counted.items()}}
            )
    return [*rows, {"kind": "end", "step": EPOCHS * BATCHES, "outcome": "finished"}]


def run() -> bool:
    torch.manual_seed(0)
    x, y = torch.randn(INPUTS, 784), torch.randint(10, (INPUTS,))
    net = hf.HyperNet(mnist_net(), 50)
    made = RunData("a run", metrics(net, x, y), {"init": "hyperfan-in"}, stage=("epoch", BATCHES))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        writing = seconds(lambda: page.write_text(run_page([made]), encoding="utf-8"))
        size = page.stat().st_size
    looked = seconds(lambda: hf.diagnose(net, x, y))
    return all(
        [
            conclude("diagnosis", "a diagnosis of the MNIST hypernet takes under 2 s", "seconds", looked, 2.0, {}),
            conclude("report", "the page of a 30-epoch run takes under 5 s", "seconds", writing, 5.0, {}),
            conclude("report_size", "… and has under 3 MB", "megabytes", {"median": size / 1e6}, 3.0, {}),
        ]
    )


if __name__ == "__main__":
    raise SystemExit(0 if run() else 1)
