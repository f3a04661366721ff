"""How long a diagnosis of the paper's MNIST hypernet takes, and how long and large the page of a 30-epoch run is."""

import json

import torch
import torch.nn.functional as F

import hyperfan as hf
from benchmarks.harness import compare_times, conclude, interleave, main, summary
from hyperfan.models import mnist_net
from hyperfan.probe import Probe
from hyperfan.report import RunData, run_page

EPOCHS, BATCHES = 30, 6000
INPUTS = 300
IN_PASSES = (
    "a diagnosis of the MNIST hypernet takes at most as long as 40 forward and backward passes of the plain net on the "
    "same inputs, each with new weights"
)
IN_JSON = "making the page of a 30-epoch run takes at most 20 times as long as writing its metrics as JSON"
SECONDS = "… in seconds, whatever they are"


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


def run(rounds: int = 9) -> bool:
    torch.manual_seed(0)
    x, y = torch.randn(INPUTS, 784), torch.randint(10, (INPUTS,))
    net = hf.HyperNet(mnist_net(), 50)
    made = RunData("a run", metrics(net, x, y), {"init": "hyperfan-in"}, stage=("epoch", BATCHES))
    functions = {
        "diagnosis": lambda: hf.diagnose(net, x, y),
        "pass": lambda: F.cross_entropy(mnist_net()(x), y).backward(),
        "page": lambda: run_page([made]),
        "json": lambda: [json.dumps(row) for row in made.rows],
    }
    times = interleave(functions, rounds, warm_up=1)
    size = len(run_page([made]).encode())
    return all(
        [
            compare_times("diagnosis_passes", IN_PASSES, [times], 40, "diagnosis", "pass"),
            conclude("diagnosis", SECONDS, "seconds", summary(times["diagnosis"]), None, {}),
            compare_times("report_json", IN_JSON, [times], 20, "page", "json"),
            conclude("report", SECONDS, "seconds", summary(times["page"]), None, {}),
            conclude("report_size", "… and has under 3 MB", "megabytes", {"median": size / 1e6}, 3.0, {}),
        ]
    )


if __name__ == "__main__":
    main("diagnosis", run)
