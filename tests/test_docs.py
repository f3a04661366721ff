"""The pages' code runs, what they quote is so, and their links lead somewhere."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from patients import FAULTS, HEALTHY
from torch import nn

import hyperfan as hf
from hyperfan.experiments import cifar10, conditions
from hyperfan.experiments.experiment import EXPERIMENTS, experiment
from hyperfan.init import available
from hyperfan.optim import kernels

ROOT = Path(__file__).parent.parent
PAGES = sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
LOOP, SHORT_LOOP = "for _ in range(10):", "for _ in range(2):"
"""Steps of training on a page, and those that a quick run takes."""


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def said(page: str) -> str:
    """A page's text without its line breaks."""
    return " ".join(text(page).split())


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in text(p) and "/notebooks/" not in p])
def test_the_code_of_a_page_runs(page, request, tmp_path, monkeypatch, capsys):
    """All blocks in one namespace; what is shown right behind one is what it prints. Notebooks are run as such."""
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:```\n(.*?)^```)?", text(page), re.DOTALL | re.MULTILINE)
    assert len(blocks) == text(page).count("```python")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernels, "MIN_COMPILED", sys.maxsize)  # compiled steps have tests of their own
    names: dict[str, object] = {"__name__": "page"}
    for block, shown in blocks:
        block = block if request.config.getoption("full") else block.replace(LOOP, SHORT_LOOP)
        exec(compile(block, page, "exec"), names)
        assert shown in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", prose):
        if not re.match(r"[a-z]+:", target):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_the_nav_has_every_page_and_every_page_is_there():
    listed = re.findall(r"^ +- .*: (\S+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    elsewhere = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
    for page in listed:
        path = re.sub(r"^(results/.*)index\.md$", r"\1README.md", elsewhere.get(page, page))
        path = path if path in elsewhere.values() or path.startswith("results/") else f"docs/{path}"
        assert (ROOT / path).exists(), f"mkdocs.yml lists {page}"
    assert {p.removeprefix("docs/") for p in PAGES if p.startswith("docs/")} <= set(listed)


def test_the_check_of_the_built_site_finds_what_is_wrong(tmp_path):
    """``make docs`` runs it."""
    faults = script("site/check").faults
    page = '<h1 id="top">A</h1><h2>B</h2><a href="b.html#top">b</a><img src="data:x" alt="A picture"><a href="https://x.y">x</a>'
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text(page.replace("b.html#top", "#top"))
    assert faults(tmp_path) == []
    for right, wrong, told in (
        ("b.html#top", "c.html", "leads to c.html, which is not there"),
        ("b.html#top", "b.html#end", "leads to b.html#end, which is not there"),
        (' alt="A picture"', "", "does not describe data:x"),
        ("data:x", "https://x.y/z.png", "loads https://x.y/z.png"),
        ("<h2>B</h2>", "<h3>B</h3>", "has headings of levels [1, 3]"),
    ):
        (tmp_path / "a.html").write_text(page.replace(right, wrong))
        assert faults(tmp_path) == [f"a.html {told}"]


def test_no_paragraph_of_the_readme_is_long():
    """At most four lines of the width that the page is written in, and three screens in all."""
    prose = re.sub(r"^```.*?^```|^[|#].*?$", "", text("README.md"), flags=re.DOTALL | re.MULTILINE)
    assert max(p.strip().count("\n") for p in re.split(r"\n\n+|\n(?=- )", prose)) < 4
    assert text("README.md").count("\n") < 90


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^::: hyperfan\.(\w+)", text("docs/reference/index.md"), re.MULTILINE)
    assert set(hf.__all__) <= set(listed)


def test_pages_that_the_site_fills_in_say_so():
    for page in [p for p in PAGES if p.startswith("docs/reference/")]:
        filled_in = re.search(r"^(:::|<!-- generated: )", text(page), re.MULTILINE)
        assert ("\n\n*Outline: `make docs` fills this page in; " in text(page)) == bool(filled_in)


def test_every_example_is_listed():
    for example in (ROOT / "examples").glob("[!_]*.py"):
        assert f"](../examples/{example.name})" in text("docs/examples.md")


def test_quoted_numbers_are_those_of_the_results():
    numbers = script("quotes")
    for page in numbers.QUOTES:
        assert numbers.filled(page, text(page)) == text(page), "python docs/quotes.py writes them"


def test_a_quote_that_is_not_there_is_an_error(monkeypatch):
    numbers = script("quotes")
    monkeypatch.setitem(numbers.QUOTES, "page", {"takes {ratio:.1f} times": lambda: {"ratio": 2}})
    assert numbers.filled("page", "it takes\n1.25 times ours") == "it takes\n2.0 times ours"
    with pytest.raises(ValueError, match="0 times"):
        numbers.filled("page", "it takes long")


def test_counts_of_runs_are_right():
    guide = said("docs/guides/experiments.md")
    grids = {name: experiment(name).grid(experiment(name).profiles["laptop"]) for name in EXPERIMENTS}
    assert f"every setting: {len(grids['mnist'])} runs" in guide
    assert f"{len(cifar10.search(cifar10.PROFILES['laptop']))} inits and rates" in guide
    assert f"{len(grids['cifar10'])} runs, a day" in guide
    assert f"{len(grids['imagenet'])} runs, some hours" in guide
    demonstrations = sum(len(c.rates) * c.seeds for c in grids["demonstrations"])
    assert f"{demonstrations} runs in {len(grids['demonstrations'])} batched programs" in guide
    programs = conditions.grid(conditions.PROFILES["paper"])
    small = sum(len(c.starts) * len(c.rates) * c.seeds for c in programs)
    assert f"{small:,} small runs in {len(programs)} batched programs" in guide
    assert f"{len(conditions.JOBS)} small jobs" in guide


def test_counts_are_right():
    assert f"{len(available())} methods, each with its paper" in text("docs/reference/methods.md")
    assert f"[{len(FAULTS)} planted faults](tests/probe/patients.py) are found and named" in said("README.md")
    diagnose = said("docs/guides/diagnose.md")
    assert f"[{len(FAULTS)} planted faults](../../tests/probe/patients.py) are found and named" in diagnose
    assert f"and {len(HEALTHY)} kinds of healthy net, 3 seeds each, get no warning" in diagnose


def test_what_is_said_on_choosing_an_init_is_measured():
    assert "have std 1 under hyperfan-in and 8 under hyperfan-out" in said("docs/reference/methods.md")
    mainnet = nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10))
    x = torch.randn(1000, 784)
    for init, std in (("hyperfan-in", 1.0), ("hyperfan-out", 8.0)):
        made = [hf.HyperNet(mainnet, 10, init=init)(x).std().item() for _ in range(8)]
        assert sum(made) / len(made) == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize(
    ("optimiser", "quote"), [("SGD", "about 51 η for an embedding of 50"), ("AdamW", "η·(‖h‖₁ + 1), about 44 η")]
)
def test_a_step_on_the_head_moves_the_weight_as_is_said(optimiser, quote):
    """The number is within 4 standard errors of the mean over 100 codes."""
    factors = []
    for _ in range(100):
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
    number = int(re.search(r"about (\d+) η", quote)[1])
    measured = torch.tensor(factors)
    assert abs(measured.mean() - number) < 4 * measured.std() / len(factors) ** 0.5
    assert quote in said("docs/guides/training-fast.md")


