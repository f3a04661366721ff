"""``hyperfan data``, called as a user would."""

import dataclasses
import hashlib
import inspect
import json
import typing

import pytest
from mirrors import mirrors

from hyperfan.cli import data
from hyperfan.cli.main import main
from hyperfan.data.download import File
from hyperfan.data.fetch import SOURCES


@pytest.fixture(autouse=True)
def _places(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HYPERFAN_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("sys.platform", "linux")


def run(capsys, *args):
    code = main(list(args))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_fetch_knows_every_set():
    name = inspect.signature(data.fetch).parameters["name"].annotation
    assert typing.get_args(typing.get_args(name)[0]) == tuple(SOURCES)


@pytest.mark.parametrize("given", [True, False])
def test_fetch(capsys, monkeypatch, tmp_path, given):
    with mirrors(bytes(2_000_000)) as site:
        files = [
            File(file.name, 2_000_000, hashlib.sha256(site.content).hexdigest(), (site.url("good"),))
            for file in SOURCES["mnist"].files
        ]
        monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], files=tuple(files)))
        options = ["--data-dir", str(tmp_path / "given")] if given else []
        code, out, err = run(capsys, "data", "fetch", "mnist", *options)
    assert code == 0
    folder = tmp_path / ("given" if given else "variable") / "mnist"
    assert out == f"mnist is in {folder}\n"
    assert len(list(folder.iterdir())) == 4
    lines = err.splitlines()
    assert lines[-1] == "t10k-labels-idx1-ubyte.gz: 2.0 of 2.0 MB"
    assert 8 < len(lines) <= 44  # a line for each tenth, not for each chunk


def test_a_terminal_gets_bars(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with data._progress() as show:
        show("x.gz", 1_000_000, 2_000_000)
        show("y.gz", 1, 1)
        show("x.gz", 2_000_000, 2_000_000)
    err = capsys.readouterr().err
    assert "x.gz" in err
    assert "2.0/2.0 MB" in err
    assert err.rstrip().count("\n") < 4


def test_a_fetch_that_fails_says_so_in_one_line(capsys, monkeypatch, tmp_path):
    with mirrors(b"") as site:
        file = File("cifar-10-binary.tar.gz", 5, "", (site.url("missing"), site.url("page")))
        monkeypatch.setitem(SOURCES, "cifar10", dataclasses.replace(SOURCES["cifar10"], files=(file,)))
        code, out, err = run(capsys, "data", "fetch", "cifar10")
    assert code == 2
    assert out == ""
    assert err.startswith("hyperfan: cifar-10-binary.tar.gz could not be downloaded from http://127.0.0.1")
    assert "HTTP Error 404" in err
    assert err.count("\n") == 1


def test_where(capsys, tmp_path):
    (tmp_path / "variable/cifar-10-batches-bin").mkdir(parents=True)
    (tmp_path / "variable/cifar-10-batches-bin/test_batch.bin").write_bytes(bytes(1_500_000))
    (tmp_path / "variable/cifar-10-batches-bin/notes.txt").write_bytes(bytes(1_000_000))
    for split in ("train", "val"):
        (tmp_path / "cache/hyperfan" / split / "a").mkdir(parents=True)
        (tmp_path / "cache/hyperfan" / split / "a/1.jpg").write_bytes(bytes(10))
    code, out, _ = run(capsys, "data", "where")
    assert code == 0
    assert f"{tmp_path / 'variable'} ($HYPERFAN_DATA): data are looked for here" in out
    assert f"{tmp_path / 'cache/hyperfan'} (the user's cache): not looked at" in out
    cifar = next(line for line in out.splitlines() if line.startswith("cifar10"))
    assert cifar.split() == ["cifar10", "1.5", "1", str(tmp_path / "variable/cifar-10-batches-bin")]

    given, variable, cache = json.loads(run(capsys, "data", "where", "--data-dir", "/none", "--json")[1])
    assert (given["folder"], given["by"], given["used"]) == ("/none", "--data-dir", True)
    assert [one["place"] for one in given["sets"]] == [None, None, None]
    assert (variable["used"], cache["used"]) == (False, False)
    assert cache["sets"][2] == {
        "name": "imagenette", "place": str(tmp_path / "cache/hyperfan"), "files": 2, "size": 20
    }  # fmt: skip
