"""``hyperfan report``, called as a user would."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import rows, write

from hyperfan.cli.main import main
from hyperfan.experiments.cifar10 import Cifar10
from hyperfan.experiments.imagenet import Imagenet
from hyperfan.experiments.mnist import Mnist


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def report(capsys, *args):
    code = main(["report", *map(str, args)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_run_and_two_side_by_side(capsys):
    one = write(Path("runs"), Mnist(epochs=1), rows())
    other = write(Path("runs"), Mnist(epochs=1, init="m2", seed=3), rows(outcome="diverged"))
    (one / "time.json").write_text('{"batches": 6000, "training": 90.0}')
    assert report(capsys, one) == (0, "report.html\n", "")
    page = Path("report.html").read_text()
    assert "90.00% of the test images right after 1 epochs; weights made by a hypernet" in page
    assert "90 s" in page
    assert report(capsys, one, other, one, "--out", "both.html")[0] == 0
    page = Path("both.html").read_text()
    assert "2 runs side by side" in page
    assert "Diverged at batch 8; the first to overflow was layer &#x27;4&#x27;." in page
    assert "≠ init" in page
    assert report(capsys, "runs", "--out", "all.html")[0] == 0
    assert sorted(Path("all.html").read_text()) == sorted(page)


def test_nothing_is_overwritten_unless_asked(capsys):
    run = write(Path("runs"), Mnist(epochs=1), rows())
    Path("report.html").write_text("mine")
    code, _, err = report(capsys, run)
    assert (code, err) == (2, "hyperfan: report.html exists: --overwrite replaces it, --out writes elsewhere\n")
    assert Path("report.html").read_text() == "mine"
    assert report(capsys, run, "--overwrite")[0] == 0
    assert "90.00%" in Path("report.html").read_text()
    code, _, err = report(capsys, run, "--out", "runs")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = report(capsys, run, "--out", "no/such/place.html")
    assert (code, err.count("\n")) == (2, 1)


def test_a_run_that_is_under_way_is_shown_as_far_as_it_goes(capsys):
    run = write(Path("runs"), Mnist(epochs=1), rows()[:-1])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    assert report(capsys, run)[0] == 0
    page = Path("report.html").read_text()
    assert "Not finished: it has come to batch 6,000; training loss 1; 90.00% of the test images right." in page
    assert ">epoch</text>" in page


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda run: (run / "config.json").unlink(), "holds no config.json, so it is no run"),
        (lambda run: (run / "metrics.jsonl").unlink(), "has no metrics.jsonl yet"),
        (lambda run: (run / "metrics.jsonl").write_text("[]\n"), "is damaged: config.json should hold"),
        (lambda run: (run / "metrics.jsonl").write_text('{"kind": \n{}\n'), "metrics.jsonl is damaged in line 1"),
        (lambda run: (run / "metrics.jsonl").write_text('{"kind": "train"}\n'), "not the metrics of a run, KeyError"),
        (lambda run: (run / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda run: (run / "config.json").write_text("3"), "is damaged: config.json should hold"),
    ],
)
def test_what_is_no_run_is_one_clear_line(capsys, break_it, message):
    run = write(Path("runs"), Mnist(epochs=1), rows())
    break_it(run)
    code, out, err = report(capsys, run)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("report.html").exists()


def test_names_that_are_no_folders_and_too_many_runs(capsys):
    assert "nowhere is no folder; a run is one" in report(capsys, "nowhere")[2]
    for seed in range(13):
        write(Path("runs"), Mnist(epochs=1, seed=seed), rows()[-1:])
    assert "13 runs are too many for a page: name up to 12" in report(capsys, "runs")[2]


def test_runs_of_one_configuration_go_by_their_folders(capsys):
    a, b = (write(Path(root), Mnist(epochs=1), rows()) for root in ("here", "there"))
    assert report(capsys, a, b)[0] == 0
    page = Path("report.html").read_text()
    assert str(a) in page
    assert str(b) in page


def few(accuracy):
    """Of a run without a probe."""
    return [{"kind": "test", "step": 100, "loss": 9.0, "accuracy": accuracy}]


def test_every_experiment_speaks_for_itself(capsys):
    cifar = replace(Cifar10(), batches=100)
    uncertain = {
        "kind": "uncertainty",
        "step": 100,
        "classes": 8,
        "reliability": [[0, 0.0, 0.0], [5, 0.7, 0.6]],
        "known": {"entropy": [1, 2, 3]},
        "unknown": {"entropy": [0, 0, 6]},
    }
    scores = {**few(0.5)[0], "nll": 1.25, "brier": 0.5, "ece": 0.125, "skipped": 0}
    image = replace(Imagenet(), batches=100)
    end = {"kind": "end", "step": 100, "outcome": "finished"}
    folders = [
        write(Path("cifar10"), cifar, [*few(0.25), end]),
        write(Path("imagenet"), image, [scores, uncertain, end]),
    ]
    assert report(capsys, *folders)[0] == 0
    page = Path("report.html").read_text()
    assert "25.00% of the test images right after" in page
    assert "weights made in chunks by a hypernet" in page
    assert "NLL 1.25, Brier 0.5, ECE 0.125" in page
    assert "Does it know what it does not know?" in page
    assert "unknown classes" in page


def test_a_grid_of_the_continual_experiment(capsys):
    assert main(["run", "continual", "--profile", "smoke", "--iterations", "10", "--seeds", "1"]) == 0
    capsys.readouterr()
    assert report(capsys, "runs/continual")[0] == 0
    page = Path("report.html").read_text()
    assert "4 inits at 4 rates with 1 seeds, sgd: the median final loss" in page
    assert "Task 3: " in page
    assert "hyperfan-out at " in page


def test_a_configuration_nobody_knows_is_shown_too(capsys):
    run = write(Path("runs"), Mnist(epochs=1), rows())
    (run / "config.json").write_text(json.dumps({"width": 3}))
    (run / "env.json").unlink()
    assert report(capsys, run)[0] == 0
    page = Path("report.html").read_text()
    assert "Finished after batch 6,000" in page
    assert "width" in page


@pytest.mark.parametrize("keys", [("generate",), ("generate", "threads")])
def test_a_run_from_before_a_field_existed_has_its_page(capsys, keys):
    run = write(Path("runs"), Mnist(epochs=1), rows())
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in keys}))
    assert report(capsys, run)[0] == 0
    page = Path("report.html").read_text()
    assert "MNIST: hyperfan-in seed-0 epochs-1" in page
    assert "90.00% of the test images right after 1 epochs; weights made by a hypernet" in page


@pytest.mark.parametrize("change", [{"later": 3}, {"experiment": "theirs"}])
def test_a_run_of_a_later_version_or_of_another_program_is_shown_as_far_as_it_is_known(capsys, change):
    run = write(Path("runs"), Mnist(epochs=1), rows())
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **change}))
    assert report(capsys, run)[0] == 0
    assert "Finished after batch 6,000" in Path("report.html").read_text()
