"""Many runs at once. Each is a process, which takes some seconds to start."""

import os
import signal
import threading
import time
from dataclasses import dataclass

import pytest
from rich.console import Console
from toy import Silent, Toy, ToyTraining, contents, summarise

import needs
from hyperfan.experiments import sweep as sweeps
from hyperfan.experiments.exit_codes import EXIT_CODES, OUTCOMES
from hyperfan.experiments.folder import open_run
from hyperfan.experiments.loop import run
from hyperfan.experiments.sweep import child, sweep
from hyperfan.experiments.sweep.child import RunRequest, name_of, run_job
from hyperfan.experiments.sweep.cluster import LOST_WORKERS
from hyperfan.experiments.sweep.table import SweepTable, standing


@dataclass(frozen=True)
class DiesOnce(Toy):
    """Its process is gone after a checkpoint; the second one comes to the end."""

    def start(self, data_dir):
        return DiesOnceTraining(self, data_dir)


class DiesOnceTraining(ToyTraining):
    loaded = False

    def load(self, state):
        super().load(state)
        self.loaded = True

    def step(self, step):
        if step == 3 and not self.loaded:
            os._exit(9)
        return super().step(step)


@dataclass(frozen=True)
class Endless(Toy):
    """It says that it began, and waits."""

    def start(self, data_dir):
        return EndlessTraining(self, data_dir)


class EndlessTraining(ToyTraining):
    def step(self, step):
        time.sleep(0.05)
        return super().step(step % 5)


