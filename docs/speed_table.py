"""Write the README's table of speeds from benchmarks/results: ``python docs/speed_table.py``."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARKS = re.compile(r"(<!-- numbers: docs/speed_table.py -->\n).*?(<!-- end -->)", re.DOTALL)
PLAIN = "{ratio:.2f} {spread} times the plain net's"
LINES = {
    "training_step": ("a training step of the MNIST hypernet", PLAIN),
    "peer_step": (
        "… in other libraries, as documented (one embedding, a head for each weight, in ours too)",
        "{low:.0f} to {high:.0f} times ours",
    ),
    "peer_step_tuned": (
        "… in other libraries, tuned (heads shared where they can be)",
        "{torch:.0f} times ours in PyTorch, {low:.1f} in JAX",
    ),
    "all_cnn_step": ("a training step of an All-CNN hypernet, shared heads, batch 100", PLAIN),
    "all_cnn_chunks_step": ("… its weights in 1943 chunks, an input layer for each", PLAIN),
    "mobilenet_head": (
        "generating and updating MobileNet's 134.7 M head weights, noisy embeddings",
        "{inverse:.1f} {inverse_spread} times dense autograd's speed",
    ),
    "mobilenet_head_memory": ("… bytes at peak, over those of the parameters", "{ratio:.2f}; dense {dense:.2f}"),
    "mobilenet_training_memory": (
        "training it: bytes at peak beside the mainnet's own, over those of the parameters",
        "{ratio:.2f}; dense {dense:.2f}",
    ),
    "per_sample": (
        "64 samples of the MNIST net, each with its own code, forward and backward",
        "{inverse:.1f} {inverse_spread} times vmap(functional_call)'s speed",
    ),
    "per_sample_memory": ("… memory beyond parameters and gradients", "{ratio:.2f} of it"),
    "forward_overhead": (
        "forward and backward of the MNIST hypernet, dense",
        "{ratio:.2f} {spread} times hand-written torch",
    ),
    "mnist_run": ("a run of the MNIST experiment with its probes, tests and checkpoints", PLAIN),
    "mnist_run_probe": ("… share of it spent looking inside", "{ratio:.1%}"),
    "continual_grid": (
        "the 240 runs of the paper's continual-learning grid as one program",
        "{inverse:.0f} {inverse_spread} times as fast as one by one",
    ),
    "diagnosis": ("a diagnosis of the MNIST hypernet, with lines of 5 plain nets beside it", "{ratio:.2f} {spread} s"),
    "report": ("the page of a 30-epoch run", "{ratio:.2f} {spread} s, {size:.1f} MB"),
}
"""Benchmark → what was measured, and a template for its numbers."""


def read(name: str) -> dict:
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())


def numbers(name: str) -> dict[str, object]:
    """The numbers of a benchmark that a template may name."""
    result = read(name)
    low, high = result["ratio"].get("quartiles", (1, 1))
    times = result.get("times_ours", {"": 1.0})
    return {
        "ratio": result["ratio"]["median"],
        "spread": f"[{low:.3g}, {high:.3g}]",
        "inverse": 1 / result["ratio"]["median"],
        "inverse_spread": f"[{1 / high:.3g}, {1 / low:.3g}]",
        "dense": result.get("dense_autograd"),
        "low": min(times.values()),
        "high": max(times.values()),
        "torch": min(value for peer, value in times.items() if "hyper-nn" not in peer),
        "size": read("report_size")["ratio"]["median"],
    }


def table() -> str:
    """Each claim with what was measured."""
    head = ["| 2 CPU cores; median [quartiles] of interleaved rounds | measured | |", "|---|---|---|"]
    rows = [
        f"| {what} | {template.format(**numbers(name))} | [json](benchmarks/results/{name}.json) |"
        for name, (what, template) in LINES.items()
    ]
    return "\n".join([*head, *rows, ""])


def filled(readme: str) -> str:
    """The README with the table as the results have it."""
    return MARKS.sub(lambda m: m[1] + table() + m[2], readme)


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
