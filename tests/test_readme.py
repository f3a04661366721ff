"""The README's code runs."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch
from patients import FAULTS, HEALTHY
from torch import nn

import hyperfan as hf
from hyperfan.experiments import mnist

README = Path(__file__).parent.parent / "README.md"
RESULTS = README.parent / "benchmarks/results/amd-epyc-2-cores"
"""Of the machine that the README's text and figure quote."""


LOOP, SHORT_LOOP = "for _ in range(10):", "for _ in range(2):"
"""Steps of training in the README, and those that a quick run takes."""


@pytest.mark.filterwarnings("error")
def test_the_readmes_code_runs(capsys, request):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == README.read_text(encoding="utf-8").count("```python") > 0
    assert any(LOOP in block for block in blocks)
    names: dict[str, object] = {}
    for block in blocks:
        block = block if request.config.getoption("full") else block.replace(LOOP, SHORT_LOOP)
        exec(compile(block, str(README), "exec"), names)
    assert "0.weight" in capsys.readouterr().out


def test_the_readme_counts_the_runs_right():
    text = README.read_text(encoding="utf-8")
    assert f"every setting: {len(mnist.grid(mnist.Mnist()))} runs" in text


def test_the_readme_counts_the_methods_right():
    from hyperfan.init import available

    assert f"{len(available())} methods, each with its paper" in README.read_text(encoding="utf-8")


def test_the_readmes_figures_on_choosing_an_init_are_measured():
    """Logits of the README's net have std 1 under hyperfan-in and 8 under hyperfan-out; a step moves W by 51 η."""
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10))
    x = torch.randn(1000, 784)
    for init, std in (("hyperfan-in", 1.0), ("hyperfan-out", 8.0)):
        made = [hf.HyperNet(mainnet, 50, init=init)(x).std().item() for _ in range(8)]
        assert sum(made) / len(made) == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize(
    ("optimiser", "said"), [("SGD", "about 51 η for an embedding of 50"), ("AdamW", "η·(‖h‖₁ + 1), about 44 η")]
)
def test_a_step_on_the_head_moves_the_weight_as_the_readme_says(optimiser, said):
    """The number is within 4 standard errors of the mean over 200 codes."""
    torch.manual_seed(0)
    factors = []
    for _ in range(200):
        net = hf.HyperNet(nn.Sequential(nn.Linear(6, 5)).double(), 50)
        before = net.generate()["0.weight"]
        before.retain_grad()
        before.square().sum().backward()
        if optimiser == "SGD":
            torch.optim.SGD(net.heads.parameters(), lr=0.01).step()
            factor, direction = net.codes().square().sum().item() + 1, before.grad
        else:
            torch.optim.AdamW(net.heads.parameters(), lr=0.01, eps=1e-30, weight_decay=0.0).step()
            factor, direction = net.codes().abs().sum().item() + 1, before.grad.sign()
        moved = net.generate()["0.weight"] - before
        torch.testing.assert_close(moved, -0.01 * factor * direction, rtol=1e-9, atol=1e-12)
        factors.append(factor)
    number = int(re.search(r"about (\d+) η", said)[1])
    measured = torch.tensor(factors)
    assert abs(measured.mean() - number) < 4 * measured.std() / len(factors) ** 0.5
    assert said in " ".join(README.read_text(encoding="utf-8").split())


@pytest.fixture
def speed_table():
    spec = importlib.util.spec_from_file_location("speed_table", README.parent / "docs/speed_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_speeds_has_a_column_for_each_machine(speed_table, tmp_path, monkeypatch):
    monkeypatch.setattr(speed_table, "ROOT", tmp_path)
    monkeypatch.setattr(speed_table, "RESULTS", tmp_path)
    for cpu, names in {"Intel": ("training_step",), "AMD": ("training_step", "forward_overhead")}.items():
        folder = tmp_path / f"{cpu.lower()}-4-cores"
        folder.mkdir()
        for name in names:
            ratio = {"median": len(cpu), "quartiles": [1, 9]}
            told = {"name": name, "ratio": ratio, "environment": {"processor": cpu}}
            (folder / f"{name}.json").write_text(json.dumps(told))
    head, rule, step, forward = [line.split(" | ") for line in speed_table.table().splitlines()]
    assert head[1:] == ["AMD, 4 cores", "Intel, 4 cores |"]
    assert rule == ["| ---", "---", "--- |"]
    assert step[1] == "3.00 [1, 9] times the plain net's ([json](amd-4-cores/training_step.json))"
    assert step[2] == "5.00 [1, 9] times the plain net's ([json](intel-4-cores/training_step.json)) |"
    assert forward[2] == "– |"


def test_the_readmes_speeds_are_those_of_the_benchmarks(speed_table):
    text = README.read_text(encoding="utf-8")
    assert speed_table.filled(text) == text
    times = json.loads((RESULTS / "peer_step.json").read_text())["median_ms"]
    peers = [value for name, value in times.items() if name != "classical" and not name.startswith("ours")]
    assert f"the plain net {times['classical']:.1f} ms, hyperfan {times['ours']:.1f}, other" in text
    assert f"other libraries {min(peers):.0f} to {max(peers):.0f}]" in text


def test_the_readmes_finding_is_what_diagnose_prints():
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10))
    x, y = torch.randn(32, 784), torch.randint(10, (32,))
    found = hf.diagnose(hf.HyperNet(mainnet, 50, init="kaiming-fan-in"), x, y).findings[0]
    assert f"```\n{found}\n```" in README.read_text(encoding="utf-8")


def test_the_readmes_figures_on_diagnosis_are_those_of_tests_and_benchmarks():
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert f"[{len(FAULTS)} planted faults](tests/probe/patients.py) are found and named" in text
    assert f"and {len(HEALTHY)} kinds of healthy net, 3 seeds each, get no warning" in text
    seen = json.loads((RESULTS / "peers_diagnosed.json").read_text())["found"]
    stds = {peer: [net["first_layer_std"] for net in nets] for peer, nets in seen.items()}
    loud = stds["hypnettorch"] + stds["hyper-nn"]
    assert f"a first layer of std {min(loud):.0f} to {max(loud):.0f}, and are told why" in text
    assert all(
        "as nn.Linear does by default" in " ".join(net["causes"])
        for p in ("hypnettorch", "hyper-nn")
        for net in seen[p]
    )
    assert {f"{std:.1f}" for std in stds["hyperlight"]} == {"1.5"}
    assert all("Wrong scale of a head in '10.weight'" in net["summary"] for net in seen["hyperlight"])
    assert "hyperlight's has 1.5, and only its last weight is found too large." in text
