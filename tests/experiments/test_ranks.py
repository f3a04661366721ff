"""Several processes that train one run: as one does, or not at all, and not without one of them."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
from toy import Silent, Toy, ToyTraining, as_ranks, contents, reach_no_server, run_out_of_grace

import needs
from hyperfan.cli.main import main as command_line
from hyperfan.errors import RunError
from hyperfan.experiments.classifier import indices
from hyperfan.experiments.experiment import experiment
from hyperfan.experiments.group import last_beat
from hyperfan.experiments.loop import run
from hyperfan.experiments.ranks import Ranks
from hyperfan.metrics import read_metrics
from ports import free_port

pytestmark = needs.POSIX
CONTINUAL, DEMONSTRATIONS, CONDITIONS, LORA = (
    experiment(name).profiles["smoke"] for name in ("continual", "demonstrations", "conditions", "lora")
)
GOES_ON = "--resume goes on from the last checkpoint, with any number of ranks"


@pytest.fixture
def ranks(in_a_process, tmp_path):
    """Train together; returns the exit codes and what each process said."""

    def call(*configs, **more):
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        code, error = in_a_process(as_ranks, configs, tmp_path / "run", out, *more.values())
        assert (code, error) == (0, None)
        return json.loads((out / "codes").read_text()), [(out / f"{i}.txt").read_text() for i in range(len(configs))]

    return call


def losses(path):
    return [(row["step"], row["loss"]) for row in read_metrics(path) if row["kind"] == "train"]


def test_three_ranks_train_as_one_whose_parts_are_unequal(ranks, tmp_path):
    """Batches of 8 are parts of 3, 3 and 2."""
    codes, _ = ranks(*[Toy()] * 3)
    assert codes == [0, 0, 0]
    assert run(Toy(), tmp_path / "alone", Silent()) == "finished"
    for (step, loss), (other_step, other) in zip(losses(tmp_path / "alone"), losses(tmp_path / "run"), strict=True):
        assert step == other_step
        assert other == pytest.approx(loss, rel=1e-5)  # sums in another order, in single precision
    assert read_metrics(tmp_path / "run")[0] == {"kind": "ranks", "step": 0, "ranks": 3}
    assert json.loads((tmp_path / "run/checkpoint/state.json").read_text())["ranks"] == 3


@pytest.mark.parametrize("change", [{"seed": 1}, {"lr": 0.5}])
def test_ranks_with_other_options_are_refused(ranks, tmp_path, change):
    ((name, value),) = change.items()
    codes, said = ranks(Toy(), replace(Toy(), **change))
    assert codes == [2, 2]
    told = f"hyperfan: rank 1 has another run: {name} is {getattr(Toy(), name)!r} in rank 0 and {value!r} here. "
    assert all(text.startswith(told) and text.count("\n") == 1 for text in said)
    assert not (tmp_path / "run").exists()  # or the right options would be refused there


class OfCats(Toy):
    """Its plan tells what classes were found in the folder of pictures, as that of ImageNet does."""

    classes = ("cat",)

    def start(self, data_dir):
        training = super().start(data_dir)
        training.plan = {**training.plan, "data": {"classes": self.classes}}
        return training


class OfDogs(OfCats):
    classes = ("dog",)


def test_ranks_with_other_classes_are_refused(ranks, tmp_path):
    codes, said = ranks(OfCats(), OfDogs())
    assert codes == [2, 2]
    told = "data is {'classes': ('cat',)} in rank 0 and {'classes': ('dog',)} here"
    assert all(told in text and text.count("\n") == 1 for text in said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sent", "gone", "reason"),
    [
        (signal.SIGKILL, 1, "the connection to another rank was lost"),
        (signal.SIGKILL, 0, "the connection to another rank was lost"),
        (signal.SIGSTOP, 1, "rank 1 has not been heard of for 2 s"),
        (signal.SIGSTOP, 0, "rank 0 has not been heard of for 2 s"),
    ],
)
def test_a_rank_that_dies_or_is_stopped_ends_the_other_with_one_line(ranks, tmp_path, sent, gone, reason):
    codes, said = ranks(Toy(), Toy(), resume=False, action=(gone, 4, sent))
    assert codes[gone] == (-sent if sent == signal.SIGKILL else None)
    assert codes[1 - gone] == 2
    lines = said[1 - gone].splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"hyperfan: {reason}") or (gone == 0 and lines[0].startswith("hyperfan: rank 0 is gone"))
    assert lines[0].endswith(GOES_ON)
    told = Silent()
    assert run(Toy(), tmp_path / "run", told, resume=True) == "finished"
    assert told.notes[0] == f"resumed {tmp_path / 'run'} at batch 3"
    assert told.notes[1].startswith("2 ranks trained it so far, and from here 1: sums round differently")
    assert [r for r in read_metrics(tmp_path / "run") if r["kind"] == "ranks"] == [
        {"kind": "ranks", "step": 0, "ranks": 2},
        {"kind": "ranks", "step": 3, "ranks": 1},
    ]


@pytest.mark.parametrize(
    ("action", "code", "reason"),
    [
        (run_out_of_grace, 143, "rank 1 has ended: SIGTERM"),
        (reach_no_server, 70, "rank 1 has ended: RuntimeError Connection to the server of pictures failed"),
    ],
)
def test_the_others_are_told_why_a_rank_ends(ranks, action, code, reason):
    codes, said = ranks(Toy(), Toy(), resume=False, action=(1, 1, action))
    assert codes == [2, code]
    assert said[0] == f"hyperfan: {reason}: {GOES_ON}\n"


def sent_sigterm_alone(rank, path, port):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    signal.alarm(60)  # which nothing handles

    def send():
        while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            time.sleep(0.05)
        time.sleep(0.5)  # by then it waits
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    return command_line(["run", "continual", "--profile", "smoke", "--run-dir", str(path)])


@pytest.mark.parametrize("rank", [0, 1])
def test_sigterm_ends_the_wait_for_a_rank_that_never_comes(in_a_process, tmp_path, rank):
    """As torchrun sends it when a process dies before it has joined the others, which would wait for minutes."""
    assert in_a_process(sent_sigterm_alone, rank, tmp_path / "run", free_port()) == (143, None)
    assert not (tmp_path / "run").exists()


def test_a_rank_that_was_never_heard_of_is_not_waited_for():
    """A store waits for a value that is not there, and then raises."""
    store = torch.distributed.HashStore()
    store.set_timeout(timedelta(seconds=0.1))
    assert last_beat(store, 1) == b""
    store.set("beat/1", "now")
    assert last_beat(store, 1) == b"now"


def test_the_first_layer_to_overflow_may_be_that_of_another_rank():
    training = ToyTraining(Toy(), None)
    training.ranks = Ranks(0, 2, "cpu")
    training.x[indices(Toy(), 0)[1]] = math.inf  # the first picture of the other one
    assert training.first_overflow(0) == "0"


def test_sigterm_to_one_rank_saves_and_ends_all_and_the_same_ranks_go_on_bit_by_bit(ranks, tmp_path):
    assert ranks(Toy(), Toy())[0] == [0, 0]
    whole = contents(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "whole")
    codes, said = ranks(Toy(), Toy(), resume=False, action=(1, 1, signal.SIGTERM))
    assert codes == [143, 143]
    assert said == ["SIGTERM: stopped after batch 3; --resume goes on from batch 3\n", ""]
    assert ranks(Toy(), Toy(), resume=True)[0] == [0, 0]
    assert contents(tmp_path / "run") == whole


GRIDS = {
    "continual": replace(CONTINUAL, inits=("m2", "m3"), rates=(1e-2, 1e9), seeds=3, iterations=10, checkpoint_every=4),
    "demonstrations": replace(DEMONSTRATIONS, seeds=3),
    "conditions": replace(CONDITIONS, seeds=3),
    "lora": LORA,
}


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_over_two_ranks_is_the_grid_of_one(ranks, tmp_path, name):
    """Two begin, SIGTERM ends them, and one goes on. Of the continual grid, some runs diverge."""
    config = GRIDS[name]
    at = config.total // 2
    assert ranks(config, config, resume=False, action=(1, at, signal.SIGTERM))[0] == [143, 143]
    assert run(config, tmp_path / "run", Silent(), resume=True) == "finished"
    assert run(config, tmp_path / "alone", Silent()) == "finished"
    alone = read_metrics(tmp_path / "alone")
    together = [row for row in read_metrics(tmp_path / "run") if row["kind"] != "ranks"]
    assert len(together) == len(alone)
    for mine, theirs in zip(together, alone, strict=True):
        assert flat(mine) == pytest.approx(flat(theirs), rel=1e-3, abs=1e-5, nan_ok=True)
    assert (tmp_path / "run/plan.json").read_bytes() == (tmp_path / "alone/plan.json").read_bytes()


def flat(value):
    """Numbers of a line of metrics by where they are; what is no number as its text."""
    if isinstance(value, dict):
        return {f"{k}/{kk}": v for k, inner in value.items() for kk, v in flat(inner).items()}
    if isinstance(value, list):
        return {f"{i}/{kk}": v for i, inner in enumerate(value) for kk, v in flat(inner).items()}
    return {"": math.nan if value is None else value if isinstance(value, (int, float)) else float(len(value))}


@pytest.mark.full  # each process imports torch
@pytest.mark.parametrize("name", ["continual", "mnist", "cifar10"])
def test_torchrun_trains_as_one_process(tmp_path, name):
    """What users type; of MNIST and CIFAR-10, each process has a part of each batch."""
    folder = None if name == "continual" else needs.data_set(name)
    torchrun = f"-m torch.distributed.run --nproc-per-node 2 --master-port {free_port()} -m hyperfan.cli.main"
    options = f"run {name} --profile smoke --run-dir".split()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    command = [sys.executable, *torchrun.split(), *options, str(tmp_path / "two")]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    config = experiment(name).profiles["smoke"]
    assert run(config, tmp_path / "alone", Silent(), data_dir=folder) == "finished"
    two, alone = losses(tmp_path / "two"), losses(tmp_path / "alone")
    assert [loss for _, loss in two] == pytest.approx([loss for _, loss in alone], rel=1e-4)


def test_a_grid_that_is_too_small_for_its_ranks():
    with pytest.raises(RunError, match="--seeds 3 cannot be shared by 4 processes"):
        GRIDS["continual"].share(4)
    with pytest.raises(RunError, match="5 --starts cannot be shared by 6 processes"):
        LORA.share(6)


def test_a_batch_that_is_too_small_for_its_ranks(monkeypatch):
    monkeypatch.setattr(Ranks, "join", lambda device: Ranks(0, 9, "cpu"))
    with pytest.raises(RunError, match="--batch 8 cannot be shared by 9 processes"):
        ToyTraining(Toy(), None)
