"""``hyperfan results``, called as a user would."""

from pathlib import Path

import pytest
from test_cifar10_results import World

from hyperfan.cli.main import main
from hyperfan.experiments.cifar10 import claims as cifar10_claims


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cifar10_claims, "kernel_excess", lambda config: 1.0)
    World().write(Path("runs/cifar10"))


def called(capsys, *args):
    code = main(["results", "cifar10", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_results_are_written_with_a_table_of_all_claims_and_checked(capsys):
    assert called(capsys, "--profile", "laptop")[:2] == (0, "results/cifar10/README.md\n")
    assert "[C9](cifar10/README.md#c9)" in Path("results/README.md").read_text()
    before = {p: p.read_bytes() for p in Path("results").rglob("*") if p.is_file()}
    assert called(capsys, "--check")[:2] == (0, "results/cifar10 follows from its runs\n")
    page = Path("results/cifar10/README.md")
    page.write_text(page.read_text().replace("**holds** (", "**does not hold** ("))
    Path("results/cifar10/figures/loss.svg").unlink()
    index = Path("results/README.md")
    index.write_text(index.read_text().replace("| **holds**", "| **fails**"))
    code, out, _ = called(capsys, "--check")
    assert code == 1
    lines = out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("README.md, line ")
    assert lines[1] == "figures/loss.svg is missing"
    assert lines[2].startswith("results/README.md, line ")
    assert called(capsys, "--profile", "laptop", "--overwrite")[0] == 0
    assert {p: p.read_bytes() for p in Path("results").rglob("*") if p.is_file()} == before


def test_what_cannot_be_checked_is_one_line(capsys):
    code, out, err = called(capsys, "--check")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("hyperfan: results/cifar10 keeps no metrics of its runs")
    called(capsys, "--profile", "laptop")
    record = Path("results/cifar10/runs.jsonl.gz")
    record.write_bytes(record.read_bytes()[:-100])
    code, out, err = called(capsys, "--check")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"hyperfan: {record} cannot be read as a record of runs")


def test_results_elsewhere_leave_other_pages_alone(capsys):
    Path("README.md").write_text("mine")
    assert called(capsys, "--profile", "laptop", "--out", "cifar10")[0] == 0
    assert Path("README.md").read_text() == "mine"
    assert called(capsys, "--profile", "laptop", "--out", "new/place")[0] == 0
    assert not Path("new/README.md").exists()  # its folder has another name, so there is no link to it
