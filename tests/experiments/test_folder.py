"""Run folders that exist, do not fit, are damaged or in use: one clear line, and nothing lost."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy import InterruptedAfter, Silent, Toy, ToyTraining, as_nobody, contents

import hyperfan
import needs
from hyperfan.errors import HyperfanError, RunError
from hyperfan.experiments.environment import commit, fingerprint
from hyperfan.experiments.experiment import EXPERIMENTS
from hyperfan.experiments.folder import load_checkpoint, open_run
from hyperfan.experiments.loop import run
from hyperfan.files import Lock, atomic_write, finite_or_none, read_json, write_json
from hyperfan.metrics import read_metrics


def everything(path):
    """Every file and folder with its content and rights."""
    return {p: (p.lstat().st_mode, p.read_bytes() if p.is_file() else None) for p in [path, *path.rglob("*")]}


def refused(path, experiment=None, resume=True):
    """The one line that is said, after which all is as before."""
    before = everything(path)
    with pytest.raises(RunError) as caught:
        run(experiment or Toy(), path, Silent(), resume=resume)
    assert everything(path) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def half(tmp_path):
    """A run that was stopped after its second checkpoint of three."""
    path = tmp_path / "half"
    assert run(Toy(), path, InterruptedAfter(4)) == "stopped"
    return path


# ── folders that exist ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_exists_is_not_overwritten(half):
    assert refused(half, resume=False) == (
        f"{half} exists: --resume goes on with it, --run-dir starts elsewhere; nothing is overwritten"
    )


def test_a_file_in_its_place(tmp_path):
    file = tmp_path / "notes"
    file.write_text("mine")
    for resume in (False, True):
        assert refused(file, resume=resume) == f"{file} is a file; a run is a folder: choose another with --run-dir"


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "env.json", "metrics.jsonl", "checkpoint/state.json"])
def test_a_folder_that_is_no_run(tmp_path, name, resume):
    """Its files are left alone, also those that are called as ours might be."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    for path in (file, tmp_path / ".tmp-thesis", tmp_path / ".partial-results"):
        path.write_text("mine")
    told = refused(tmp_path, resume=resume)
    assert told == f"{tmp_path} holds files and no config.json, so it is no run: choose another by --run-dir"


def test_an_empty_folder_will_do_and_one_that_is_not_there(tmp_path, undisturbed):
    for path in (tmp_path / "empty", tmp_path / "deep" / "down"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        run(Toy(), path, Silent(), resume=path.exists())
        assert contents(path) == undisturbed


def test_a_place_under_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"file.run could not be written: .*Choose another place with --run-dir"):
        run(Toy(), tmp_path / "file" / "run", Silent())


def test_what_cannot_start_leaves_no_folder(tmp_path):
    with pytest.raises(HyperfanError, match="there is no init method 'nonsense'"):
        run(Toy(init="nonsense"), tmp_path / "runs" / "toy", Silent())
    assert list(tmp_path.iterdir()) == []


# ── another configuration ──────────────────────────────────────────────────────────────────────────────────────────


def test_another_configuration_is_told_field_by_field(half):
    other = replace(Toy(), lr=0.5, init="m2")
    assert refused(half, other) == (
        f"{half} was started with another configuration: init was 'hyperfan-in' and is now 'm2', "
        "lr was 0.05 and is now 0.5. Use the same, or --run-dir"
    )


def test_a_field_that_is_no_longer_there(half):
    config = json.loads((half / "config.json").read_text())
    (half / "config.json").write_text(json.dumps({**config, "old": None}))
    assert "another configuration: old was None and is now absent. " in refused(half)


@pytest.mark.parametrize("name", ["nothing", "lr", "experiment"])
def test_a_field_that_was_not_there_yet_had_its_default(half, undisturbed, name):
    config = json.loads((half / "config.json").read_text())
    del config[name]
    old = json.dumps(config)
    (half / "config.json").write_text(old)
    if name == "lr":
        assert "lr was 0.05 and is now 0.5. " in refused(half, Toy(lr=0.5))
    assert run(Toy(), half, Silent(), resume=True) == "finished"
    assert contents(half) == {**undisturbed, "config.json": old.encode()}  # which stays as it was written


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\xff\x00"])
def test_a_configuration_that_is_none(half, content):
    (half / "config.json").write_bytes(content.encode("latin1"))
    assert refused(half).startswith(f"{half / 'config.json'} ")


