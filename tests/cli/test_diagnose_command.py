"""``hyperfan diagnose``, called as a user would."""

import json

import pytest

from hyperfan.cli.main import main

FACTORIES = """
import torch
from torch import nn
import hyperfan as hf

def mainnet():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

def healthy():
    return hf.HyperNet(mainnet(), 16), torch.randn(50, 64), torch.randint(10, (50,))

def sick():
    return hf.HyperNet(mainnet(), 16, init="kaiming-fan-in"), torch.randn(50, 64), torch.randint(10, (50,))

class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 10)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

def untraced():
    return hf.HyperNet(Custom(), 16, init="xavier-fan-in"), torch.randn(50, 64)

def foreign():
    net, head = Custom(), nn.Linear(8, 64 * 64)
    return {"net": net, "x": torch.randn(50, 64), "generated": lambda: {"a.weight": head(torch.ones(8)).view(64, 64)}}

def fast():
    return dict(zip(("net", "x", "y"), healthy())) | {"lr": 0.1, "optimiser": "adam"}

def no_inputs():
    return hf.HyperNet(mainnet(), 16)

def strange():
    return {"net": hf.HyperNet(mainnet(), 16), "x": torch.randn(5, 64), "z": 3}

def leaving():
    raise SystemExit(7)

def of_a_size(width, depth=2, init="hyperfan-in"):
    widths = [64, *[width] * (depth - 1), 10]
    layers = [m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
    return hf.HyperNet(nn.Sequential(*layers[:-1]), 16, init=init), torch.randn(50, 64)

def sick_of_a_size(width):
    return of_a_size(width, depth=3, init="xavier-fan-in")

def misfit():
    return hf.HyperNet(mainnet(), 16), torch.randn(50, 63)
"""


@pytest.fixture(autouse=True)
def _factories(tmp_path, monkeypatch):
    (tmp_path / "nets_to_diagnose.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_exit_code_tells_whether_it_is_healthy(capsys):
    assert main(["diagnose", "nets_to_diagnose:healthy"]) == 0
    assert "Healthy: 3 layers" in capsys.readouterr().out
    assert main(["diagnose", "nets_to_diagnose:sick"]) == 1
    out = capsys.readouterr().out
    assert "wrong scale of a head" in out
    assert "mend:" in out


def test_json(capsys):
    assert main(["diagnose", "nets_to_diagnose:sick", "--json", "--lr", "0.1"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][0]["name"] == "wrong scale of a head"
    assert [r["layer"] for r in told["layers"]] == ["0", "2", "4"]
    assert told["stable_rate"] > 0


def test_the_optimiser_of_the_step(capsys):
    told = {}
    for optimiser in ("sgd", "adamw"):
        main(["diagnose", "nets_to_diagnose:healthy", "--json", "--lr", "1e-4", "--optimiser", optimiser])
        told[optimiser] = json.loads(capsys.readouterr().out)
        assert told[optimiser]["optimiser"] == optimiser
    assert told["adamw"]["stable_rate"] < told["sgd"]["stable_rate"]  # a step on every coordinate goes farther
    assert main(["diagnose", "nets_to_diagnose:fast"]) == 1  # the factory's choice stands where none is made
    assert "one step of Adam at 0.1" in capsys.readouterr().out
    main(["diagnose", "nets_to_diagnose:fast", "--lr", "0.2"])
    assert "one step of Adam at 0.2" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["diagnose", "nets_to_diagnose:healthy", "--optimiser", "lion"])
    said = capsys.readouterr().err
    assert all(choice in said for choice in ("'sgd'", "'adam'", "'adamw'"))


@pytest.mark.parametrize("factory", ["sick", "untraced"])
def test_what_another_init_would_change(factory, capsys):
    assert main(["diagnose", f"nets_to_diagnose:{factory}", "--init", "hyperfan-in"]) == 1
    assert "With hyperfan-in: Healthy" in capsys.readouterr().out
    assert main(["diagnose", f"nets_to_diagnose:{factory}", "--init", "hyperfan-in", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is False
    assert told["with hyperfan-in"]["healthy"] is True


def test_a_foreign_hypernet(capsys):
    assert main(["diagnose", "nets_to_diagnose:foreign"]) == 1
    assert "'a.weight'" in capsys.readouterr().out


def test_the_seed_is_its_own(capsys):
    outs = []
    for seed in ("0", "0", "1"):
        main(["diagnose", "nets_to_diagnose:healthy", "--seed", seed])
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1] != outs[2]


def test_a_page(tmp_path, capsys):
    page = tmp_path / "out.html"
    assert main(["diagnose", "nets_to_diagnose:sick", "--init", "hyperfan-in", "--html", str(page)]) == 1
    html = page.read_text()
    assert "wrong scale of a head" in html
    assert "hyperfan-in" in html
    before = page.read_bytes()
    assert main(["diagnose", "nets_to_diagnose:healthy", "--html", str(page)]) == 2
    assert "exists: --overwrite replaces it" in capsys.readouterr().err
    assert page.read_bytes() == before
    assert main(["diagnose", "nets_to_diagnose:healthy", "--html", str(page), "--overwrite"]) == 0
    assert page.read_bytes() != before


def test_a_coordinate_check(tmp_path, capsys):
    page = tmp_path / "check.html"
    sizes = ["--widths", "16", "32", "--depths", "2", "3"]
    assert main(["diagnose", "nets_to_diagnose:of_a_size", *sizes, "--html", str(page)]) == 0
    assert "Healthy: no layer's scale depends on the width or the depth" in capsys.readouterr().out
    assert page.read_text().count('<div class="panel">') == 6
    assert main(["diagnose", "nets_to_diagnose:sick_of_a_size", "--widths", "32", "256", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert "scale that depends on the width" in {f["name"] for f in told["findings"]}
    assert [d["width"] for d in told["diagnoses"]] == [32, 256]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nets_to_diagnose:healthy", "--widths", "8", "16"], "nets_to_diagnose:healthy(width=8) failed: TypeError"),
        (["nets_to_diagnose:of_a_size", "--widths", "8", "16", "--init", "m2"], "let nets_to_diagnose:of_a_size make"),
        (["nets_to_diagnose:no_inputs"], "returned a HyperNet; a diagnosis needs inputs too"),
        (["nets_to_diagnose:strange"], "got an unexpected keyword argument 'z'"),
        (
            ["nets_to_diagnose:misfit"],
            "the net of nets_to_diagnose:misfit, or its loss, does not run on these inputs: RuntimeError",
        ),
        (["nets_to_diagnose:foreign", "--init", "hyperfan-in"], "makes no HyperNet"),
        (["nets_to_diagnose:sick", "--init", "hyperfanin"], "did you mean 'hyperfan-in'"),
        (["nets_to_diagnose:nothing"], "has no 'nothing'"),
        (["nets_to_diagnose:leaving"], "nets_to_diagnose:leaving() failed: SystemExit: 7"),
        (["nowhere_at_all:net"], "cannot import 'nowhere_at_all'"),
    ],
)
def test_what_cannot_be_looked_at_exits_with_2(arguments, message, capsys):
    assert main(["diagnose", *arguments]) == 2
    assert message in capsys.readouterr().err
