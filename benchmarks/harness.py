"""Two things timed in turn, compared as a ratio: noise of the machine hits both alike."""

import gc
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "5")

import torch
from torch.profiler import ProfilerActivity, profile

RESULTS = Path(__file__).parent / "results"


def compare(name: str, claim: str, ours: Callable[[], object], theirs: Callable[[], object], limit: float, rounds: int):
    """Time both in turn, print and store ours/theirs, and say whether its median is within the limit."""
    times = interleave({"ours": ours, "theirs": theirs}, rounds)
    ratios = [a / b for a, b in zip(times["ours"], times["theirs"], strict=True)]
    of_medians = statistics.median(times["ours"]) / statistics.median(times["theirs"])
    more = {"median_ms": medians(times), "ratio_of_medians": of_medians}
    return conclude(name, claim, "time", summary(ratios), limit, more)


def interleave(
    functions: dict[str, Callable[[], object]], rounds: int, warm_up: int = 5, rest: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of each call, in an order that is turned round from one round to the next, with a rest before each."""
    for _ in range(warm_up):
        for function in functions.values():
            function()
    times: dict[str, list[float]] = {key: [] for key in functions}
    for i in range(rounds):
        pairs = list(functions.items())
        for key, function in pairs if i % 2 else reversed(pairs):
            time.sleep(rest)
            start = time.perf_counter()
            function()
            times[key].append(time.perf_counter() - start)
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {key: 1e3 * statistics.median(values) for key, values in times.items()}


def summary(ratios: list[float]) -> dict[str, object]:
    low, median, high = statistics.quantiles(ratios, n=4)
    return {"median": median, "quartiles": [low, high], "rounds": len(ratios)}


def peak_bytes(function: Callable[[], object]) -> int:
    """The most that is allocated at one time by a call, beyond what was there before."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        function()
    now = most = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def conclude(name: str, claim: str, what: str, ratio: dict[str, object], limit: float, more: dict[str, object]) -> bool:
    """Print and store a ratio with its limit, and say whether the claim holds."""
    holds = ratio["median"] <= limit
    store(name, {"claim": claim, "of": what, "limit": limit, "holds": holds, "ratio": ratio, **more})
    low, high = ratio.get("quartiles", [ratio["median"]] * 2)
    spread = f" [{low:.3g}, {high:.3g}] over {ratio['rounds']} rounds" if "quartiles" in ratio else ""
    verdict = "holds" if holds else "DOES NOT HOLD"
    print(f"{name}: {ratio['median']:.3g}{spread}, limit {limit:.3g}: {verdict}", flush=True)
    return bool(holds)


def store(name: str, result: dict[str, object]) -> None:
    """Write a result, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    told = {"name": name, **result, "environment": environment()}
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=2) + "\n")


def environment() -> dict[str, object]:
    """What the numbers were measured on."""
    peers = [
        d for d in importlib.metadata.distributions() if d.name in ("hypnettorch", "hyperlight", "hyper-nn", "jax")
    ]
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        **{d.name: d.version for d in peers},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
