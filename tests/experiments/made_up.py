"""Metrics of runs that never ran, so that every number in them is known."""

import json
from pathlib import Path

from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.mnist import LAYERS
from hyperfan.probe import QUANTITIES

BATCHES = 6000


def rows(
    accuracy=(0.1, 0.9),
    losses=(1.0,),
    deviations=(1.0, 2.0, 2.0, 2.0),
    outcome="finished",
    batches=BATCHES,
    scale=1.0,
    mean=0.0,
    quantities=QUANTITIES,
):
    """A run with a test before each epoch and after the last, one training loss for each epoch, and weights' deviations
    measured at equal distances; their means are so many deviations."""
    epochs = len(accuracy) - 1
    total = epochs * batches
    out = []
    for i, value in enumerate(accuracy):
        out.append({"kind": "test", "step": i * batches, "loss": 100.0 * (1 - value), "accuracy": value})
    out += [{"kind": "train", "step": (i + 1) * batches, "loss": loss} for i, loss in enumerate(losses)]
    for i, deviation in enumerate(deviations):
        step = round(total * i / (len(deviations) - 1))
        for quantity in quantities:
            names = LAYERS if quantity in ("activations", "gradients") else [f"{p}.{r}" for p in LAYERS for r in ROLES]
            layers = {name: [mean * deviation * scale, deviation * scale] for name in names}
            out.append({"kind": "moments", "step": step, "of": quantity, "layers": layers})
            if step in (0, total) and not (step and outcome == "diverged"):
                shape = {"centre": 0.0, "unit": scale, "reach": 2 * scale, "counts": [1, 2, 4, 2, 1, 0, 0, 3, 0]}
                counted = dict.fromkeys(names, shape)
                out.append({"kind": "histograms", "step": step, "of": quantity, "layers": counted})
    end = {"kind": "end", "step": total if outcome == "finished" else 7, "outcome": outcome}
    return [*out, end if outcome == "finished" else {**end, "layer": "4"}]


ROLES = ("weight", "bias")


def write(root: Path, config: Configuration, made: list[dict]) -> Path:
    """A run folder with these metrics."""
    folder = root / config.folder
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    (folder / "env.json").write_text(json.dumps({"torch": "<script>alert(1)</script>"}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    return folder
