"""Kill a random rank of a run, and a random worker of a sweep, at random instants: what is lost, and who hangs?

Not timed, and not part of "make benchmark": python -m benchmarks.kills, which takes some minutes.
"""

import contextlib
import os
import random
import signal
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"

import torch

from benchmarks import harness
from hyperfan.cli.main import main as hyperfan
from hyperfan.experiments.continual import PROFILES
from hyperfan.experiments.loop import run
from hyperfan.experiments.progress import Notes
from hyperfan.experiments.sweep import sweep
from hyperfan.experiments.sweep.folders import finished_outcome

RANK_KILLS, WORKER_KILLS = 25, 25
HANG_SECONDS = 30.0
SIGTERM_SECONDS = 20.0
"""After which a rank that still waits, for one that was killed before it came, is sent SIGTERM, as torchrun does."""
BETWEEN_SECONDS = (10.0, 60.0)
"""Between two kills of a worker, after which a run's process needs some seconds to start."""
GRID = replace(PROFILES["smoke"], inits=("m2",), rates=(1e-3,), iterations=20, checkpoint_every=5)
OPTIONS = "--profile smoke --inits m2 --rates 1e-3 --iterations 20 --checkpoint-every 5 --resume".split()
"""The same on the command line."""


def results(path: Path) -> dict[str, bytes]:
    """What a run left of numbers."""
    return {file.name: file.read_bytes() for file in [*path.glob("metrics.jsonl"), *path.glob("checkpoint/*")]}


# ── ranks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def start_ranks(path: Path) -> list[int]:
    """Two ranks of a run, forked from this process, which has torch loaded."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            os.dup2(os.open(path.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            os.dup2(2, 1)
            os._exit(hyperfan(["run", "continual", *OPTIONS, "--run-dir", str(path)]))
    return children


def finish(children: list[int]) -> float:
    """Seconds until processes have ended that nobody disturbs."""
    start = time.monotonic()
    for child in children:
        os.waitpid(child, 0)
    return time.monotonic() - start


def await_end(child: int) -> tuple[float, bool]:
    """Seconds until a rank has ended whose other was killed, and whether it was sent SIGTERM; what hangs is killed."""
    start, left = time.monotonic(), [(SIGTERM_SECONDS, signal.SIGTERM), (4 * HANG_SECONDS, signal.SIGKILL)]
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if left and time.monotonic() - start > left[0][0]:
            os.kill(child, left.pop(0)[1])
        time.sleep(0.02)
    return time.monotonic() - start, len(left) < 2


def end_victim(child: int) -> None:
    """It may be stopped, and may have been waited for."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def kill_ranks(root: Path, dice: random.Random) -> dict[str, object]:
    """Kill one of two ranks, again and again, and compare with two that nobody killed."""
    whole = finish(start_ranks(root / "undisturbed"))
    expected = results(root / "undisturbed")
    seconds, terminated, runs, lost, differing, kills = [], 0, 0, 0, 0, 0
    while kills < RANK_KILLS:
        path = root / f"ranks-{runs}"
        while finished_outcome(path, GRID) is None and kills < RANK_KILLS:
            children = start_ranks(path)
            time.sleep(dice.uniform(0, whole))
            victim = children.pop(dice.randrange(2))
            if os.waitpid(victim, os.WNOHANG) == (0, 0):
                os.kill(victim, dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]))
                kills += 1
            waited, sent = await_end(children[0])
            end_victim(victim)
            seconds, terminated = [*seconds, waited], terminated + sent
            said = path.with_suffix(".txt").read_text().splitlines()[-1:]
            print(f"{kills} kills, {waited:.1f} s until the other had ended", *said, flush=True)
        if finished_outcome(path, GRID) is None:
            finish(start_ranks(path))
        lost += finished_outcome(path, GRID) is None
        differing += results(path) != expected
        runs += 1
    return {
        "kills": kills,
        "runs": runs,
        "lost": lost,
        "differing": differing,
        "longest_wait": max(seconds),
        "sent_sigterm": terminated,
    }


# ── workers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def kill_workers(root: Path, dice: random.Random) -> dict[str, object]:
    """Kill one of two workers of a Dask cluster, again and again, while a sweep goes on."""
    import threading

    import dask
    import distributed
    from rich.console import Console

    configs = [replace(GRID, seed=seed) for seed in range(4)]
    for config in configs:
        run(config, root / f"alone-{config.seed}", Notes(Console(quiet=True)))
    kills, over = [], threading.Event()
    # A local cluster gives up a worker that is away for 15 s, which a busy machine needs to start one.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
    sweeps, lost, differing = 0, 0, 0
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:

        def kill() -> None:
            while len(kills) < WORKER_KILLS and not over.wait(dice.uniform(*BETWEEN_SECONDS)):
                workers = list(cluster.workers.values())
                process = dice.choice(workers).process if workers else cluster.scale(2)
                if process is not None and process.pid:
                    os.kill(process.pid, signal.SIGKILL)
                    kills.append(process.pid)
                    print(f"{len(kills)} kills", flush=True)

        threading.Thread(target=kill, daemon=True).start()
        while len(kills) < WORKER_KILLS:
            runs = {root / f"sweep-{sweeps}/{config.seed}": config for config in configs}
            ended = sweep(runs, on=cluster.scheduler_address, resume=True)
            lost += sum(ended.get(path) != "finished" for path in runs)
            differing += sum(results(path) != results(root / f"alone-{path.name}") for path in runs)
            sweeps += 1
            print(f"{sweeps * len(configs)} runs, {lost} lost, {differing} differ", flush=True)
        over.set()
    return {"kills": len(kills), "runs": sweeps * len(configs), "lost": lost, "differing": differing}


def main(which: list[str]) -> bool:
    """Kill ranks, workers or both, with one seed; returns whether nothing was lost, hung or differed."""
    torch.set_num_threads(1)
    held = True
    with tempfile.TemporaryDirectory() as folder:
        for name in which or ("ranks", "workers"):
            found = {"ranks": kill_ranks, "workers": kill_workers}[name](Path(folder), random.Random(0))
            holds = found.get("longest_wait", 0) <= HANG_SECONDS and not found["lost"] and not found["differing"]
            waited = f"no hang over {HANG_SECONDS:.0f} s, " if "longest_wait" in found else ""
            claim = f"{waited}no run lost, and results as without kills"
            harness.store(f"kills_{name}", {"claim": claim, "holds": holds, **found})
            print(name, found, "holds" if holds else "DOES NOT HOLD", flush=True)
            held = held and holds
    return held


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
