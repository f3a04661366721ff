"""``hyperfan run``, called as a user would."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import needs
from hyperfan.cli import runs as run_commands
from hyperfan.cli.main import main
from hyperfan.data import Labelled, Splits
from hyperfan.errors import HyperfanError
from hyperfan.experiments import cifar10
from hyperfan.experiments.environment import environment
from hyperfan.experiments.mnist import PROFILES, grid, training
from hyperfan.experiments.results.record import RECORD_FILE, write_record

RUNS = len(grid(PROFILES["paper"]))

SMALL = ["--images", "30", "--epochs", "1", "--embedding", "4", "--probe-images", "5", "--checkpoint-every", "2"]
FOLDER = "runs/mnist/m2_seed-3_epochs-1_embedding-4_images-30_checkpoint_every-2"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def undrawn(monkeypatch):
    """Drawing takes longer than the runs."""
    monkeypatch.setattr("hyperfan.experiments.results.write.write_summary", lambda path: (path / "drawn", "done"))


@pytest.fixture
def noise(monkeypatch, undrawn):
    """Pictures of noise in place of MNIST."""

    def pictures(count):
        return Labelled(torch.randint(256, (count, 28, 28), dtype=torch.uint8), torch.randint(10, (count,)))

    splits = Splits(pictures(30), pictures(20))
    monkeypatch.setattr(training, "mnist", lambda _data_dir: splits)


def run(capsys, *args):
    code = main(["run", "mnist", *args])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_run_and_the_same_again(capsys, noise, tmp_path):
    args = ["--init", "m2", "--seed", "3", *SMALL]
    code, out, err = run(capsys, *args)
    assert (code, out) == (0, f"done\nfinished: {FOLDER}/drawn\n")
    assert "epoch 1/1" in err
    config = json.loads((tmp_path / FOLDER / "config.json").read_text())
    assert (config["init"], config["seed"], config["images"], config["batch"]) == ("m2", 3, 30, 10)
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert err == f"hyperfan: {FOLDER} exists: --resume goes on with it, --run-dir starts elsewhere; nothing is " \
                  "overwritten\n"  # fmt: skip
    code, out, err = run(capsys, *args, "--resume")
    assert (code, out) == (0, f"done\nfinished: {FOLDER}/drawn\n")
    assert "is over already: finished after batch 3" in err
    code, _, err = run(capsys, *args, "--resume", "--probe-every", "7")
    assert code == 2
    assert f"probe_every was {PROFILES['paper'].probe_every} and is now 7" in err
    assert err.count("\n") == 1


def test_ctrl_c_and_resume(capsys, noise, monkeypatch):
    step = training.MnistTraining.step

    def interrupted(self, at):
        if at == 2:
            raise KeyboardInterrupt
        return step(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(training.MnistTraining, "step", interrupted)
        code, out, err = run(capsys, "--run-dir", "here", *SMALL)
    assert (code, out) == (130, "")
    assert "stopped after batch 2; --resume goes on from batch 2" in err
    assert run(capsys, "--run-dir", "here", "--resume", *SMALL)[:2] == (0, "done\nfinished: here/drawn\n")


def test_a_run_that_diverges_is_no_failure(capsys, noise):
    code, out, err = run(capsys, "--run-dir", "here", *SMALL, "--activation", "relu", "--init", "kaiming-fan-in")
    assert (code, out) == (0, "done\ndiverged: here/drawn\n")
    assert "the first to overflow was layer '" in err


def test_a_run_that_cannot_be_drawn_is_whole(capsys, noise, monkeypatch):
    def fails(_path):
        raise HyperfanError("nothing to draw with")

    monkeypatch.setattr("hyperfan.experiments.results.write.write_summary", fails)
    code, out, err = run(capsys, "--run-dir", "here", *SMALL)
    assert (code, out) == (0, "finished: here\n")
    assert "no figures: nothing to draw with\n" in err


def test_a_disk_that_is_full_is_one_line(capsys, noise, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = run(capsys, "--run-dir", "here", *SMALL)
    assert (code, out) == (2, "")
    assert err == (
        "hyperfan: here could not be written: the disk is full, or a limit on file sizes is reached. "
        "Choose another place with --run-dir\n"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--profile", "smok"], "--profile 'smok' is not known: did you mean 'smoke'?"),
        (["--profile=x"], "--profile 'x' is not known: known: paper, laptop, smoke"),
        (["--profile"], "--profile '' is not known"),
        (["--init", "hyperfan"], "there is no init method 'hyperfan'"),
        (["--init", "../up"], "there is no init method '../up'"),
        (["--epochs", "0"], "--epochs 0: at least 1 is needed"),
        (["--jobs", "2"], "--jobs is for --all"),
        (["--all", "--jobs", "0"], "--jobs 0: at least 1 is needed"),
        (["--on", "tcp://nowhere:1"], "--on is for --all"),
        (["--index", "2"], "--index is for --all"),
        (["--all", "--index", "-1"], f"--index -1: there are {RUNS} runs, 0 to {RUNS - 1}"),
        (["--all", "--index", str(RUNS)], f"--index {RUNS}: there are {RUNS} runs"),
        (["--all", "--index", "1", "--jobs", "2"], "--index makes one run, here: leave out --jobs and --on"),
        (["--all", "--on", "tcp://nowhere:1", "--jobs", "2"], "--jobs is for this machine"),
        (["--all", "--tensorboard"], "--tensorboard is for a single run"),
        (["--lr", "inf"], "--lr inf: it must be positive and finite"),
    ],
)
def test_what_cannot_run_says_so_in_one_line_and_leaves_nothing(capsys, noise, tmp_path, args, message):
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith(f"hyperfan: {message}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_data(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    code, out, err = run(capsys, "--data-dir", "empty")
    assert (code, out) == (2, "")
    assert "hyperfan data fetch mnist --data-dir empty" in err
    assert err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]


def asked(monkeypatch, *args, experiment="mnist"):
    """The configurations that would run, and where."""
    seen = {}

    monkeypatch.setattr(run_commands, "_run_one", lambda config, path, options: seen.update({path: config}) or 0)
    monkeypatch.setattr(run_commands, "_run_all", lambda runs, options: seen.update(runs) or 0)
    assert main(["run", experiment, *args]) == 0
    return seen


@pytest.mark.parametrize("form", [["--profile", "smoke"], ["--profile=smoke"]])
def test_a_profile_is_where_the_other_options_start(monkeypatch, form):
    (config,) = asked(monkeypatch, *form).values()
    assert config == PROFILES["smoke"]
    (config,) = asked(monkeypatch, "--seed", "4", *form, "--epochs", "9").values()
    assert (config.seed, config.epochs, config.images) == (4, 9, 1000)
    (config,) = asked(monkeypatch).values()
    assert config == PROFILES["paper"]


def test_all_is_the_grid_on_the_options_given(monkeypatch):
    seen = asked(monkeypatch, "--all", "--profile", "smoke", "--seed", "2", "--run-dir", "there")
    assert list(seen.values()) == grid(replace(PROFILES["smoke"], seed=2))
    assert {str(path.parent) for path in seen} == {"there"}


def test_an_index_is_one_run_of_the_grid_for_arrays_of_jobs(capsys, monkeypatch):
    """Also the first."""
    wanted = grid(PROFILES["smoke"])
    for number in (0, 3):
        seen = asked(monkeypatch, "--all", "--profile", "smoke", "--index", str(number))
        assert seen == {Path("runs/mnist") / wanted[number].folder: wanted[number]}
        assert f"run {number} of {len(wanted)}: {wanted[number].title}" in capsys.readouterr().out


def test_all_goes_on_where_a_record_ends(capsys, monkeypatch, tmp_path):
    """Of runs whose folders are gone but whose metrics were kept, none is run again; nor added to by other code."""
    wanted, there = grid(PROFILES["smoke"]), ["--all", "--profile", "smoke", "--run-dir", "there"]
    (tmp_path / "there").mkdir()
    kept = [{"config": c.to_dict(), "environment": environment("mnist"), "rows": []} for c in (wanted[0], wanted[5])]
    write_record(tmp_path / "there" / RECORD_FILE, kept)
    assert list(asked(monkeypatch, *there).values()) == wanted
    assert list(asked(monkeypatch, *there, "--resume").values()) == [*wanted[1:5], *wanted[6:]]
    assert "2 runs are in the record of there" in capsys.readouterr().out
    write_record(tmp_path / "there" / RECORD_FILE, [{**kept[0], "environment": {"code": "0123"}}])
    assert main(["run", "mnist", *there, "--resume"]) == 2
    assert "were made by code 0123, and this is" in capsys.readouterr().err


def test_cifar10_has_its_own_profiles_and_grid(capsys, monkeypatch):
    (config,) = asked(monkeypatch, "--profile", "laptop", "--augment", experiment="cifar10").values()
    assert config == replace(cifar10.PROFILES["laptop"], augment=True)
    seen = asked(monkeypatch, "--all", "--profile", "smoke", experiment="cifar10")
    assert list(seen.values()) == cifar10.grid(cifar10.PROFILES["smoke"])
    assert {str(path.parent) for path in seen} == {"runs/cifar10"}
    assert main(["run", "cifar10", "--all", "--lr", "0.1"]) == 2
    assert capsys.readouterr().err == "hyperfan: --lr is for a single run, not for --all\n"


def test_without_a_gpu_the_papers_scale_says_what_to_do(capsys, monkeypatch, tmp_path):
    assert main(["run", "cifar10", "--device", "cuda:77"]) == 2
    assert "--profile laptop is sized for two cores" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("rank", ["0", "1"])
def test_torchrun_is_for_a_single_run(capsys, monkeypatch, rank):
    for name, value in (("WORLD_SIZE", "2"), ("RANK", rank), ("MASTER_ADDR", "here"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    assert main(["run", "imagenet", "--all"]) == 2
    assert "torchrun and srun are for a single run" in capsys.readouterr().err
    monkeypatch.delenv("MASTER_ADDR")
    assert main(["run", "mnist"]) == 2
    assert capsys.readouterr().err.startswith("hyperfan: WORLD_SIZE is 2 and MASTER_ADDR is not set: ")


def test_every_rank_refuses_options_for_all(capsys, monkeypatch):
    """Else the others wait for the first one, which has ended."""
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("MASTER_ADDR", "here"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("hyperfan.experiments.loop.follow", None)
    assert run(capsys, "--jobs", "2") == (2, "", "hyperfan: --jobs is for --all\n")


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("diverged", 0), ("failed", 2)])
def test_the_exit_code_of_all(capsys, monkeypatch, tmp_path, outcome, code):
    monkeypatch.setattr("hyperfan.experiments.sweep.sweep", lambda runs, *_, **__: dict.fromkeys(runs, outcome))
    found, out, _ = run(capsys, "--all", "--run-dir", "there")
    assert found == code
    assert out == f"{outcome}: {RUNS} of {RUNS} runs\n"


def test_all_that_was_stopped_says_how_to_go_on(capsys, monkeypatch):
    ended = {Path("a"): "finished", Path("b"): "stopped"}
    monkeypatch.setattr("hyperfan.experiments.sweep.sweep", lambda runs, *_, **__: ended)
    assert run(capsys, "--all")[:2] == (
        130,
        f"finished: 1 of {RUNS} runs\nstopped: 1 of {RUNS} runs\n--resume goes on with the rest\n",
    )


@pytest.mark.parametrize("option", [["--init", "m2"], ["--lr", "0.1"], ["--heads", "separate"]])
def test_all_chooses_for_itself(capsys, option):
    code, _, err = run(capsys, "--all", *option)
    assert (code, err) == (2, f"hyperfan: {option[0]} is for a single run, not for --all\n")


def test_help_without_torch():
    """So that it is there at once, of every experiment."""
    script = (
        "import sys\nfrom hyperfan.cli.main import main\nfrom hyperfan.experiments.experiment import EXPERIMENTS\n"
        "for args in [['run'], ['results'], *([c, name] for c in ('run', 'results') for name in EXPERIMENTS)]:\n"
        "    try:\n        main([*args, '--help'])\n    except SystemExit as e:\n        assert e.code == 0\n"
        "assert not {'torch', 'numpy', 'safetensors'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for option in ("--init", "--inits", "--drops", "--last", "--checkpoint-every", "--resume", "--all", "--out"):
        assert re.search(rf"{option}[ ,]", done.stdout)
    assert "{paper,laptop,smoke}" in done.stdout


@needs.POSIX
def test_a_real_run_that_is_interrupted(capsys, tmp_path, undrawn):
    """On the official data, with a signal from outside."""
    needs.data_set("mnist")
    args = ["--profile", "smoke", "--embedding", "4"]
    command = [sys.executable, "-m", "hyperfan.cli.main", "run", "mnist", *args, "--run-dir", "stopped"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(tmp_path.glob("stopped/checkpoint/step-5*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    assert "--resume goes on from batch " in err
    assert run(capsys, *args, "--run-dir", "stopped", "--resume")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()]
    accuracy = {row["step"]: row["accuracy"] for row in rows if row["kind"] == "test"}
    assert list(accuracy) == [0, 100, 200]
    assert accuracy[200] > accuracy[0] + 0.2, "it learned nothing"


TINY = ["--profile", "smoke", "--iterations", "10", "--seeds", "1"]


def continual(capsys, *args):
    code = main(["run", "continual", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_continual_grid_prints_its_table_and_says_where_its_page_is(capsys):
    code, out, err = continual(capsys, *TINY)
    folder = Path("runs/continual/sgd_seeds-1_iterations-10")
    assert code == 0
    assert out.startswith("init ")
    assert out.endswith(f"finished: {folder}/report.html\n")
    for init in ("kaiming-fan-in", "kaiming-fan-out", "hyperfan-in", "hyperfan-out"):
        assert f"\n{init} " in out
    assert "task 3/3" in err
    assert {p.name for p in (folder / "figures").iterdir()} == {"loss.svg", "fits.svg"}
    page = (folder / "report.html").read_text()
    assert "Training loss, task by task" in page
    assert f"<pre>{out.splitlines()[0]}\n" in page
    again = continual(capsys, *TINY, "--resume")
    assert again[:2] == (0, out)
    assert "is over already" in again[2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--inits", "hyperfan"], "there is no init method 'hyperfan'"),
        (["--inits", "m2@exakt"], "write 'm2' for the paper's fidelity, or 'm2@exact'"),
        (["--all", "--inits", "m2"], "--inits is for a single run"),
        (["--all", "--optimiser", "adam"], "--optimiser is for a single run"),
        (["--rates", "nan"], "--rates nan"),
    ],
)
def test_bad_options_of_a_grid_leave_nothing_behind(capsys, args, message):
    code, out, err = continual(capsys, *args)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("runs").exists()


def test_all_grids_are_swept(capsys, monkeypatch):
    seen = {}

    def sweep(runs, jobs, **more):
        seen.update(runs)
        return dict.fromkeys(runs, "finished")

    monkeypatch.setattr("hyperfan.experiments.sweep.sweep", sweep)
    assert continual(capsys, "--all", "--seeds", "3")[0] == 0
    swept = [(c.optimiser, c.seed, len(c.runs)) for c in seen.values()]
    assert swept == [
        ("sgd", 0, 9 * 4 * 3), ("sgd", 1000, 9 * 4), ("adam", 0, 3 * 4 * 3), ("adam", 1000, 3 * 4)]  # fmt: skip
    assert all(path.parent == Path("runs/continual") for path in seen)
