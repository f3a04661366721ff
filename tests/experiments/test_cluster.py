"""Sweeps on a Dask cluster, here one of two workers in this process, which start the processes of runs."""

import os
import signal
from pathlib import Path

import distributed
import pytest
from test_sweep import Endless
from toy import Toy, contents, summarise

import needs
from hyperfan.errors import RunError
from hyperfan.experiments import sweep as sweeps
from hyperfan.experiments.environment import fingerprint
from hyperfan.experiments.sweep import cluster, sweep


@pytest.fixture(scope="module")
def address():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0"
    ) as made:
        yield made.scheduler_address


def test_a_sweep_on_a_cluster_is_bit_identical_to_one_here(tmp_path, address, undisturbed):
    path = tmp_path / "run"
    assert sweep({path: Toy()}, on=address, summarise=summarise) == {path: "finished"}
    assert contents(path) == {**undisturbed, "report.html": b"drawn"}
    assert [p.name for p in tmp_path.iterdir()] == ["run"], "the sweep's heartbeat is gone"


@needs.POSIX
def test_ctrl_c_lets_the_workers_save(tmp_path, address, monkeypatch):
    path, show = tmp_path / "run", sweeps.SweepTable.show

    def interrupt(self, *args):
        show(self, *args)
        if sweeps.table.standing(path)[0] >= 2:
            monkeypatch.undo()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(sweeps.SweepTable, "show", interrupt)
    runs = {path: Endless(total=10**6, init="classical")}
    assert sweep(runs, on=address, summarise=summarise) == {path: "stopped"}
    assert not sweeps.in_use(path)
    assert sweeps.saved_step(path) >= 2


def refused(tmp_path, on):
    with pytest.raises(RunError) as caught:
        sweep({tmp_path / "run": Toy()}, on=on)
    assert not (tmp_path / "run").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_worker_with_other_code_is_refused(tmp_path, address, monkeypatch):
    class Other(cluster.Cluster):
        def __init__(self, *args):
            super().__init__(*args)
            self._code = "0123"

    monkeypatch.setattr(sweeps, "Cluster", Other)
    told = refused(tmp_path, address)
    assert told.startswith("the worker tcp://")
    assert ", and the sweep code 0123: install the same" in told
    assert not list(tmp_path.iterdir())


def test_a_folder_that_workers_do_not_see_or_may_not_write(tmp_path, address, monkeypatch):
    code = fingerprint()
    heartbeat = tmp_path / "heartbeat"
    assert cluster.why_unusable(str(heartbeat), code).startswith(f"it does not see the files in {tmp_path}")
    heartbeat.write_text("")
    assert cluster.why_unusable(str(heartbeat), code) == ""
    monkeypatch.setattr(cluster, "why_unusable", lambda heartbeat, code: "it may not write to there")
    assert refused(tmp_path, address).endswith(" cannot be used: it may not write to there")
    monkeypatch.undo()
    with pytest.raises(RunError, match=r"could not be written: .* Choose a folder that all workers share"):
        sweep({heartbeat / "below" / "run": Toy()}, on=address)


def test_a_scheduler_that_does_not_answer_or_has_no_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    assert refused(tmp_path, "tcp://127.0.0.1:9").startswith("--on tcp://127.0.0.1:9: no Dask scheduler answers there")
    assert refused(tmp_path, "nonsense://x").startswith("--on nonsense://x: no Dask scheduler answers there")
    with distributed.LocalCluster(n_workers=0, processes=False, protocol="tcp://", dashboard_address=":0") as empty:
        assert "it has no workers; 'dask worker tcp://" in refused(tmp_path, empty.scheduler_address)


def test_a_sweep_says_that_no_worker_is_left(tmp_path):
    made = distributed.LocalCluster(n_workers=1, processes=False, protocol="tcp://", dashboard_address=":0")
    with made, cluster.Cluster(made.scheduler_address, [tmp_path / "run"]) as place:
        assert place.shortage() == ""
        made.scale(0)
        made.sync(made._correct_state)
        assert place.shortage() == f"no worker is left, 'dask worker {place.address}' starts one"


def test_without_dask_the_error_names_the_extra(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(cluster.importlib, "import_module", missing)
    assert refused(tmp_path, "tcp://x:1") == "--on tcp://x:1 needs Dask: pip install 'hyperfan[cluster]'"


def test_a_sweep_that_no_longer_lives_ends_its_runs(tmp_path, monkeypatch):
    """By the worker's own clock, since those of two machines may differ."""
    now = [0.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: now[0])
    heartbeat = tmp_path / "heartbeat"
    heartbeat.write_text("0")
    life = cluster.Heartbeat(str(heartbeat))
    assert life.is_alive()
    now[0] += cluster.SILENCE_SECONDS - 1
    assert life.is_alive()
    heartbeat.write_text("1")
    assert life.is_alive()
    now[0] += cluster.SILENCE_SECONDS + 1
    assert not life.is_alive()
    heartbeat.unlink()
    assert not cluster.Heartbeat(str(heartbeat)).is_alive()
    assert cluster.work("", str(heartbeat), "") == (143, [])


def test_a_heartbeat_does_not_come_back(tmp_path, monkeypatch):
    """A sweep may end between two looks of the thread that gives it."""

    class Once:
        def __init__(self):
            self.waits = iter([False, True])

        def wait(self, _seconds):
            return next(self.waits)

    made = cluster.Cluster("tcp://x:1", [tmp_path / "run"])
    made._over = Once()
    monkeypatch.setattr(Path, "exists", lambda path: True)
    made._beat()
    assert not list(tmp_path.iterdir())
