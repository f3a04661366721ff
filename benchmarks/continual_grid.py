"""The paper's continual-learning grid as one batched program, beside the same runs one after another."""

import sys
from pathlib import Path

import torch

from benchmarks.harness import conclude, interleave, main, medians, summary
from hyperfan.experiments.continual import Continual, GridRun
from hyperfan.experiments.continual.training import ContinualTraining

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/experiments"))

from continual_alone import alone

CLAIM = (
    "an iteration of the paper's continual-learning grid, 240 runs side by side, takes at most a twentieth of the time "
    "of the same runs one after another, estimated from a run of each init with two seeds"
)
RATE = 1e-5
"""At which none of the sample diverges; time does not depend on it."""


def run(rounds: int = 100) -> bool:
    """As many iterations of each of the three tasks."""
    torch.set_num_threads(1)
    warm_up = 5
    config = Continual(seeds=15, iterations=rounds + warm_up, log_every=rounds + warm_up)
    training = ContinualTraining(config)
    steps = iter(range(config.total))
    sample = [alone(config, GridRun(init, RATE, seed))[1] for init in config.inits for seed in (0, 1)]
    times: dict[str, list[float]] = {"together": [], "alone": []}
    for _ in range(3):
        task = interleave(
            {"together": lambda: training.step(next(steps)), "alone": lambda: [next(one) for one in sample]},
            rounds,
            warm_up,
        )
        for key, values in task.items():
            times[key] += values
    scale = len(config.runs) / len(sample)
    ratios = [a / (scale * b) for a, b in zip(times["together"], times["alone"], strict=True)]
    more = {"median_ms": medians(times), "runs": len(config.runs), "sample": len(sample)}
    return conclude("continual_grid", CLAIM, "time", summary(ratios), 1 / 20, more)


if __name__ == "__main__":
    main("continual_grid", run)