def test_a_run_whose_process_dies_goes_on_from_its_checkpoint(tmp_path, undisturbed, capfd, monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")  # a sweep's own worker may be one of several, a run is not
    monkeypatch.setenv("SLURM_PROCID", "1")
    path = tmp_path / "dies"
    assert sweep({path: DiesOnce()}, 1, summarise=summarise) == {path: "finished"}
    assert contents(path) == {**undisturbed, "report.html": b"drawn"}
    err = capfd.readouterr().err
    assert err.count("toy: its process died, and it goes on from batch 3\n") == 1
    assert f"toy: resumed {path} at batch 3\n" in err
    # Again: nothing is started, since the sweep sees that it is over.
    monkeypatch.setattr(sweeps.Local, "start", None)
    assert sweep({path: Toy()}, resume=True) == {path: "finished"}
    assert sweep({path: Toy()}) == {path: "failed"}
    assert "dies exists: --resume goes on with it" in capfd.readouterr().err


def test_a_process_that_always_dies_is_a_run_that_failed(tmp_path, capfd, monkeypatch):
    class Dies:
        place, poll = "here", lambda self: (-9, ["cannot allocate memory"])

    monkeypatch.setattr(sweeps.Local, "start", lambda self, job: Dies())
    assert sweep({tmp_path / "dies": Toy()}) == {tmp_path / "dies": "failed"}
    err = capfd.readouterr().err
    assert err.count("its process died, and it goes on from batch 0") == sweeps.MAX_DEATHS - 1
    assert err.endswith("cannot allocate memory\ntoy: its process died with exit code -9\n")


def test_a_damaged_folder_does_not_keep_others_from_running(tmp_path, capfd, monkeypatch):
    """Neither one that is over and has lost its metrics, nor one whose state is damaged when its process dies."""
    paths = lost, damaged, good = [tmp_path / name for name in ("lost", "damaged", "good")]
    for path in (lost, good):
        run(Toy(), path, Silent())
        summarise(path)
    (lost / "metrics.jsonl").unlink()

    class Damages:
        place = "here"

        def poll(self):
            (damaged / "checkpoint").mkdir(parents=True)
            (damaged / "checkpoint" / "state.json").write_text("{")
            return -9, ["cannot allocate memory"]

    monkeypatch.setattr(sweeps.Local, "start", lambda self, job: Damages())
    found = sweep(dict.fromkeys(paths, Toy()), 1, resume=True)
    assert found == {lost: "failed", damaged: "failed", good: "finished"}
    err = capfd.readouterr().err
    assert f"toy: {lost}/metrics.jsonl is shorter than at the last checkpoint: lines were lost\n" in err
    assert f"cannot allocate memory\ntoy: {damaged}/checkpoint/state.json cannot be read: " in err


def test_workers_that_die_are_no_fault_of_a_run(tmp_path, monkeypatch):
    """As often as it takes, while the death of a run's own process counts."""

    class Workers:
        slots, place, polls = 1, "there", iter([LOST_WORKERS] * 2 * sweeps.MAX_DEATHS + [0])

        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def shortage(self):
            return ""

        def start(self, _job):
            return self

        def poll(self):
            return next(self.polls), []

    monkeypatch.setattr(sweeps, "Cluster", Workers)
    assert sweep({tmp_path / "run": Toy()}, on="tcp://x:1", summarise=summarise) == {tmp_path / "run": "finished"}


def test_a_run_that_fails_says_why(tmp_path, capsys):
    job = RunRequest(Toy(init="nonsense"), tmp_path / "wrong", None, name_of(summarise))
    assert RunRequest.of_json(job.to_json()) == job
    assert run_job(job) == "failed"
    assert capsys.readouterr().err.startswith("toy: there is no init method 'nonsense'")


def test_a_run_that_another_sweep_makes_is_not_lost(tmp_path, capfd, monkeypatch):
    """It is looked at again, and is over when the other one ends it; a process that meets it says that it is in use."""
    monkeypatch.setattr(sweeps, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(sweeps.Local, "start", None)
    path = tmp_path / "run"
    with open_run(path, Toy(), resume=False):
        assert run_job(RunRequest(Toy(), path, None, name_of(summarise))) == "in use"
        found = {}
        ours = threading.Thread(target=lambda: found.update(sweep({path: Toy()}, resume=True)))
        ours.start()
        time.sleep(0.3)
        assert not found
    # Between the two a child may take the lock, which is not tried here.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "in_use", lambda path: True)
        run(Toy(), path, Silent(), resume=True)
        summarise(path)
        ours.join(20)
    assert found == {path: "finished"}


@needs.POSIX
@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGTERM, 143), (signal.SIGKILL, -9), pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)],
)
def test_a_sweep_that_is_ended_ends_its_runs_which_save(tmp_path, in_a_process, sent, code):
    """Also by a kill: a run sees that its starter is gone."""
    path = tmp_path / "run"
    assert in_a_process(sweep_until_a_signal, path, sent) == (code, None)
    deadline = time.monotonic() + 60
    while sweeps.in_use(path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not sweeps.in_use(path)
    assert sweeps.saved_step(path) >= 2
    assert not (tmp_path / "run2").exists()


def sweep_until_a_signal(path, sent):
    """Sweep, and when the first run has begun, send this process a signal; returns the exit code of its outcome."""
    main = os.getpid()

    def send():
        while standing(path)[0] < 2:
            time.sleep(0.02)
        os.kill(main, sent)

    threading.Thread(target=send, daemon=True).start()
    runs = {path: Endless(total=10**6, init="classical"), path.with_name("run2"): Endless()}
    return EXIT_CODES[sweep(runs, 1, summarise=summarise)[path]]


def test_nothing_to_run():
    assert sweep({}) == {}


def test_the_table_tells_how_far_runs_are_and_the_time_to_go(tmp_path, monkeypatch, capsys):
    now = [1000.0]
    monkeypatch.setattr("hyperfan.experiments.sweep.table.time.monotonic", lambda: now[0])
    paths = [tmp_path / str(i) for i in range(3)]
    for terminal in (False, True):
        for path in paths:
            path.mkdir(exist_ok=True)
            (path / "metrics.jsonl").write_text("")
        console = Console(force_terminal=terminal, width=100)
        with SweepTable(console, {path: Toy(total=100) for path in paths}) as table:
            now[0] += 60
            (paths[1] / "metrics.jsonl").write_text('{"kind": "train", "step": 20, "loss": 2.5}\n{"kind": "te')
            places = {paths[1]: "here", paths[2]: "cluster"}  # where it waits for a worker
            table.show(places, {paths[0]: "finished"}, lambda: "")
            now[0] += 60
            table.show({paths[1]: "here"}, {}, lambda: "no worker is left")
        out = capsys.readouterr().out
        assert "1 under way; no worker is left" in out
        assert "1 of 3 runs over, 1 under way, about 90 s left" in out  # 120 of 300 batches in 60 s
        assert "20 of 100" in out
    assert standing(tmp_path / "nowhere") == (0, None)
    assert set(EXIT_CODES) >= {"finished", "diverged", "failed", "in use", "stopped", "terminated"}


def test_a_process_ends_at_once_after_an_error_that_nobody_foresaw(monkeypatch, capsys):
    """Without the interpreter's end, which the thread that reads the standard input would hold up."""
    codes = []
    monkeypatch.setattr(child, "main", lambda: 1 / 0)
    monkeypatch.setattr(child.os, "_exit", codes.append)
    child.start()
    assert codes == [child.CRASHED]
    assert child.CRASHED not in OUTCOMES
    assert "ZeroDivisionError" in capsys.readouterr().err
