"""Two things timed in turn, compared as a ratio: noise of the machine hits both alike."""

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def compare(name: str, claim: str, ours: Callable[[], object], theirs: Callable[[], object], limit: float, rounds: int):
    """Time both in turn, print and store the ratio, and say whether its median is within the limit."""
    for _ in range(5):
        ours()
        theirs()
    times = {"ours": [], "theirs": []}
    for i in range(rounds):
        pair = [("ours", ours), ("theirs", theirs)]
        for key, function in pair if i % 2 else reversed(pair):
            start = time.perf_counter()
            function()
            times[key].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(times["ours"], times["theirs"], strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    result = {
        "name": name,
        "claim": claim,
        "limit": limit,
        "holds": median <= limit,
        "ratio": {"median": median, "quartiles": [low, high], "rounds": rounds},
        "median_ms": {key: 1e3 * statistics.median(values) for key, values in times.items()},
        "environment": environment(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    verdict = "holds" if result["holds"] else "DOES NOT HOLD"
    print(f"{name}: {median:.3f} [{low:.3f}, {high:.3f}] over {rounds} rounds, limit {limit}: {verdict}")
    return result["holds"]


def environment() -> dict[str, object]:
    """What the numbers were measured on."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }
