"""Scalars for TensorBoard, read back as TensorBoard reads them."""

import sys

import pytest
from toy import InterruptedAfter, Silent, Toy

from hyperfan.errors import RunError
from hyperfan.experiments.loop import run
from hyperfan.experiments.progress import Board
from hyperfan.metrics import read_metrics


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def expected(path):
    """Of the lines of metrics; TensorBoard holds single precision."""
    made = {}
    for row in read_metrics(path):
        values = {}
        if row["kind"] == "train":
            values = {"train/loss": row["loss"]}
        elif row["kind"] == "test":
            values = {"test/loss": row["loss"], "test/accuracy": row["accuracy"]}
        elif row["kind"] == "moments":
            for where, (mean, std) in row["layers"].items():
                values |= {f"{row['of']} mean/{where}": mean, f"{row['of']} std/{where}": std}
        for tag, value in values.items():
            made.setdefault(tag, []).append((row["step"], pytest.approx(value, rel=2**-24, abs=1e-38)))
    return made


def test_every_number_is_a_scalar(tmp_path):
    run(Toy(), tmp_path / "run", Silent(), sinks=(Board(tmp_path / "board").record,))
    assert scalars(tmp_path / "board") == expected(tmp_path / "run")


def test_a_resumed_run_replaces_what_came_after_its_checkpoint(tmp_path):
    """Nothing is there twice, and nothing is lost of what came before."""
    path, board = tmp_path / "run", tmp_path / "board"
    first = Board(board)
    assert run(Toy(), path, InterruptedAfter(4), sinks=(first.record,)) == "stopped"
    assert [step for step, _ in scalars(board)["train/loss"]] == [2, 4], "it is not on disk at once"
    run(Toy(), path, Silent(), resume=True, sinks=(Board(board).record,))
    assert scalars(board) == expected(path)
    first._writer.close()


def test_without_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RunError, match=r"^--tensorboard needs TensorBoard: pip install 'hyperfan\[tensorboard\]'$"):
        Board(tmp_path)
