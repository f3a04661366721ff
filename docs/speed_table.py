"""Write the README's table of speeds from benchmarks/results: ``python docs/speed_table.py``."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARKS = re.compile(r"(<!-- numbers: docs/speed_table.py -->\n).*?(<!-- end -->)", re.DOTALL)


def table() -> str:
    """Each claim with what was measured."""
    results = {p.stem: json.loads(p.read_text()) for p in (ROOT / "benchmarks/results").glob("*.json")}

    def ratio(name: str) -> float:
        return results[name]["ratio"]["median"]

    def spread(name: str, inverse: bool = False) -> str:
        low, high = results[name]["ratio"]["quartiles"]
        low, high = (1 / high, 1 / low) if inverse else (low, high)
        return f"[{low:.3g}, {high:.3g}]"

    def link(name: str) -> str:
        return f"[json](benchmarks/results/{name}.json)"

    documented = results["peer_step"]["times_ours"].values()
    tuned = results["peer_step_tuned"]["times_ours"]
    torch_tuned = min(value for name, value in tuned.items() if "hyper-nn" not in name)
    lines = [
        (
            "training_step",
            "a training step of the MNIST hypernet",
            f"{ratio('training_step'):.2f} {spread('training_step')} times the plain net's",
        ),
        (
            "peer_step",
            "… in other libraries, as documented (one embedding, a head for each weight, in ours too)",
            f"{min(documented):.0f} to {max(documented):.0f} times ours",
        ),
        (
            "peer_step_tuned",
            "… in other libraries, tuned (heads shared where they can be)",
            f"{torch_tuned:.0f} times ours in PyTorch, {min(tuned.values()):.1f} in JAX",
        ),
        (
            "all_cnn_step",
            "a training step of an All-CNN hypernet, shared heads, batch 100",
            f"{ratio('all_cnn_step'):.2f} {spread('all_cnn_step')} times the plain net's",
        ),
        (
            "all_cnn_chunks_step",
            "… its weights in 1943 chunks, an input layer for each",
            f"{ratio('all_cnn_chunks_step'):.2f} {spread('all_cnn_chunks_step')} times the plain net's",
        ),
        (
            "mobilenet_head",
            "generating and updating MobileNet's 134.7 M head weights, noisy embeddings",
            f"{1 / ratio('mobilenet_head'):.1f} {spread('mobilenet_head', inverse=True)} times dense autograd's speed",
        ),
        (
            "mobilenet_head_memory",
            "… bytes at peak, over those of the parameters",
            f"{ratio('mobilenet_head_memory'):.2f}; dense {results['mobilenet_head_memory']['dense_autograd']:.2f}",
        ),
        (
            "mobilenet_training_memory",
            "training it: bytes at peak beside the mainnet's own, over those of the parameters",
            f"{ratio('mobilenet_training_memory'):.2f}; dense "
            f"{results['mobilenet_training_memory']['dense_autograd']:.2f}",
        ),
        (
            "per_sample",
            "64 samples of the MNIST net, each with its own code, forward and backward",
            f"{1 / ratio('per_sample'):.1f} {spread('per_sample', inverse=True)} times vmap(functional_call)'s speed",
        ),
        (
            "per_sample_memory",
            "… memory beyond parameters and gradients",
            f"{ratio('per_sample_memory'):.2f} of it",
        ),
        (
            "forward_overhead",
            "forward and backward of the MNIST hypernet, dense",
            f"{ratio('forward_overhead'):.2f} {spread('forward_overhead')} times hand-written torch",
        ),
        (
            "mnist_run",
            "a run of the MNIST experiment with its probes, tests and checkpoints",
            f"{ratio('mnist_run'):.2f} {spread('mnist_run')} times the plain net's",
        ),
        (
            "mnist_run_probe",
            "… share of it spent looking inside",
            f"{ratio('mnist_run_probe'):.1%}",
        ),
        (
            "continual_grid",
            "the 240 runs of the paper's continual-learning grid as one program",
            f"{1 / ratio('continual_grid'):.0f} {spread('continual_grid', inverse=True)} times as fast as one by one",
        ),
        (
            "diagnosis",
            "a diagnosis of the MNIST hypernet, with lines of 5 plain nets beside it",
            f"{ratio('diagnosis'):.2f} {spread('diagnosis')} s",
        ),
        (
            "report",
            "the page of a 30-epoch run",
            f"{ratio('report'):.2f} {spread('report')} s, {ratio('report_size'):.1f} MB",
        ),
    ]
    head = ["| 2 CPU cores; median [quartiles] of interleaved rounds | measured | |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {what} | {measured} | {link(name)} |" for name, what, measured in lines), ""])


def filled(readme: str) -> str:
    """The README with the table as the results have it."""
    return MARKS.sub(lambda m: m[1] + table() + m[2], readme)


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
