"""Write the table of speeds into docs/speed.md, a column for each machine, by ``python docs/speed_table.py``."""

import json
import os
import re
from pathlib import Path

from hyperfan.text import markdown_table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
PAGE = ROOT / "docs/speed.md"
MARKS = re.compile(r"(<!-- numbers: docs/speed_table.py -->\n).*?(<!-- end -->)", re.DOTALL)
PLAIN = "{ratio:.2f} {spread} times the plain net's"
FASTER = "{inverse:.1f} {inverse_spread} times as fast as dense autograd{uncompiled}"
HAND = "{ratio:.2f} {spread} times hand-written torch"
BYTES = "{ratio:.2f}; dense {dense:.2f}"
LINES = {
    "training_step": ("a training step of the MNIST hypernet", PLAIN),
    "training_step_one_thread": ("… in one thread", PLAIN),
    "peer_step": (
        "… in other libraries, as documented (one embedding, a head for each weight, in ours too)",
        "{low:.0f} to {high:.0f} times ours",
    ),
    "peer_step_tuned": (
        "… in other libraries, tuned (heads shared where they can be)",
        "{torch:.0f} times ours in PyTorch, {low:.1f} in JAX",
    ),
    "adamw_step": ("… with AdamW, a head for each weight; dense: torch's fused AdamW", FASTER),
    "adamw_step_memory": ("… bytes at peak, over those of the parameters", BYTES),
    "peer_adam_step": (
        "… with Adam in other libraries, as documented (one embedding, a head for each weight, in ours too)",
        "{low:.1f} to {high:.1f} times ours",
    ),
    "all_cnn_step": ("a training step of an All-CNN hypernet, shared heads, batch 100", PLAIN),
    "all_cnn_chunks_step": ("… its weights in 1943 chunks, an input layer for each", PLAIN),
    "mobilenet_head": ("generating and updating MobileNet's 134.7 M head weights, noisy embeddings, SGD", FASTER),
    "mobilenet_head_bandwidth": (
        "… over the time in which memory can be read twice and written once",
        "{ratio:.2f} {spread}",
    ),
    "mobilenet_head_memory": ("… bytes at peak, over those of the parameters", BYTES),
    "mobilenet_adamw": ("… with AdamW; dense: torch's fused AdamW", FASTER),
    "mobilenet_adamw_memory": ("… bytes at peak, over those of the parameters", BYTES),
    "mobilenet_training_memory": (
        "training it with SGD: bytes at peak beside the mainnet's own, over those of the parameters",
        BYTES,
    ),
    "per_sample": (
        "64 samples of the MNIST net, each with its own code, forward and backward",
        "{inverse:.1f} {inverse_spread} times vmap(functional_call)'s speed",
    ),
    "per_sample_memory": ("… memory beyond parameters and gradients", "{ratio:.2f} of it"),
    "per_sample_adamw": (
        "… a training step with AdamW, given codes and a trunk",
        "{inverse:.1f} {inverse_spread} times vmap(functional_call)'s speed{uncompiled}",
    ),
    "per_sample_field": (
        "a training step of 16 neural fields of width 32, AdamW",
        "{ratio:.2f} {spread} times batched products by hand",
    ),
    "per_sample_call": ("a call of a small policy, one observation and one condition", HAND),
    "per_sample_call_with_gradients": ("… with gradients", HAND),
    "ragged": (
        "64 codes for 1 to 16 rows each, forward and backward",
        "{ratio:.2f} {spread} times padded products by hand",
    ),
    "lora_step_grouped": (
        "a training step of LoRA for a Llama of 4 layers, 8 tasks × 4 samples × 32 tokens, AdamW",
        "{ratio:.2f} {spread} times hooks and batched products by hand",
    ),
    "lora_step_per_sample": ("… a condition for each sample", "{ratio:.2f} {spread} times hooks by hand"),
    "lora_building_small_memory": (
        "building such a net: bytes at peak beside the frozen model, over those of the parameters",
        "{ratio:.2f}",
    ),
    "lora_building_memory": ("… for a Llama of width 512 instead of 128", "{ratio:.2f}"),
    "forward_overhead": (
        "forward and backward of the MNIST hypernet, dense",
        HAND,
    ),
    "mnist_run": ("a run of the MNIST experiment with its probes, tests and checkpoints", PLAIN),
    "mnist_run_probe": ("… share of it spent looking inside", "{ratio:.2%}"),
    "continual_grid": (
        "the 240 runs of the paper's continual-learning grid as one program",
        "{inverse:.0f} {inverse_spread} times as fast as one by one",
    ),
    "diagnosis": ("a diagnosis of the MNIST hypernet, with lines of 5 plain nets beside it", "{ratio:.2f} {spread} s"),
    "report": ("the page of a 30-epoch run", "{ratio:.2f} {spread} s, {size:.1f} MB"),
}
"""Benchmark → what was measured, and a template for its numbers."""


def machines() -> list[Path]:
    """The folder of each machine's results."""
    return sorted(path for path in RESULTS.iterdir() if path.is_dir())


def read(machine: Path, name: str) -> dict | None:
    """A result of a machine, if it is there."""
    path = machine / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def heading(machine: Path) -> str:
    """The CPU of a machine, and its cores."""
    cores = machine.name.split("-")[-2]
    processor = json.loads(next(machine.glob("*.json")).read_text())["environment"]["processor"]
    return f"{processor}, {cores} cores"


def numbers(machine: Path, result: dict) -> dict[str, object]:
    """The numbers of a benchmark that a template may name."""
    low, high = result["ratio"].get("quartiles", (1, 1))
    times = result.get("times_ours", {"": 1.0})
    uncompiled, size = read(machine, f"{result['name']}_uncompiled"), read(machine, "report_size")
    return {
        "ratio": result["ratio"]["median"],
        "spread": f"[{low:.3g}, {high:.3g}]",
        "inverse": 1 / result["ratio"]["median"],
        "inverse_spread": f"[{1 / high:.3g}, {1 / low:.3g}]",
        "uncompiled": f", {1 / uncompiled['ratio']['median']:.1f} without a compiler" if uncompiled else "",
        "dense": result.get("dense_autograd"),
        "low": min(times.values()),
        "high": max(times.values()),
        "torch": min(value for peer, value in times.items() if "hyper-nn" not in peer),
        "size": size["ratio"]["median"] if size else None,
    }


def cell(machine: Path, name: str, template: str) -> str:
    """What a machine measured, or a dash."""
    result = read(machine, name)
    if result is None:
        return "–"
    link = f"[json]({Path(os.path.relpath(machine / name, PAGE.parent)).as_posix()}.json)"
    form = "{:.3g}%" if "%}" in template else "{:g}"
    limit = form.format(result["limit"] * (100 if "%}" in template else 1)) if result.get("holds") is False else ""
    over = f", over its limit of {limit}" if limit else ""
    return f"{template.format(**numbers(machine, result))}{over} ({link})"


def table() -> str:
    """Each claim with what was measured on each machine."""
    columns = machines()
    known = {path.stem for machine in columns for path in machine.glob("*.json")}
    header = ["median [quartiles] of interleaved rounds", *map(heading, columns)]
    rows = [
        [what, *(cell(machine, name, template) for machine in columns)]
        for name, (what, template) in LINES.items()
        if name in known
    ]
    return f"{markdown_table(header, rows)}\n"


def filled(page: str) -> str:
    """The page with the table as the results have it."""
    return MARKS.sub(lambda m: m[1] + table() + m[2], page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
