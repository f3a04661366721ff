"""Many runs at once. Each is a process, which takes some seconds to start."""

import os
import signal
from dataclasses import dataclass

import pytest
from toy import Toy, contents, summarise

from hyperfan.experiments.sweep import EXIT_CODES, _run_one, sweep


@dataclass(frozen=True)
class Dies(Toy):
    def start(self, data_dir):
        os._exit(9)


@dataclass(frozen=True)
class InterruptsAll(Toy):
    """Ctrl-C in a terminal: all processes of the sweep get the signal."""

    def start(self, data_dir):
        os.kill(os.getppid(), signal.SIGINT)
        raise KeyboardInterrupt


def test_a_run_that_dies_does_not_keep_others_from_running(tmp_path, undisturbed, capfd):
    ended = sweep({tmp_path / "dies": Dies(), tmp_path / "good": Toy()}, 2, summarise=summarise)
    assert ended == {tmp_path / "dies": "failed", tmp_path / "good": "finished"}
    assert contents(tmp_path / "good") == {**undisturbed, "report.html": b"drawn"}
    assert [p.name for p in tmp_path.iterdir()] == ["good"]
    err = capfd.readouterr().err
    assert "toy: its process died with exit code 9" in err
    assert "toy: epoch 3/3  loss " in err


def test_a_run_that_fails_says_why(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        _run_one(Toy(init="nonsense"), tmp_path / "wrong", None, False, summarise)
    assert ended.value.code == EXIT_CODES["failed"]
    assert capsys.readouterr().err.startswith("toy: there is no init method 'nonsense'")


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
def test_ctrl_c_starts_no_more_runs(tmp_path):
    runs = {tmp_path / "0": InterruptsAll(), **{tmp_path / str(i): Toy() for i in range(1, 6)}}
    assert sweep(runs, 1) == {tmp_path / "0": "stopped"}
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_run():
    assert sweep({}) == {}
