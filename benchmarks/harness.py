"""Several things timed in turn, compared as a ratio: noise of the machine hits all alike.

A limit is relative to what the machine can do, as measured in the same process: the step of a plain net, or the rate
at which memory is read and written. A ratio to anything else is reported, without a limit.
"""

import gc
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("KINETO_LOG_LEVEL", "5")

import torch
from torch.profiler import ProfilerActivity, profile

from hyperfan.errors import DataError

RESULTS = Path(__file__).parent / "results"
DOES_NOT_HOLD, NOT_RUN = 1, 2
"""Exit codes: a claim does not hold, or the benchmark failed; its data are missing."""
LARGE_BLOCK = 28 * 2**20
"""Bytes of a block that raises the limit of glibc's allocator; above 32 MiB it would not."""
Times = dict[str, list[float]]
"""Seconds of each round, by what was timed."""


def main(name: str, run: Callable[[], bool], measure: Callable[[str], object] | None = None) -> NoReturn:
    """Command line of a benchmark: run it, or, given an argument, print as JSON what is measured in this process."""
    if measure is not None and len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        sys.exit(0)
    try:
        sys.exit(0 if run() else DOES_NOT_HOLD)
    except DataError as error:
        print(f"{name}: not run: {error}", flush=True)
        sys.exit(NOT_RUN)


def measured(name: str, argument: object, before: Sequence[str] = ()) -> Any:
    """What a benchmark measures in a process of its own, started by a command that may stand before it."""
    command = [*before, sys.executable, "-m", f"benchmarks.{name}", str(argument)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def pooled(name: str, rounds: int, processes: int) -> list[Times]:
    """Times of a benchmark in several processes: how memory happens to lie makes one differ from the next."""
    return [measured(name, rounds) for _ in range(processes)]


def compare(name: str, claim: str, ours: Callable[[], object], theirs: Callable[[], object], limit: float, rounds: int):
    """Time both in turn, print and store ours/theirs, and say whether its median is within the limit."""
    return compare_times(name, claim, [interleave({"ours": ours, "theirs": theirs}, rounds)], limit)


def compare_times(
    name: str,
    claim: str,
    runs: list[Times],
    limit: float | None,
    ours: str = "ours",
    theirs: str = "theirs",
    scale: float = 1.0,
) -> bool:
    """Print and store ours/(scale · theirs) over the rounds of all processes; returns whether its median is within."""
    ratios = [[a / (scale * b) for a, b in zip(times[ours], times[theirs], strict=True)] for times in runs]
    every = {key: [t for times in runs for t in times[key]] for key in runs[0]}
    more: dict[str, object] = {"ours": ours, "theirs": theirs, "median_ms": medians(every)}
    if scale != 1:
        more["scale_of_theirs"] = scale
    if len(runs) > 1:
        more["median_of_each_process"] = sorted(map(statistics.median, ratios))
    return conclude(name, claim, "time", summary([r for each in ratios for r in each]), limit, more)


def memory_pass(numel: int) -> Callable[[], object]:
    """A function that reads and writes as many float32 values, in place, as an optimiser's step does.

    A copy would also read the target's lines before it writes them: it takes twice as long for the same bytes.
    """
    values = torch.ones(numel)
    return lambda: values.mul_(1.0)


def keep_freed_memory() -> None:
    """Let the allocator keep what is freed, for all that is timed alike.

    glibc gives pages at the end of the heap back to the system, and each costs a fault when it is needed again, once
    more memory is free there than twice the largest block that was ever freed: a step of small nets then takes up to a
    fifth longer or not, as its blocks happen to lie. One large block, freed, raises that limit.
    """
    torch.ones(LARGE_BLOCK // 4)


def interleave(functions: dict[str, Callable[[], object]], rounds: int, warm_up: int = 5, rest: float = 0.0) -> Times:
    """Seconds of each call, in an order that is turned round from one round to the next, with a rest before each."""
    keep_freed_memory()
    for _ in range(warm_up):
        for function in functions.values():
            function()
    times: Times = {key: [] for key in functions}
    for i in range(rounds):
        pairs = list(functions.items())
        for key, function in pairs if i % 2 else reversed(pairs):
            time.sleep(rest)
            start = time.perf_counter()
            function()
            times[key].append(time.perf_counter() - start)
    return times


def medians(times: Times) -> dict[str, float]:
    """Milliseconds."""
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


def conclude(
    name: str, claim: str, what: str, ratio: dict[str, Any], limit: float | None, more: dict[str, object]
) -> bool:
    """Print and store a ratio with its limit; returns whether the claim holds, as it does if it has no limit."""
    holds = None if limit is None else bool(ratio["median"] <= limit)
    store(name, {"claim": claim, "of": what, "limit": limit, "holds": holds, "ratio": ratio, **more})
    low, high = ratio.get("quartiles", [ratio["median"]] * 2)
    spread = f" [{low:.3g}, {high:.3g}] over {ratio['rounds']} rounds" if "quartiles" in ratio else ""
    verdict = "reported" if limit is None else f"limit {limit:.3g}: {'holds' if holds else 'DOES NOT HOLD'}"
    print(f"{name}: {ratio['median']:.3g}{spread}, {verdict}", flush=True)
    return holds is not False


def store(name: str, result: dict[str, object]) -> None:
    """Write a result to the folder of this machine, with what it was measured on."""
    folder = RESULTS / machine()
    folder.mkdir(parents=True, exist_ok=True)
    told = {"name": name, **result, "environment": environment()}
    (folder / f"{name}.json").write_text(json.dumps(told, indent=2) + "\n")


def machine() -> str:
    """The folder's name of this machine."""
    return machine_name(_processor(), _cores())


def machine_name(processor: str, cores: int) -> str:
    """A folder's name: "Intel(R) Xeon(R) CPU @ 2.20GHz" with 2 cores is intel-xeon-cpu-2.20ghz-2-cores."""
    words = re.findall(r"[a-z0-9.]+", re.sub(r"\((r|tm)\)", " ", processor.lower()))
    return "-".join([*words, str(cores), "cores"])


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
        "cores": _cores(),
        "threads": torch.get_num_threads(),
        **{d.name: d.version for d in peers},
    }


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