# ── the code ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_fingerprint_covers_what_can_change_numbers_and_nothing_else(tmp_path):
    root = tmp_path / "hyperfan"
    shutil.copytree(Path(hyperfan.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__"))
    before = {name: fingerprint(name, root) for name in (None, *EXPERIMENTS)}

    def changes(name):
        """The experiments, with None for all of them, whose fingerprints a change of a file changes."""
        file = root / name
        text = file.read_bytes()
        file.write_bytes(text + b"\n")
        found = {name for name in before if fingerprint(name, root) != before[name]}
        file.write_bytes(text)
        return found

    every = {*before}
    numbers = ["optim/sgd.py", "data/readers.py", "experiments/loop.py", "experiments/classifier.py"]
    own = {f"experiments/{name}/{file}.py": {None, name} for name in EXPERIMENTS for file in ("__init__", "training")}
    readers = [
        "charts/palette.py",
        "cli/runs.py",
        "report/run_page.py",
        "experiments/results/claims.py",
        "experiments/results/claim.md",
    ]
    readers += [f"experiments/{name}/{file}" for name in EXPERIMENTS for file in ("results.py", "page.md")]
    readers += [f"experiments/{name}/claims.py" for name in ("imagenet", "continual", "demonstrations")]
    readers += ["experiments/mnist/claims/starts.py"]
    assert {name: changes(name) for name in (*numbers, *own, *readers)} == {
        **dict.fromkeys(numbers, every),
        **own,
        **{name: set() for name in readers},
    }
    (root / "experiments" / "loop.py").rename(root / "experiments" / "other.py")
    assert all(fingerprint(name, root) != before[name] for name in before)


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Run git in a folder, as no hook and no user's configuration has it."""
    for name in [n for n in os.environ if n.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def run_git(*words):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run_git("init", "-q")
    (tmp_path / "package").mkdir()
    for name in ("other", "package/__init__.py"):
        (tmp_path / name).write_text("a = 1")
    return run_git


@needs.GIT
def test_the_commit_is_the_last_that_changed_the_package(git, tmp_path):
    git("add", "package")
    git("commit", "-qm", "the package")
    expected = git("rev-parse", "--short=12", "HEAD")
    git("add", "other")
    git("commit", "-qm", "something else")
    assert commit(tmp_path / "package") == expected


@needs.GIT
@pytest.mark.parametrize("change", ["untracked", "removed", "edited", "added"])
def test_code_that_no_commit_has(git, tmp_path, change):
    """It lies in somebody's repository that does not hold it, or was changed since, which the user's settings hide."""
    root = tmp_path / "package"
    git("add", "other" if change == "untracked" else ".")
    git("commit", "-qm", "first")
    git("config", "status.showUntrackedFiles", "no")
    if change == "removed":
        git("rm", "-rq", "--cached", "package")
        (tmp_path / ".gitignore").write_text("package")
        git("add", ".gitignore")
        git("commit", "-qm", "the package is no part of this")
    elif change != "untracked":
        (root / ("__init__.py" if change == "edited" else "module.py")).write_text("a = 2")
    assert commit(root) is None


def test_where_there_is_no_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None


@needs.GIT
def test_another_repository_is_not_asked(git, tmp_path, monkeypatch):
    """As a hook would have it."""
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    root = tmp_path.with_name("elsewhere")
    root.mkdir(exist_ok=True)
    (root / "__init__.py").write_text("a = 1")
    assert commit(root) is None


def test_a_run_goes_on_in_silence_after_a_commit_of_the_same_code(half):
    env = json.loads((half / "env.json").read_text())
    (half / "env.json").write_text(json.dumps({**env, "commit": "0123456789ab"}))
    with open_run(half, Toy(), resume=True) as folder:
        assert folder.other_environment() == ""
    (half / "env.json").write_text(json.dumps({**env, "torch": "0.1"}))
    with open_run(half, Toy(), resume=True) as folder:
        assert folder.other_environment().startswith("torch was 0.1 and is now ")


# ── damage ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_flipped_bit_anywhere_in_a_checkpoint(half):
    """It is noticed, unless it changes nothing that is read, such as the seventeenth digit of a number."""
    folder = half / "checkpoint"
    good_state, good_tensors = load_checkpoint(folder)
    unnoticed = []
    for file in sorted(folder.iterdir()):
        good = file.read_bytes()
        for at in range(0, len(good), max(len(good) // 300, 1)):
            file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            with contextlib.suppress(RunError):
                state, tensors = load_checkpoint(folder)
                unnoticed.append(file.name)
                assert state == good_state
                torch.testing.assert_close(tensors, good_tensors, rtol=0, atol=0)
        file.write_bytes(good)
    assert set(unnoticed) <= {"state.json"}
    assert len(unnoticed) < 5


def test_a_checkpoint_that_is_cut_off(half):
    for file in sorted((half / "checkpoint").iterdir()):
        good = file.read_bytes()
        for size in (0, 1, len(good) // 2, len(good) - 1 - good.endswith(b"\n")):
            file.write_bytes(good[:size])
            assert refused(half).startswith(str(file))
        file.write_bytes(good)


@pytest.mark.parametrize("content", ["[]", "3", "null", "{}", '{"tensors": 3, "sha256": ""}', '{"tensors": "../../x"}'])
def test_a_state_that_is_none(half, content):
    (half / "checkpoint" / "state.json").write_text(content)
    assert refused(half).startswith(f"{half / 'checkpoint' / 'state.json'} is not the state of a checkpoint: ")


def test_a_checkpoint_of_other_code(half, undisturbed, monkeypatch):
    """It is one line, after which the other code can go on."""
    with monkeypatch.context() as other:
        other.setattr(ToyTraining, "load", lambda self, state: state["a new tensor"])
        with pytest.raises(RunError, match=r"is of other code, with other tensors: KeyError: 'a new tensor'\."):
            run(Toy(), half, Silent(), resume=True)
    run(Toy(), half, Silent(), resume=True)
    assert contents(half) == undisturbed


def test_a_checkpoint_without_its_tensors(half):
    (tensors,) = half.glob("checkpoint/*.safetensors")
    tensors.unlink()
    assert refused(half).startswith(f"{tensors} cannot be read: ")


def test_metrics_that_were_lost(half):
    file = half / "metrics.jsonl"
    saved = read_json(half / "checkpoint" / "state.json")["metrics"]
    file.write_bytes(file.read_bytes()[: saved - 1])
    assert refused(half) == f"{file} is shorter than at the last checkpoint: lines were lost"
    file.unlink()
    with pytest.raises(RunError, match="is shorter than at the last checkpoint"):
        run(Toy(), half, Silent(), resume=True)


def test_a_folder_in_the_place_of_a_file(half):
    (half / "metrics.jsonl").unlink()
    (half / "metrics.jsonl").mkdir()
    assert "metrics.jsonl" in refused(half)
    lock = Lock(half / ".lock")
    assert lock.acquire(), "it was not given back"
    lock.release()


# ── in use, or not to be written ───────────────────────────────────────────────────────────────────────────────────


def test_one_process_at_a_time(half, undisturbed):
    with open_run(half, Toy(), resume=True):
        assert refused(half) == f"{half} is in use: another process is running it"
        assert refused(half, resume=False).startswith(f"{half} exists: ")
    assert run(Toy(), half, Silent(), resume=True) == "finished"
    assert contents(half) == undisturbed


@needs.POSIX
@pytest.mark.parametrize("denied", [".", "checkpoint", "metrics.jsonl"])
def test_what_may_not_be_written(in_a_process, undisturbed, denied):
    with tempfile.TemporaryDirectory() as shared:  # which, unlike those of pytest, others can enter
        path = Path(shared) / "run"
        run(Toy(), path, InterruptedAfter(4))
        modes = {p: p.stat().st_mode for p in [path, *path.rglob("*")]}
        for p in (Path(shared), *modes):
            p.chmod(0o777 if p.is_dir() else 0o666)
        (path / denied).chmod(0o555 if (path / denied).is_dir() else 0o444)
        if denied == ".":
            (path / ".lock").chmod(0o444)
        before = contents(path)
        code, told = in_a_process(as_nobody, Toy(), path)
        assert code == 2
        assert told.startswith(f"RunError: {path}")
        assert "Permission denied" in told
        assert "\n" not in told
        saved = read_json(path / "checkpoint" / "state.json")["metrics"]
        after = contents(path)
        assert after.pop("metrics.jsonl")[:saved] == before.pop("metrics.jsonl")[:saved]
        assert after == before
        for p, mode in modes.items():
            p.chmod(stat.S_IMODE(mode))
        assert run(Toy(), path, Silent(), resume=True) == "finished"
        assert contents(path) == undisturbed


# ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_writer_that_fails_changes_nothing(tmp_path):
    file = tmp_path / "x.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError, match="not JSON serializable"), atomic_write(file) as partial:
        partial.write_text("half" + json.dumps({"a": {}, "b": object()}))
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(file, {"a": float("nan")})
    assert list(tmp_path.iterdir()) == [file]
    assert read_json(file) == {"a": 1}


def test_files_can_be_read_by_others(tmp_path):
    write_json(tmp_path / "x.json", 1)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o644


def test_what_json_does_not_have_is_none():
    nan, inf = float("nan"), float("inf")
    assert finite_or_none({"a": [nan, (1.5, -inf)], "b": {"c": inf}, "d": "nan", "e": 2, "f": None, "g": True}) == {
        "a": [None, [1.5, None]], "b": {"c": None}, "d": "nan", "e": 2, "f": None, "g": True}  # fmt: skip


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert read_metrics(tmp_path) == [{"step": 1}, {"step": 2}]
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"st\n')
    with pytest.raises(RunError, match=r"metrics.jsonl is damaged in line 2: "):
        read_metrics(tmp_path)
    with pytest.raises(RunError, match=r"nowhere/metrics.jsonl cannot be read: "):
        read_metrics(tmp_path / "nowhere")
