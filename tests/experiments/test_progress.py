"""What is seen of a run."""

import io

import pytest
from rich.console import Console
from toy import InterruptedAfter, Toy

from hyperfan.experiments import progress
from hyperfan.experiments.loop import run
from hyperfan.experiments.progress import Bars, Lines, Status, progress_on


def test_a_status_says_epoch_loss_and_accuracy():
    status = Status("toy", total=25, stage=("epoch", 10))
    assert str(status) == "epoch 1/3"
    status.record({"kind": "train", "loss": 1.23456})
    status.record({"kind": "moments", "of": "weights", "layers": {}})
    assert str(status.at(10)) == "epoch 2/3  loss 1.235"
    status.record({"kind": "test", "accuracy": 0.98765, "loss": 7.0})
    assert str(status.at(19)) == "epoch 2/3  loss 1.235  test 98.77%"
    assert str(status.at(25)) == "epoch 3/3  loss 1.235  test 98.77%"
    assert str(Status("toy", 20, ("epoch", 10)).at(20)) == "epoch 2/2"


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when told to."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_lines_come_every_half_minute_and_at_the_end(clock):
    said = []
    lines = Lines(said.append)
    for step in range(1, 101):
        clock(1.0)
        lines.update(Status("toy", 100, ("epoch", 50)).at(step))
    lines.close()
    assert said == [
        "epoch 1/2  1 batches/s  70 s left",
        "epoch 2/2  1 batches/s  40 s left",
        "epoch 2/2  1 batches/s  10 s left",
        "epoch 2/2",
    ]


def test_a_resumed_run_is_timed_from_where_it_went_on(clock):
    said = []
    lines = Lines(said.append)
    lines.update(Status("toy", 1000, ("epoch", 100)).at(501))
    clock(30.0)
    lines.update(Status("toy", 1000, ("epoch", 100)).at(531))
    assert said == ["epoch 6/10  1 batches/s  8 min left"]


def test_lines_of_a_run(tmp_path):
    out = io.StringIO()
    run(Toy(), tmp_path, progress_on(Console(file=out, width=20)))
    (last,) = out.getvalue().splitlines()  # not broken at the width of a terminal that is none
    assert last.startswith("epoch 3/3  loss ")
    assert last.endswith("%")
    run(Toy(), tmp_path, progress_on(Console(file=out, width=20)), resume=True)
    assert out.getvalue().splitlines()[1:] == [f"{tmp_path} is over already: finished after batch 5"]


def test_a_bar_in_a_terminal(tmp_path):
    out = io.StringIO()
    shown = progress_on(Console(file=out, force_terminal=True, width=150))
    assert isinstance(shown, Bars)
    shown.note("[bold]not markup[/]")
    assert run(Toy(), tmp_path, shown) == "finished"
    text = out.getvalue()
    assert "[bold]not markup[/]" in text
    assert "toy" in text
    assert "100%" in text
    assert "epoch 3/3  loss " in text
    assert "batches/s" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_closed_and_the_cursor_back_when_a_run_is_stopped(tmp_path, terminal):
    out = io.StringIO()
    shown = progress_on(Console(file=out, force_terminal=terminal, width=150))

    class Both(InterruptedAfter):
        def update(self, status):
            shown.update(status)
            super().update(status)

        note, close = staticmethod(shown.note), staticmethod(shown.close)

    assert run(Toy(), tmp_path, Both(4)) == "stopped"
    text = out.getvalue()
    assert "stopped after batch 4; --resume goes on from batch 3" in text
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert text.count(hide) == text.count(show) == terminal
    assert text.rfind(show) >= text.rfind(hide)
