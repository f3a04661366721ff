"""The model of many machines, against what the exchange of gradients does and what was counted on the wire."""

import json
from pathlib import Path

import pytest
from benchmarks.many_machines import (
    BaseSize,
    HypernetSize,
    Machine,
    memory_bytes,
    smallest_exchange,
    step_seconds,
    wire_bytes,
)

RESULTS = Path(__file__).parents[1] / "benchmarks/results/amd-epyc-2-cores"
NET, BASE, MACHINE = HypernetSize(1e6, 1e4, 2, 50), BaseSize(1e7, 100), Machine(1e12, 1e11, 1e9, 1e-3)


@pytest.mark.parametrize(
    ("name", "how"), [("collapsed", "summed"), ("factored_noise_of_each_process", "gathered")], ids=str
)
def test_the_bytes_of_two_processes_are_those_that_were_counted(name, how):
    told = json.loads((RESULTS / f"ddp_bytes_{name}.json").read_text())["per step"]
    ((_, sent),) = told["calls for heads"]
    predicted = wire_bytes(HypernetSize(0, 1_397_000, 4, 50), 2, how)  # of the paper's MNIST net
    assert sent == pytest.approx(predicted, rel=1e-3)  # a header
    assert told["bytes"] == pytest.approx(2 * predicted, rel=0.02)  # of both processes, with TCP's own


def test_one_process_sends_nothing():
    assert {wire_bytes(NET, 1, how) for how in ("dense", "summed", "gathered")} == {0}
    assert step_seconds(NET, BASE, 1, "dense", MACHINE) < step_seconds(NET, BASE, 2, "summed", MACHINE)


def test_the_exchange_of_fewest_bytes_is_taken():
    assert wire_bytes(NET, 2, "dense") / wire_bytes(NET, 2, "summed") == 100
    assert [smallest_exchange(NET, ranks, same_codes=False) for ranks in (8, 1000)] == ["gathered", "dense"]
    assert smallest_exchange(NET, 1000, same_codes=True) == "summed"


def test_a_process_holds_the_rows_of_all_others_only_if_heads_are_whole():
    """Of sharded heads it holds its columns of these rows, and the codes of all processes."""
    rows, codes, ranks = 4 * 1e4, 4 * 2 * 50, 8
    whole, sharded = (
        {how: memory_bytes(NET, BASE, ranks, how, divided) for how in ("dense", "summed", "gathered")}
        for divided in (False, True)
    )
    assert whole["gathered"] - whole["summed"] == (ranks - 1) * rows + ranks * codes
    assert sharded["gathered"] - sharded["summed"] == pytest.approx(ranks * codes)
    assert sharded["dense"] - sharded["summed"] == pytest.approx(4e6 / ranks - rows)


def test_shards_of_many_processes_are_small():
    whole, *shards = (memory_bytes(NET, BASE, ranks, "dense", ranks > 1) for ranks in (1, 8, 64))
    assert whole == 2e7 + 16e6
    assert whole / 8 < shards[0] < whole / 4
    assert shards[1] < shards[0]
