"""Several processes train as one: DDP with torch's optimisers and with ours, in every plan."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import rank_cases
import torch

WORKER = Path(__file__).with_name("rank_worker.py")
TOLERANCE = 1e-10
"""Of parameters, which are of the order of 1."""
EVENTS = {
    "plans_change": TOLERANCE,
    "gradients_are_clipped_by_value": TOLERANCE,
    "the_optimiser_is_released": TOLERANCE,
    "some_processes_lack_a_gradient": TOLERANCE,
    "rates_differ": "lr' is 0.1 on rank 0 and 0.2 on rank 1",
    "plans_differ": "'heads.3x5: plan' is collapsed on rank 0 and dense on rank 1",
    "inputs_run_out": "give every process as many batches",
    "ddp_is_copied": "take ddp.module",
    "calls": ["all-reduce"],
}
"""What is expected of each: a line, or how far off all may be."""
needs_distributed = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without it")


def together(folder: Path, world: int, cases: list[rank_cases.Case]) -> list[dict]:
    """What each of so many processes tells of some cases."""
    torch.save(cases, folder / "cases.pt")
    environment = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    environment["MASTER_PORT"] = str(_free_port())
    environment["PYTHONPATH"] = os.pathsep.join([*sys.path, str(WORKER.parents[1])])
    processes = [
        subprocess.Popen([sys.executable, str(WORKER), str(folder)], env={**environment, "RANK": str(r)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for r in range(world)
    ]  # fmt: skip
    said = [process.communicate(timeout=1200)[0] for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(said)
    return [torch.load(folder / f"{world}-{rank}.pt", weights_only=False) for rank in range(world)]


@needs_distributed
@pytest.mark.parametrize("world", [2, 3])
def test_processes_train_as_one(tmp_path, request, world):
    """To 1e-10 after 50 steps: one start of processes for all cases, which takes longer than the cases."""
    full = request.config.getoption("full")
    cases, with_events = rank_cases.cases(world, full), full or world == 2
    if with_events:
        (tmp_path / "events").mkdir()
    told, worst = together(tmp_path, world, cases), {}
    for case in cases:
        for each in told:
            assert not isinstance(each.get(case), str), f"{case}: {each[case]}"
        for name, expected in rank_cases.oracle(case, world).items():
            for each in told:
                worst[case] = max(worst.get(case, 0.0), (each[case][name] - expected).abs().max().item())
    assert {case: off for case, off in worst.items() if not off <= TOLERANCE} == {}
    for each in told:
        for event, expected in EVENTS.items() if with_events else ():
            if isinstance(expected, str):
                assert expected in each[event], event
                assert "\n" not in each[event], event
            elif isinstance(expected, float):
                assert not isinstance(each[event], str), f"{event}: {each[event]}"
                assert each[event] <= expected, event
            else:
                assert each[event] == expected, event


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