def test_the_table_of_speeds_has_a_column_for_each_machine(tmp_path, monkeypatch):
    speed_table = script("speed_table")
    monkeypatch.setattr(speed_table, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(speed_table, "RESULTS", tmp_path)
    for cpu, names in {"Intel": ("training_step",), "AMD": ("training_step", "forward_overhead")}.items():
        folder = tmp_path / f"{cpu.lower()}-4-cores"
        folder.mkdir()
        for name in names:
            ratio = {"median": len(cpu), "quartiles": [1, 9]}
            told = {"name": name, "ratio": ratio, "limit": 4, "holds": len(cpu) <= 4, "environment": {"processor": cpu}}
            (folder / f"{name}.json").write_text(json.dumps(told))
    head, rule, step, forward = [line.split(" | ") for line in speed_table.table().splitlines()]
    assert head[1:] == ["AMD, 4 cores", "Intel, 4 cores |"]
    assert rule == ["| ---", "---", "--- |"]
    assert step[1] == "3.00 [1, 9] times the plain net's ([json](amd-4-cores/training_step.json))"
    assert (
        step[2] == "5.00 [1, 9] times the plain net's, over its limit of 4 ([json](intel-4-cores/training_step.json)) |"
    )
    assert forward[2] == "– |"


def test_the_table_of_speeds_is_that_of_the_benchmarks():
    assert script("speed_table").filled(text("docs/speed.md")) == text("docs/speed.md")


def test_the_tables_of_many_machines_are_those_of_model_and_benchmarks():
    page = "docs/guides/many-machines.md"
    assert script("machines_table").filled(text(page)) == text(page), "python -m docs.machines_table writes them"


def test_the_guide_says_what_is_found_in_another_library():
    assert "only its last weight is found too large." in said("docs/guides/diagnose.md")


def test_the_comparison_is_that_of_the_benchmarks():
    comparison = script("comparison")
    assert text("docs/comparison.md") == comparison.page()
    assert text("docs/comparison-scale.svg") == comparison.picture()
