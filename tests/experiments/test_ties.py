"""Checkpoint, metrics, configuration and number of ranks belong together, which their checksums tell."""

import json
import os
import shutil
from dataclasses import replace

import pytest
from toy import InterruptedAfter, Silent, Toy, contents

import needs
from hyperfan.data.folder import open_picture
from hyperfan.errors import DataError, RunError
from hyperfan.experiments.continual import PROFILES
from hyperfan.experiments.folder import verify
from hyperfan.experiments.launch import Launch
from hyperfan.experiments.loop import run
from hyperfan.experiments.results.runs import read_data, read_run
from hyperfan.files import parse_json
from hyperfan.metrics import read_metrics


@pytest.fixture
def half(tmp_path):
    path = tmp_path / "half"
    assert run(Toy(), path, InterruptedAfter(4)) == "stopped"
    return path


def test_a_byte_flipped_in_the_metrics_is_noticed(half, undisturbed):
    file = half / "metrics.jsonl"
    good, saved = file.read_bytes(), json.loads((half / "checkpoint/state.json").read_text())["metrics"]
    for at in range(0, saved, saved // 20):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        for look in (lambda: run(Toy(), half, Silent(), resume=True), lambda: verify(half, Toy())):
            with pytest.raises(RunError, match=r"metrics.jsonl was changed: it does not match the checksum"):
                look()
    file.write_bytes(good[:saved] + b"of a batch that is trained again")
    verify(half, Toy())
    assert run(Toy(), half, Silent(), resume=True) == "finished"
    assert contents(half) == undisturbed


def test_metrics_that_cannot_be_read_are_one_line(half):
    file = half / "metrics.jsonl"
    file.unlink()
    file.mkdir()
    with pytest.raises(RunError, match=r"metrics.jsonl cannot be read: "):
        verify(half, Toy())


def test_a_checkpoint_of_another_run_is_noticed(half, tmp_path):
    run(Toy(seed=1, lr=0.1), tmp_path / "other", InterruptedAfter(4))
    shutil.rmtree(half / "checkpoint")
    shutil.copytree(tmp_path / "other" / "checkpoint", half / "checkpoint")
    told = f"the checkpoint in {half} is that of another run: seed was 1 and is now 0, lr was 0.1 and is now 0.05. "
    for look in (lambda: run(Toy(), half, Silent(), resume=True), lambda: verify(half, Toy())):
        with pytest.raises(RunError) as caught:
            look()
        assert str(caught.value).startswith(told)


def test_pages_of_a_run_that_was_changed_are_refused(tmp_path):
    """Also of a configuration that was changed where the checkpoint has the true one."""
    config = replace(PROFILES["smoke"], seeds=1, iterations=10, inits=("m2",))
    run(config, tmp_path, Silent())
    read_run(tmp_path)
    good = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(good.replace("1", "2", 1))
    for read in (read_run, read_data):
        with pytest.raises(RunError, match="was changed"):
            read(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(good)
    (tmp_path / "config.json").write_text(json.dumps(replace(config, beta=0.5).to_dict()))
    with pytest.raises(RunError, match=r"beta was 0.005 and is now 0.5"):
        read_run(tmp_path)


# ── numbers and files that no run writes ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", ["1" + 400 * "0", "1e400", "-1e400"])
def test_a_loss_beyond_all_numbers_is_one_line(tmp_path, number):
    (tmp_path / "metrics.jsonl").write_text(f'{{"kind": "train", "step": 1, "loss": {number}}}\n')
    with pytest.raises(RunError, match=r"metrics.jsonl is damaged in line 1: the number .* is too large"):
        read_metrics(tmp_path)


def test_json_that_is_nested_too_deeply_is_damaged():
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


@needs.POSIX
def test_a_pipe_among_pictures_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x.png is no file, but a folder, a pipe or a device"):
        open_picture(str(tmp_path / "x.png"))


# ── launchers ──────────────────────────────────────────────────────────────────────────────────────────────────────

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "here", "MASTER_PORT": "7"}
SRUN = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "123456",
        "SLURM_STEP_ID": "2", "SLURM_STEP_NODELIST": "gpu[07-09,12]"}  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "launch"),
    [
        ({}, Launch()),
        (TORCHRUN, Launch(1, 4, 0, "here", 7)),
        ({**TORCHRUN, **SRUN}, Launch(1, 4, 0, "here", 7)),
        ({k: v for k, v in TORCHRUN.items() if k != "LOCAL_RANK"}, Launch(1, 4, None, "here", 7)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Launch()),
        (SRUN, Launch(5, 8, 1, "gpu07", 20_000 + (123456 + 2) % 20_000)),
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}, Launch()),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}, Launch()),  # a batch script without srun
    ],
)
def test_which_process_this_is(variables, launch):
    assert Launch.of_environment(variables) == launch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": None}, "RANK is not set, beside other variables of a launcher: start all processes with torchrun"),
        ({"WORLD_SIZE": None}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ({"RANK": "4"}, "RANK is 4 and WORLD_SIZE is 4: ranks count from 0"),
        ({"MASTER_ADDR": None}, "WORLD_SIZE is 4 and MASTER_ADDR is not set"),
        ({"MASTER_PORT": None}, "MASTER_PORT is not set"),
    ],
)
def test_half_a_launch_is_one_line(change, message):
    variables = {name: value for name, value in {**TORCHRUN, **change}.items() if value is not None}
    with pytest.raises(RunError) as caught:
        Launch.of_environment(variables)
    assert str(caught.value).startswith(message)
