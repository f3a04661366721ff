"""``hyperfan data``, called as a user would."""

import dataclasses
import hashlib
import inspect
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
    assert lines[-1] == "t10k-labels-idx1-ubyte.gz: 2.0 MB of 2.0 MB"
    assert 8 < len(lines) <= 44  # a line for each tenth, not for each chunk


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
