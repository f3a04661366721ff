"""What is seen of a run."""

import io

import pytest
from rich.console import Console
from toy import InterruptedAfter, Toy

from hyperfan.experiments import progress
from hyperfan.experiments.loop import run
from hyperfan.experiments.progress import Progress
from hyperfan.experiments.sweep.table import SweepTable


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when told to."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


@pytest.fixture
def out():
    return io.StringIO()


@pytest.fixture
def lines(clock, out):
    return Progress(Console(file=out, width=20), "toy: ")


def test_a_line_says_epoch_loss_and_accuracy(lines, clock, out):
    for row in (
        {"kind": "train", "loss": 1.23456},
        {"kind": "moments", "of": "weights", "layers": {}},
        {"kind": "test", "accuracy": 0.98765, "loss": 7.0},
    ):
        clock(40)
        lines.update(10, 25, ("epoch", 10))
        lines.record(row)
    lines.update(25, 25, ("epoch", 10))
    assert out.getvalue().splitlines() == [
        "toy: epoch 2/3",
        *["toy: epoch 2/3  loss 1.235"] * 2,
        "toy: epoch 3/3  loss 1.235  test 98.77%",
    ]


def test_lines_come_every_half_minute_and_at_the_end(lines, clock, out):
    for step in range(1, 101):
        clock(1.0)
        lines.update(step, 100, ("epoch", 50))
    lines.close()
    assert out.getvalue().splitlines() == [
        "toy: epoch 1/2  1 batches/s  70 s left",
        "toy: epoch 2/2  1 batches/s  40 s left",
        "toy: epoch 2/2  1 batches/s  10 s left",
        "toy: epoch 2/2",
    ]


def test_a_resumed_run_is_timed_from_where_it_went_on(lines, clock, out):
    lines.update(501, 1000, ("epoch", 100))
    clock(30.0)
    lines.update(531, 1000, ("epoch", 100))
    assert out.getvalue() == "toy: epoch 6/10  1 batches/s  8 min left\n"


def test_a_resumed_sweep_is_timed_from_where_it_went_on(tmp_path, clock, out):
    """Of two runs of 5 batches one had come to the fourth, and the other one makes two."""
    runs = {tmp_path / f"{seed}": Toy(seed=seed) for seed in range(2)}
    for path, step in zip(runs, (4, 2), strict=True):
        table = SweepTable(Console(file=out), runs)
        path.mkdir()
        (path / "metrics.jsonl").write_text(f'{{"kind": "train", "step": {step}, "loss": 0.5}}\n')
    clock(40.0)
    table.show({path: "here"}, {}, shortage=str)
    title = runs[path].title
    assert out.getvalue() == f"0 of 2 runs over, 1 under way, about 80 s left; {title}: batch 2 of 5\n"


def test_lines_of_a_run(tmp_path, out):
    run(Toy(), tmp_path, Progress(Console(file=out, width=20)))
    (last,) = out.getvalue().splitlines()  # not broken at the width of a terminal that is none
    assert last.startswith("epoch 3/3  loss ")
    assert last.endswith("%")
    run(Toy(), tmp_path, Progress(Console(file=out, width=20)), resume=True)
    assert out.getvalue().splitlines()[1:] == [f"{tmp_path} is over already: finished after batch 5"]


def test_a_line_that_changes_in_a_terminal(tmp_path, out, monkeypatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    shown = Progress(Console(file=out, force_terminal=True, width=150))
    shown.note("[bold]not markup[/]")
    assert run(Toy(), tmp_path, shown) == "finished"
    text = out.getvalue()
    assert "[bold]not markup[/]" in text
    assert "epoch 3/3  loss " in text


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_closed_and_the_cursor_back_when_a_run_is_stopped(tmp_path, out, terminal, monkeypatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    shown = Progress(Console(file=out, force_terminal=terminal, width=150))

    class Both(InterruptedAfter):
        def update(self, *standing):
            shown.update(*standing)
            super().update(*standing)

        note, close = staticmethod(shown.note), staticmethod(shown.close)

    assert run(Toy(), tmp_path, Both(4)) == "stopped"
    text = out.getvalue()
    assert "stopped after batch 4; --resume goes on from batch 3" in text
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert text.count(hide) == text.count(show) == terminal
    assert text.rfind(show) >= text.rfind(hide)
