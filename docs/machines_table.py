"""Write the tables of many machines into docs/guides/many-machines.md, by ``python -m docs.machines_table``."""

import json
import re
from pathlib import Path

from benchmarks.many_machines import (
    BaseSize,
    HypernetSize,
    Machine,
    memory_bytes,
    smallest_exchange,
    step_seconds,
    wire_bytes,
)

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/guides/many-machines.md"
RESULTS = ROOT / "benchmarks/results/amd-epyc-2-cores"
MARKS = r"(<!-- {}: docs/machines_table.py -->\n).*?(<!-- end -->)"

RANK, LAYERS, HIDDEN, KEYS = 8, 32, 4096, 1024
GENERATED = LAYERS * RANK * ((HIDDEN + HIDDEN) + (HIDDEN + KEYS))
"""Both factors of the updates of q_proj and v_proj in all layers."""
NET = HypernetSize(parameters=300e6, generated=GENERATED, codes=4 * LAYERS, code_size=512)
BASE = BaseSize(parameters=7e9, tokens=4096)
DATA_SHEET = Machine(arithmetic=0.4 * 989e12, memory=3.35e12, link=50e9, latency=1e-4)
"""An H100 of which 40 % of the arithmetic is used, with 400 Gbit/s to others: what makers say, not measured here."""
BYTES = {
    "collapsed": "constant codes, `hf.SGD`",
    "collapsed_AdamW": "constant codes, `hf.AdamW`",
    "factored_trained_embeddings": "trained embeddings, `hf.SGD`",
    "factored_noise_of_each_process": "noise of each process, `hf.SGD`",
    "torchs_optimiser": "`torch.optim.SGD`",
}
SHARDED = {
    "sharded_heads": "FSDP2, `shard_heads_()`, constant codes",
    "sharded_heads_noise_of_each_process": "FSDP2, `shard_heads_()`, noise of each process",
    "fully_shard_alone": "FSDP2, `fully_shard` alone",
}


def scales() -> str:
    """From 8 to 1024 GPUs: bytes, memory and seconds of a step."""
    lines = [
        "| GPUs | received, dense | received | as | held, whole | held, sharded | step, dense | step |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for ranks in (8, 64, 128, 1024):
        how = smallest_exchange(NET, ranks, same_codes=False)
        sent = [wire_bytes(NET, ranks, each) for each in ("dense", how)]
        held = [memory_bytes(NET, BASE, ranks, how, sharded) for sharded in (False, True)]
        seconds = [step_seconds(NET, BASE, ranks, each, DATA_SHEET) for each in ("dense", how)]
        cells = [f"{sent[0] / 1e9:.2f} GB", f"{sent[1] / 1e9:.2f} GB", how, *(f"{b / 1e9:.1f} GB" for b in held)]
        lines.append(" | ".join([f"| {ranks}", *cells, *(f"{s:.3f} s" for s in seconds)]) + " |")
    return "\n".join(lines) + "\n"


def measured() -> str:
    """Bytes on the wire in two processes, and the prediction of a step's time."""
    lines = [
        "| two processes, MNIST hypernet | bytes on the wire, over the plain net's | calls |",
        "| --- | --- | --- |",
    ]
    for name, label in BYTES.items():
        told = json.loads((RESULTS / f"ddp_bytes_{name}.json").read_text())
        plain = told["per step of the plain net"]["buckets of DDP"]
        lines.append(f"| {label} | {told['ratio']['median']:.2f} | {told['calls']}, the plain net's {plain} |")
    for name, label in SHARDED.items():
        told = json.loads((RESULTS / f"fsdp_bytes_{name}.json").read_text())
        lines.append(f"| {label} | {told['ratio']['median']:.2f} | |")
    step = json.loads((RESULTS / "ddp_step.json").read_text())
    ratio = step["ratio"]["measured/predicted"]
    told = f"Forward and backward take {ratio:.2f} times what the model predicts (median of {step['rounds']} rounds)."
    return "\n".join(lines) + f"\n\n{told}\n"


def filled(page: str) -> str:
    """The page with its tables as they are now."""
    for name, table in (("scales", scales), ("measured", measured)):
        text = table()
        page = re.sub(MARKS.format(name), lambda m, text=text: m[1] + text + m[2], page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
