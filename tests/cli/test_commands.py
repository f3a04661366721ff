"""The command line, called as a user would."""

import json
from typing import get_args, get_type_hints

import pytest

from hyperfan.cli.main import main
from hyperfan.cli.nets import HypernetOptions
from hyperfan.cli.output import status
from hyperfan.experiments.compare import METHODS
from hyperfan.generators.layout import Sharing

FACTORIES = """
import torch
from torch import nn
import hyperfan as hf

def mainnet():
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))

class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(4, 2)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

def with_example():
    return Custom(), torch.zeros(1, 8)

def hypernet():
    return hf.HyperNet(mainnet(), 5, init="hyperfan-out", fidelity="paper")

def blocks():
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))

def broken():
    raise KeyError("no such thing")

def number():
    return 3
"""


@pytest.fixture(autouse=True)
def _factories(tmp_path, monkeypatch):
    (tmp_path / "factories_for_cli.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)


def run(capsys, *args):
    code = main(list(args))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_plan_of_a_mainnet(capsys):
    code, out, _ = run(capsys, "plan", "factories_for_cli:mainnet", "--embedding", "10", "--fidelity", "paper")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("hyperfan-in(bias_share=0.5), Chang, Flokas & Lipson 2020; fidelity paper")
    assert lines[3].split()[:9] == ["0.weight", "weight", "4x8", "8", "4", "2", "0.25", "10", "1"]


def test_plan_options_reach_the_hypernet(capsys):
    args = [
        "--init",
        "hyperfan-out",
        "--generate",
        "weights+biases",
        "--trunk",
        "6",
        "7",
        "--heads",
        "separate",
        "--json",
    ]
    code, out, _ = run(capsys, "plan", "factories_for_cli:mainnet", *args, "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["method"] == "hyperfan-out"
    assert [r["tensor"] for r in plan["rows"]][:4] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert plan["rows"][0]["head"] == "0/weight"
    assert "trunk.2.weight" in [r["tensor"] for r in plan["rows"] if r["made_by"] == "trunk"]


def test_heads_are_an_option_of_every_sharing(capsys):
    (options, _) = get_args(get_type_hints(HypernetOptions)["heads"])
    assert get_args(options) == get_args(Sharing)
    counts = {}
    for sharing in get_args(Sharing):
        code, out, _ = run(capsys, "plan", "factories_for_cli:blocks", "--heads", sharing, "--json")
        assert code == 0
        counts[sharing] = len({row["head"] for row in json.loads(out)["rows"] if row["made_by"] == "head"})
    assert counts == {"shared": 1, "separate": 6, "module": 2}  # of 3 blocks with 2 layers


def test_plan_of_a_hypernet_and_of_a_mainnet_with_an_example(capsys):
    assert run(capsys, "plan", "factories_for_cli:hypernet")[1].startswith("hyperfan-out, ")
    code, out, _ = run(capsys, "plan", "factories_for_cli:with_example")
    assert code == 0
    assert "b.weight" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["factories_for_cli"], "write pkg.module:function"),
        (["no_such_module:f"], "cannot import 'no_such_module'"),
        (["factories_for_cli:mainet"], "did you mean 'mainnet'?"),
        (["factories_for_cli:broken"], "failed: KeyError: 'no such thing'"),
        (["factories_for_cli:number"], "returned a int"),
        (["factories_for_cli:Custom"], "pass example="),
        (["factories_for_cli:mainnet", "--init", "hyperfan"], "there is no init method 'hyperfan'"),
    ],
)
def test_what_cannot_run_says_so_in_one_line(capsys, args, message):
    code, out, err = run(capsys, "plan", *args)
    assert code == 2
    assert out == ""
    assert err.startswith("hyperfan: ")
    assert message in err
    assert err.count("\n") == 1


def test_methods(capsys):
    _, out, _ = run(capsys, "methods")
    rows = json.loads(run(capsys, "methods", "--json")[1])
    assert {r["name"] for r in rows} >= {"hyperfan-in", "hyperfan-out", "hyperfan-harmonic", "m2", "m3", "m4",
                                         "xavier-fan-in", "kaiming-geometric"}  # fmt: skip
    assert all(r["name"] in out and r["paper"] in out for r in rows)


SOME_METHODS = ("xavier-fan-in", "xavier-fan-out", "hyperfan-in", "m4", "hyperfan-out")


def test_every_method_is_compared():
    assert len(METHODS) == 11
    assert {*SOME_METHODS} < {*METHODS}


def test_compare(capsys, monkeypatch):
    """On half of the inits, of which the fourth makes equal layers; each has tests of its own."""
    monkeypatch.setattr("hyperfan.experiments.compare.METHODS", SOME_METHODS)
    code, out, _ = run(capsys, "compare", "--seeds", "2", "--batch", "50", "--json")
    rows = {r["init"]: r for r in json.loads(out)["rows"]}
    assert code == 0
    assert list(rows) == ["classical net, Xavier", *SOME_METHODS]
    for row in rows.values():
        assert len(row["preactivation"]) == len(row["gradient"]) == 6
    first = {name: row["preactivation"] for name, row in rows.items()}
    # Figures known for this net: pre-activation std of the first and the fifth layer.
    assert (first["classical net, Xavier"][0], first["classical net, Xavier"][4]) == pytest.approx(
        (1.10, 0.36), rel=0.1
    )
    assert (first["xavier-fan-in"][0], first["xavier-fan-in"][4]) == pytest.approx((27, 20), rel=0.25)
    assert (first["hyperfan-in"][0], first["hyperfan-in"][4]) == pytest.approx((1.01, 0.36), rel=0.25)
    assert (first["hyperfan-out"][0], first["hyperfan-out"][5]) == pytest.approx((1.23, 2.32), rel=0.25)
    assert first["xavier-fan-out"][4] < 0.01
    assert rows["hyperfan-in"]["ratio"] == pytest.approx(1, rel=0.2)
    assert rows["xavier-fan-in"]["ratio"] > 20
    assert rows["hyperfan-in"]["loss"] < 3 < rows["xavier-fan-in"]["loss"]


def test_compare_as_a_table(capsys, monkeypatch):
    monkeypatch.setattr("hyperfan.experiments.compare.METHODS", ("hyperfan-arithmetic",))
    _, out, _ = run(capsys, "compare", "--seeds", "1", "--batch", "10")
    assert "hyperfan-arithmetic" in out
    assert "∂L/∂y6" in out
    assert run(capsys, "compare", "--seeds", "0")[0] == 2


@pytest.mark.parametrize("terminal", [False, True])
def test_paths_with_brackets_are_shown_as_they_are(capsys, monkeypatch, terminal):
    monkeypatch.setattr("rich.console.Console.is_terminal", terminal)
    with status("reading [/x]") as show:
        show("drawing [a] of runs[/x]")
    assert "drawing [a] of runs[/x]" in capsys.readouterr().err


def test_version(capsys):
    assert run(capsys, "--version")[1].startswith("hyperfan 0.")
