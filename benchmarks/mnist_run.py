"""A run of the MNIST experiment with its probes, tests and checkpoints, beside the same run of the plain net."""

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.harness import conclude, main, summary
from hyperfan.data import mnist
from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.loop import run as train
from hyperfan.experiments.mnist import PROFILES
from hyperfan.experiments.progress import Progress

CLAIM = (
    "a run of the MNIST experiment at full scale with hyperfan-in, probes, tests and checkpoints included, takes at "
    "most 1.5 times as long as that of the classical net, both running at the same time, one core each"
)
PROBE_CLAIM = "looking inside takes at most 5 % of a run's time"
ONE_EPOCH = replace(PROFILES["paper"], epochs=1)
INITS = ("hyperfan-in", CLASSICAL)


def measure(init: str) -> dict[str, float]:
    """Seconds of each part of a run of one epoch.

    What a full run does once, two histograms and two checkpoints at the ends, is in it, so it says rather too much.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        train(replace(ONE_EPOCH, init=init), path, Progress(Console(quiet=True)))
        times: dict[str, float] = json.loads((path / "time.json").read_text())
    return {part: seconds for part, seconds in times.items() if part != "batches"}


def both() -> dict[str, dict[str, float]]:
    """The two side by side."""
    command = [sys.executable, "-m", "benchmarks.mnist_run"]
    running = {init: subprocess.Popen([*command, init], stdout=subprocess.PIPE) for init in INITS}
    return {init: json.loads(process.communicate()[0]) for init, process in running.items()}


def run(rounds: int = 5) -> bool:
    mnist()  # an error here, if the data are missing, and not in a process further down
    found = [both() for _ in range(rounds)]
    ratios = [sum(f["hyperfan-in"].values()) / sum(f[CLASSICAL].values()) for f in found]
    probing = [times["probing"] / sum(times.values()) for f in found for times in f.values()]
    parts = {init: {part: statistics.median(f[init][part] for f in found) for part in found[0][init]} for init in INITS}
    more = {"median_seconds_of_an_epoch": parts}
    fast = conclude("mnist_run", CLAIM, "time", summary(ratios), 1.5, more)
    light = conclude("mnist_run_probe", PROBE_CLAIM, "share", summary(probing), 0.05, {})
    return fast and light


if __name__ == "__main__":
    main("mnist_run", run, measure)
