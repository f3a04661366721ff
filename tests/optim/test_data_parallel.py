"""Several processes train as one: under DDP with torch's optimisers and with ours, in every plan, and under FSDP2."""

import os
import subprocess
import sys
from pathlib import Path

import rank_cases
import rank_events
import shard_events
import torch
from torch import nn

import hyperfan as hf
from ports import free_port

WORKER = Path(__file__).with_name("rank_worker.py")
TOLERANCE = 1e-10
"""Of parameters, which are of the order of 1."""
EVENTS = {
    "plans_change": TOLERANCE,
    "gradients_are_clipped_by_value": TOLERANCE,
    "the_optimiser_is_released": TOLERANCE,
    "some_processes_lack_a_gradient": TOLERANCE,
    "some_processes_reach_no_head": TOLERANCE,
    "backward_passes_add_up": TOLERANCE,
    "rates_differ": "lr' is 0.1 on rank 0 and 0.2 on rank 1",
    "optimisers_differ": "optimiser' is hyperfan's, SGDRule on rank 0 and torch's on rank 1",
    "plans_differ": "plan' is collapsed on rank 0 and dense on rank 1",
    "inputs_run_out": "give every process as many batches",
    "ddp_is_copied": "take ddp.module",
    "calls": ["all-reduce"],
    "shards_train_as_one": TOLERANCE,
    "sharded_heads_train_as_one": TOLERANCE,
    "seeds_differ": "call torch.manual_seed with one seed in all processes",
    "rates_of_shards_differ": "lr' is 0.1 on rank 0 and 0.2 on rank 1",
    "optimisers_of_shards_differ": "optimiser' is hyperfan's, SGDRule on rank 0 and torch's on rank 1",
    "shards_are_drawn_from_meta": 0.0,
    "sharded_nets_are_read": TOLERANCE,
    "a_disk_is_full": "could not be written: the disk is full",
    "a_trainer_saves_shards": TOLERANCE,
    "sharded_nets_are_refused": [],
    "checkpoints_are_saved_by_two": None,
}
"""What is expected of each: a line, or how far off all may be."""


def together(folder: Path, world: int, cases: list[rank_cases.Case]) -> list[dict]:
    """What each of so many processes tells of some cases."""
    torch.save(cases, folder / "cases.pt")
    environment = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    environment["MASTER_PORT"] = str(free_port())
    environment["PYTHONPATH"] = os.pathsep.join([*sys.path, str(WORKER.parents[1])])
    processes = [
        subprocess.Popen([sys.executable, str(WORKER), str(folder)], env={**environment, "RANK": str(r)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for r in range(world)
    ]  # fmt: skip
    said = [process.communicate(timeout=1200)[0] for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(said)
    return [torch.load(folder / f"{world}-{rank}.pt", weights_only=False) for rank in range(world)]


def test_processes_train_as_one(tmp_path, request):
    """To 1e-10: two processes, started once, as that takes longer than the cases; in full also three."""
    worst, full = {}, request.config.getoption("full")
    for world in (2, 3) if full else (2,):
        cases = rank_cases.cases(world, full)
        told = together(tmp_path, world, cases)
        for case in cases:
            learnt = rank_cases.oracle(case, world)
            for rank, each in enumerate(told):
                assert not isinstance(each.get(case), str), f"{case}: {each[case]}"
                off = torch.stack([(each[case][name] - t).abs().max() for name, t in learnt.items()])
                worst[world, rank, case] = off.max().item()  # NaN if any is, which Python's max() may pass over
        if world == 2:
            check_events(told)
            assert shard_events.load_checkpoint(tmp_path, "two", save_as="one") == 0
        else:
            assert [each["loaded"] for each in told] == [0, 0, 0]
    assert {case: off for case, off in worst.items() if not off <= TOLERANCE} == {}


def check_events(told: list[dict]) -> None:
    for event, each in ((event, each[event]) for event in rank_events.EVENTS for each in told):
        expected = EVENTS[event]
        if isinstance(expected, str):
            assert expected in each, event
            assert "\n" not in each, event
        elif isinstance(expected, float):
            assert not isinstance(each, str), f"{event}: {each}"
            assert each <= expected, event
        else:
            assert each == expected, event


def test_batch_norm_is_converted():
    """Torch's conversion finds the mainnet's layers, and it is the converted one that runs."""
    mainnet = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    net = nn.SyncBatchNorm.convert_sync_batchnorm(hf.HyperNet(mainnet, 7))
    assert isinstance(net.mainnet[1], nn.SyncBatchNorm)
    net(torch.randn(3, 4))
    assert net.mainnet[1].num_batches_tracked == 1
