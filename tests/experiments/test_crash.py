"""Runs that are killed, and go on as if they had not been."""

import itertools
import os
import random
import shutil
import signal
import time

import pytest
from toy import InterruptedAfter, Silent, Toy, contents, killed_before_touching_files, resume, with_small_files

import needs
from hyperfan.experiments.loop import run

pytestmark = needs.POSIX


def finish(path):
    assert run(Toy(), path, Silent(), resume=True) == "finished"
    return contents(path)


QUICK_STRIDE = 3
"""Operations from one kill to the next in a quick run; the operations of a checkpoint are no multiple of it."""


@pytest.fixture
def stride(request):
    return 1 if request.config.getoption("full") else QUICK_STRIDE


def kill_before_each_file_operation(in_a_process, new_folder, undisturbed, stride):
    """Kill before each of the file operations, or before some; returns how many there were."""
    points, code = 1 - stride, None
    while code != 0:
        points += stride
        path = new_folder()
        code, _ = in_a_process(killed_before_touching_files, Toy(), path, points)
        assert code in (0, -signal.SIGKILL)
        assert finish(path) == undisturbed, f"killed before file operation {points}"
    return points


def test_killed_before_each_of_its_file_operations(tmp_path, in_a_process, undisturbed, stride):
    """Also in the middle of writing a checkpoint: there are about a dozen operations in each."""
    paths = map(tmp_path.joinpath, map(str, itertools.count()))
    assert kill_before_each_file_operation(in_a_process, lambda: next(paths), undisturbed, stride) > 40


def test_killed_again_while_resuming(tmp_path, in_a_process, undisturbed, stride):
    """From a folder with much to tidy up."""
    left = tmp_path / "left"
    run(Toy(), left, InterruptedAfter(4))
    (left / "checkpoint" / "step-5.safetensors").write_bytes(b"of a checkpoint that was not named any more")
    (left / "checkpoint" / ".tmpXYZ").write_bytes(b"half a file of safetensors")
    (left / "checkpoint" / ".partial-xyz").write_bytes(b"half a file of ours")
    (left / ".partial-xyz").write_bytes(b"another")
    paths = map(tmp_path.joinpath, map(str, itertools.count()))

    def made():
        return shutil.copytree(left, next(paths))

    assert kill_before_each_file_operation(in_a_process, made, undisturbed, stride) > 15


def test_killed_at_random_instants(tmp_path, in_a_process, undisturbed):
    dice = random.Random(4)
    start = time.perf_counter()
    in_a_process(resume, Toy(), tmp_path / "once")
    whole = time.perf_counter() - start
    codes = []
    for i in range(5):
        path = tmp_path / str(i)
        for _ in range(4):
            codes.append(in_a_process(resume, Toy(), path, kill_after=dice.uniform(0, whole))[0])
        assert finish(path) == undisturbed
    assert set(codes) <= {0, -signal.SIGKILL}
    assert -signal.SIGKILL in codes


def sizes(undisturbed):
    """Some, from none to that of the largest file."""
    largest = max(map(len, undisturbed.values()))
    return range(0, largest, largest // 25)


def test_killed_halfway_through_a_write(tmp_path, in_a_process, undisturbed, stride):
    """A write beyond the largest size allowed is cut off there, and the process killed."""
    for size in sizes(undisturbed)[::stride]:
        path = tmp_path / str(size)
        assert in_a_process(with_small_files, Toy(), path, size, signal.SIG_DFL)[0] == -signal.SIGXFSZ
        assert finish(path) == undisturbed, f"killed at byte {size} of a file"


def test_a_disk_that_fills_up(tmp_path, in_a_process, undisturbed):
    """One line says so, and what was saved before is whole."""
    saved = set()
    for size in sizes(undisturbed):
        path = tmp_path / str(size)
        code, told = in_a_process(with_small_files, Toy(), path, size, signal.SIG_IGN)
        assert code == 2
        assert told.startswith(f"RunError: {path}")
        assert "could not be written: the disk is full, or a limit on file sizes is reached. " in told
        assert told.endswith(("go on with --resume", "Choose another place with --run-dir"))
        assert "\n" not in told
        assert not [*path.rglob(".partial-*"), *path.rglob(".tmp*")], "it left halves behind"
        saved |= {p.name for p in path.glob("checkpoint/*.safetensors")}
        assert finish(path) == undisturbed, f"no room for more than {size} bytes"
    assert saved >= {"step-0.safetensors", "step-3.safetensors"}, "it did not fill up before and after checkpoints"


def test_what_gets_its_name_was_flushed_before(tmp_path, monkeypatch):
    """So that a power cut cannot leave a name without its content."""
    flushed, replace = {}, os.replace

    def flush(handle):
        found = os.fstat(handle)
        flushed[found.st_ino] = found.st_size, found.st_mtime_ns

    def name(source, target):
        found = os.stat(source)
        assert flushed.get(found.st_ino) == (found.st_size, found.st_mtime_ns), f"{target} was not flushed"
        if os.path.basename(target) == "state.json":
            metrics = os.stat(tmp_path / "metrics.jsonl")
            assert flushed.get(metrics.st_ino) == (metrics.st_size, metrics.st_mtime_ns)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", name)
    assert run(Toy(), tmp_path, Silent()) == "finished"
    assert os.stat(tmp_path).st_ino in flushed, "nor were the names"
    assert os.stat(tmp_path / "checkpoint").st_ino in flushed
